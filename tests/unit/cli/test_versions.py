"""``provision --version``: four versions for people, the same for programs, and nothing heavy imported for it."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import pytest

from provisioner import __version__
from provisioner.cli.app import run
from provisioner.labfile import SCHEMA_VERSION


def test_it_says_its_version_and_those_of_ansible_core_python_and_the_schema(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"provision {__version__}",
        f"ansible-core {metadata.version('ansible-core')}",
        f"Python {platform.python_version()}",
        f"schema of homelab.yml {SCHEMA_VERSION}",
    ]


@pytest.mark.parametrize(
    ("arguments", "variable"), [(["--version", "--json"], "0"), (["--json", "--version"], "0"), (["--version"], "1")]
)
def test_programs_get_a_stream_with_its_last_line(
    arguments: list[str], variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVISION_JSON", variable)
    assert run(arguments) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (result,) = [line for line in lines if line["type"] == "result"]
    assert (result["provision"], result["schema"]) == (__version__, SCHEMA_VERSION)
    assert result["ansible_core"] == metadata.version("ansible-core")
    assert result["python"] == platform.python_version()
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["exit_code"] == 0


def test_json_before_a_verb_is_refused_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", "stacks"]) == 64
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "behind the verb" in json.dumps(lines)


def test_without_ansible_core_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert run(["--version"]) == 0
    assert "ansible-core not installed\n" in capsys.readouterr().out
