"""The manifest of what a role builds names what was built, and not the manifest that is being written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"


def written_by(tasks: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the commands that write a manifest, from the search for files on."""
    for task in tasks:
        yield from written_by(task.get("block", []))
        command = task.get("ansible.builtin.shell", {}).get("cmd", "")
        if "sha256sum >" in command:
            yield command[command.index("find ") :]


COMMANDS = {
    file.parents[1].name: command
    for file in sorted(ROLES.glob("*/tasks/build.yml"))
    for command in written_by(yaml.safe_load(file.read_text(encoding="utf-8")))
}


def test_all_roles_that_build_are_tried() -> None:
    assert {"agent_team", "kokoro", "litellm", "llama_cpp", "ollama", "open_webui", "pipelines"} <= COMMANDS.keys()


@pytest.mark.parametrize("role", COMMANDS)
def test_a_manifest_that_is_begun_before_the_search_is_not_in_it(role: str, tmp_path: Path) -> None:
    """Parts of a pipe begin in any order: the manifest's file may be there before the files are listed."""
    built, home = tmp_path / "built", tmp_path / "home"
    (built / "bin").mkdir(parents=True)
    home.mkdir()
    (built / "bin/program").write_bytes(b"a program")
    begun = COMMANDS[role].partition("sha256sum > ")[2].split()[0].strip('"').replace("$HOME", str(home))
    (built / begun).touch()
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", COMMANDS[role]],
        cwd=built,
        env={**os.environ, "HOME": str(home)},
        check=True,
        timeout=30,
    )
    (line,) = (built / "MANIFEST.sha256").read_text(encoding="utf-8").splitlines()
    assert Path(line.split()[1]) == Path("bin/program")
