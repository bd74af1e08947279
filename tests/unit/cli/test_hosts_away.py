"""A host that is away is the same refusal of every verb: exit 4, nothing touched; with the drivers that people use."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.cli.app import VERBS, run
from tests.case_files import read_cases

CASES = read_cases("cli/hosts_away")

WITHOUT_A_LIVE_LAB = frozenset(
    (
        "init",
        "validate",
        "schema",
        "show",
        "graph",
        "lock",
        "fit",
        "suggest",
        "host",
        "cuda",
        "stacks",
        "cluster",
        "runbook",
        "doctor",
    )
)
"""Verbs of a file or of a machine; ``doctor`` tells it as a finding."""
LINES = CASES["lines"]
BESIDE = {"clone --set": ("clone", "llama", "copy", "--set", "services.llama_cpp.parallel=2", "--yes")}
"""What a verb does in another way where it is told so."""
HOSTS = {
    "incus-here": "{ incus: local }",
    "incus-elsewhere": f'{{ incus: "https://127.0.0.1:1", fingerprint: {"a" * 64} }}',
    "proxmox": '{ proxmox: "https://127.0.0.1:1", user: root@pam, token: { id: provision, secret: !secret token }, '
    f"ssh: root@127.0.0.1, fingerprint: {'a' * 64} }}",
}
FILE = """\
name: away
hosts: {{ box: {host} }}
models: {{ tiny: {{ source: "builtin:tiny" }} }}
containers:
  llama: {{ services: {{ llama_cpp: {{ model: tiny }} }} }}
  voice: {{ services: {{ kokoro: {{}} }} }}
  desk: {{ services: {{ desktop: {{ user: penny, password: !secret penny }} }} }}
"""


def test_every_verb_is_asked() -> None:
    assert LINES.keys() | WITHOUT_A_LIVE_LAB == VERBS.keys()


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("verb", [*LINES, *BESIDE])
def test_a_host_that_is_away_is_a_refusal(
    verb: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "INCUS_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("INCUS_SOCKET", raising=False)
    Path("homelab.yml").write_text(FILE.format(host=HOSTS[host]), encoding="utf-8")
    Path("secrets.env").write_text("token=abc\npenny=canary-penny\n", encoding="utf-8")
    Path("secrets.env").chmod(0o600)
    text = Path("homelab.yml").read_text(encoding="utf-8")
    code = run({**LINES, **BESIDE}[verb])
    said = capfd.readouterr().err
    told = "Unable to reach" in said or "There is no connection" in said
    assert (code, told) == (4, True), said
    assert Path("homelab.yml").read_text(encoding="utf-8") == text
