"""What the role refuses before it changes anything, each with the words that say what to write instead."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
ROLE = SCENARIO.parents[1] / "roles/kokoro"
MIX = "such as af_bella(2)+af_sky(1)"
TOLD = "/root/told.json"
SAID = "ansible_failed_result.results | default([ansible_failed_result]) | map(attribute='msg', default='') | join(' ')"
"""What failed, of a loop what its items said."""
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({}, ""),
    "a mix of three": ({"default_voice": "af_bella(0.5)+af_sky-bm_fable(10)"}, ""),
    "a sign at the end": ({"default_voice": "af_bella+"}, MIX),
    "two signs": ({"default_voice": "af_bella++af_sky"}, MIX),
    "weight 0": ({"default_voice": "af_bella(0)+af_sky"}, MIX),
    "weight below 0": ({"voices": ["af_bella(-1)"]}, "`voices` (af_bella(-1)) must be a voice"),
    "no number": ({"voices": ["af_bella(two)"]}, MIX),
    "an open bracket": ({"default_voice": "af_bella(2+af_sky"}, MIX),
    "a blank": ({"default_voice": "af_bella + af_sky"}, MIX),
    "a way out": ({"default_voice": "../af_sky"}, MIX),
    "Japanese": ({"voices": ["jf_alpha"]}, "Unable to use jf_alpha: the role does not install what Japanese"),
    "no card": ({"device": "nvidia"}, "this container has none (/dev/nvidiactl is missing)"),
    "CUDA without a card": ({"torch": "cuda"}, "Unable to compute on a card of nvidia"),
    "short commit": ({"commit": "bfdc735"}, "`commit` (bfdc735) must be 40 hexadecimal digits"),
    "source that is an option": ({"source": "--upload-pack=x"}, "must be a https, ssh or file address"),
    "port 0": ({"port": 0}, "`port` (0) must be 1 or more and 65535 or less"),
    "port of another": (
        {"port": 8899},
        "Unable to serve Kokoro behind port 8899, on port 18899 of 127.0.0.1: python3 (stranger.service) listens there",
    ),
}


@pytest.fixture(scope="module")
def told(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    host.check_output("systemd-run --unit=stranger --collect python3 -m http.server 18899 --bind 127.0.0.1")
    folder = tmp_path_factory.mktemp("play")
    done = play(folder, [str(SCENARIO / "vars.yml")], list(tasks()))
    host.check_output("systemctl stop stranger")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    said: dict[str, str] = json.loads(host.file(TOLD).content_string)
    return said


def play(folder: Path, files: list[str], tasks: list[Any]) -> subprocess.CompletedProcess[str]:
    """Run a play of these tasks."""
    playbook = folder / "play.yml"
    one = {"hosts": "all", "gather_facts": False, "vars_files": files, "tasks": tasks}
    playbook.write_text(json.dumps([one]), encoding="utf-8")
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(playbook)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def tasks() -> Any:
    """Each case as a run of the role's checks, and a file of what was said."""
    yield {"set_fact": {"told": {}}}
    for name, (options, _) in CASES.items():
        include = {"name": "kokoro", "tasks_from": "preflight"}
        variables = {f"kokoro_{key}": value for key, value in options.items()}
        said = {"told": f"{{{{ told | combine({{case: {SAID}}}) }}}}"}
        yield {
            "block": [{"include_role": include, "vars": variables}],
            "rescue": [{"set_fact": said, "vars": {"case": name}}],
        }
    yield {"copy": {"content": "{{ told | to_json }}", "dest": TOLD, "mode": "0600"}}


@pytest.mark.parametrize("name", CASES)
def test_what_types_cannot_say_is_refused(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)


def test_weights_of_another_hash_are_refused_before_anything_opens_them(host: Host, tmp_path: Path) -> None:
    host.check_output("mkdir -p /srv/weights && echo pickle > /srv/weights/kokoro-v1_0.pth")
    one = {"name": "kokoro-v1_0.pth", "source": "https://example.invalid/kokoro-v1_0.pth", "sha256": "0" * 64}
    variables = {
        "kokoro_mirror": "/srv/weights",
        "__kokoro_file": one,
        "__kokoro_destination": "/root/kokoro-v1_0.pth",
    }
    include = {"include_role": {"name": "kokoro", "tasks_from": "build_file"}, "vars": variables}
    done = play(tmp_path, [str(ROLE / "vars/build.yml")], [include])
    assert done.returncode != 0
    assert "Unable to use kokoro-v1_0.pth: its sha256 is" in " ".join((done.stdout + done.stderr).split())
    host.check_output("rm -r /srv/weights /root/kokoro-v1_0.pth")
