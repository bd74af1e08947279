"""What the role refuses before it changes anything, each with the words that say what to write instead."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

SCENARIO = Path(__file__).resolve().parents[1]
TOLD = "/root/told.json"
SAID = "ansible_failed_result.results | default([ansible_failed_result]) | map(attribute='msg', default='') | join(' ')"
"""What failed, of a loop what its items said."""


def pair(folder: Path, *words: str) -> tuple[str, str]:
    """A certificate and its key."""
    key, certificate = folder / "key", folder / "certificate"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj=/CN=x",
    ]
    subprocess.run([*command, *words, "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    return certificate.read_text(), key.read_text()


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "as it is": ({}, ""),
    "root": ({"user": "root"}, "is not root"),
    "a blank in the name": ({"user": "pen ny"}, "lower case letters"),
    "twice": ({"user": "ann"}, "every user is another one"),
    "chrome": ({"browser": "chrome"}, "the browser is Firefox"),
    "sound": ({"sound": True, "image": "debian/12"}, "sound needs debian/13"),
    "port 0": ({"port": 0}, "`port` (0) must be 1 or more and 65535 or less"),
    "port of another": ({"port": 8899}, "listens there. Stop it, or set another `port`"),
    "another image": ({"image": "debian/12"}, "Unable to install a desktop for debian/12 on debian/13"),
    "no PEM": ({"certificate": "/etc/cert.pem", "certificate_key": "/etc/key.pem"}, "the certificate is no PEM text"),
    "not its key": ({"certificate": "first", "certificate_key": "second"}, "do not belong together"),
    "its key": ({"certificate": "first", "certificate_key": "first"}, ""),
    "without its key": ({"certificate": "first"}, "the key is no PEM text"),
}


@pytest.fixture(scope="module")
def told(host: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role says to each case, nothing where it takes it."""
    host.check_output("systemd-run --unit=stranger --collect python3 -m http.server 8899 --bind 127.0.0.1")
    folder = tmp_path_factory.mktemp("play")
    playbook = folder / "play.yml"
    files = [str(SCENARIO / "vars.yml")]
    one = {"hosts": "all", "gather_facts": False, "vars_files": files, "tasks": list(tasks(folder))}
    playbook.write_text(json.dumps([one]), encoding="utf-8")
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(playbook)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    host.check_output("systemctl stop stranger")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    said: dict[str, str] = json.loads(host.file(TOLD).content_string)
    return said


def tasks(folder: Path) -> Iterator[dict[str, Any]]:
    """Each case as a run of the role's checks, and a file of what was said."""
    pairs = {name: pair(folder, "-days=90") for name in ("first", "second")}
    yield {"set_fact": {"told": {}}}
    for name, (options, _) in CASES.items():
        given = dict(options)
        for place, option in enumerate(("certificate", "certificate_key")):
            if given.get(option) in pairs:
                given[option] = pairs[given[option]][place]
        variables = {f"desktop_{key}": value for key, value in given.items()}
        said = {"told": f"{{{{ told | combine({{case: {SAID}}}) }}}}"}
        yield {
            "block": [{"include_role": {"name": "desktop", "tasks_from": "preflight"}, "vars": variables}],
            "rescue": [{"set_fact": said, "vars": {"case": name}}],
        }
    yield {"copy": {"content": "{{ told | to_json }}", "dest": TOLD, "mode": "0600"}}


@pytest.mark.parametrize("name", CASES)
def test_what_types_cannot_say_is_refused(told: dict[str, str], name: str) -> None:
    _, words = CASES[name]
    assert words in told.get(name, "")
    assert (name in told) == bool(words)
