"""Every way to be wrong on the command line ends with 64 and is told once, in words or in the stream."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from provisioner.cli.app import COMMON_OPTIONS, GROUPS, VERBS, app
from tests.unit.cli.conftest import World

WRONG = {
    "no such verb": ("plam",),
    "no such option": ("plan", "--jsn"),
    "an option without its value": ("destroy", "--lab"),
    "a value that is no choice": ("show", "--client", "word"),
    "two files": ("show", "a.yml", "b.yml"),
    "a container where none is meant": ("validate", "llama"),
    "no such file": ("validate", "none.yml"),
    "options that exclude each other": ("show", "--expanded", "--client", "openai"),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_wrong_usage_exits_64_and_says_what_to_do(world: World, arguments: tuple[str, ...]) -> None:
    assert world.command(*arguments).ended(64) == world.snapshot
    answer = world.command(arguments[0], "--json", *arguments[1:])
    assert (answer.code, answer.err) == (64, "")
    assert [line["type"] for line in answer.events] == ["version", "diagnostic", "summary"]
    assert answer.of("summary")[0]["exit_code"] == 64


def test_the_stream_can_be_asked_for_by_the_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_JSON", "1")
    assert [line["type"] for line in world.command("plam").events] == ["version", "diagnostic", "summary"]
    assert world.command("validate").of("summary")[0]["exit_code"] == 0


def test_without_a_verb_the_help_is_shown_as_an_error(world: World) -> None:
    answer = world.command()
    assert (answer.code, answer.out) == (64, "")
    assert answer.err == world.command("-h").out


@pytest.mark.parametrize("line", ["--help", "up --help", "host prepare -h"])
def test_help_exits_0_and_says_nothing_else(world: World, line: str) -> None:
    assert world.command(*line.split()).ended(0) == world.snapshot


def test_help_names_every_verb(world: World) -> None:
    said = world.command("--help").out
    for name, (_, short_help) in VERBS.items():
        assert f"  {name}" in said
        assert short_help in said


def test_every_wrong_thing_in_a_file_is_told_with_its_line(world: World, lab: Path) -> None:
    lab.write_text(lab.read_text() + "models_:\n  x: 1\nnmae: y\n")
    assert world.command("validate").ended(64) == world.snapshot


def test_an_option_is_read_from_its_variable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_DETAILED_EXITCODE", "true")
    assert world.command("plan").code == 2
    monkeypatch.setenv("PROVISION_FILE", "none.yml")
    assert world.command("plan").code == 64
    assert world.command("plan", "homelab.yml").code == 2


def test_an_incus_elsewhere_without_a_certificate_is_refused_with_the_way_to_one(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    text = "name: x\nhosts:\n  far: { incus: 'https://box:8443' }\ncontainers: { x: { services: {} } }\n"
    lab.write_text(text)
    result = CliRunner().invoke(app, ["plan"])
    assert result.exit_code == 4
    assert f"{tmp_path / 'provisioner' / 'client.crt'} is missing" in result.stderr
    assert "provision host prepare --trust -" in result.stderr


def test_clicks_own_runner_sees_our_exit_codes(world: World) -> None:
    assert world.host.available
    assert CliRunner().invoke(app, ["plam"]).exit_code == 64
    assert CliRunner().invoke(app, ["validate"]).exit_code == 0
    assert CliRunner().invoke(app, ["--version"]).output.startswith("provision ")


def test_host_prepare_without_root_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    answer = world.command("host", "prepare", "--json")
    assert answer.code == 4
    assert answer.of("summary")[0] == {**answer.of("summary")[0], "verb": "host prepare", "exit_code": 4}
    assert "sudo provision host prepare" in answer.of("diagnostic")[0]["resolution"]


def test_each_verb_stands_in_one_group_and_common_options_stand_last() -> None:
    grouped = [name for group in GROUPS.values() for name in group]
    assert len(grouped) == len(set(grouped)) == len(VERBS)
    lines = CliRunner().invoke(app, ["plan", "--help"]).output.splitlines()
    options = [line.split()[0] for line in lines if line.startswith("  -")]
    assert options[-4:] == ["--json", "--no-color", "-v,", "-h,"]
    taken = [option.opts for option in app.get_command(click.Context(app), "plan").params if option.opts]  # type: ignore[union-attr]  # it is there
    for names in COMMON_OPTIONS:
        assert set(names.split(", ")) in [{*opts} for opts in (*taken, ["-h", "--help"])]
