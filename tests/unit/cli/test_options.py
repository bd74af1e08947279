"""The positional file, and what every verb has in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete

from provisioner.cli.app import VERBS, app
from provisioner.cli.options import container_names, understood

COMMON = {"--json", "--no-color", "--verbose"}


def verbs(group: click.Group = app, path: str = "provision") -> Iterator[tuple[str, click.Command]]:
    """Every verb that does something, with its whole name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from verbs(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(verbs())


@pytest.mark.parametrize(
    ("arguments", "files", "file", "names"),
    [
        ((), (), "homelab.yml", ()),
        (("a.yml",), (), "a.yml", ()),
        (("a.yaml", "llama"), (), "a.yaml", ("llama",)),
        (("llama", "a.yml", "gateway"), (), "a.yml", ("llama", "gateway")),
        (("llama", "llama"), (), "homelab.yml", ("llama",)),
        (("llama",), ("odd.name",), "odd.name", ("llama",)),
    ],
)
def test_what_ends_in_yml_is_the_file(
    arguments: tuple[str, ...], files: tuple[str, ...], file: str, names: tuple[str, ...]
) -> None:
    words = understood(arguments, files)
    assert (words.file, words.names) == (Path(file), names)


@pytest.mark.parametrize(
    ("arguments", "files"), [(("a.yml", "b.yaml"), ()), (("a.yml",), ("b.yml",)), ((), ("a.yml", "b.yml"))]
)
def test_two_files_are_refused(arguments: tuple[str, ...], files: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="Two files"):
        understood(arguments, files)


def test_a_file_in_the_arguments_wins_over_the_environment() -> None:
    assert understood(("a.yml",), ("b.yml",), by_variable=True).file == Path("a.yml")
    assert understood((), ("b.yml",), by_variable=True).file == Path("b.yml")


@pytest.mark.parametrize("name", ALL)
def test_every_verb_has_the_common_options_and_every_option_a_variable(name: str) -> None:
    options = [one for one in ALL[name].params if isinstance(one, click.Option)]
    assert {flag for one in options for flag in one.opts} >= COMMON
    for one in options:
        longest = max(one.opts, key=len)
        assert one.envvar == "PROVISION_" + longest.removeprefix("--").replace("-", "_").upper()
        assert one.help


@pytest.mark.parametrize("name", ALL)
def test_every_verb_says_what_it_does(name: str) -> None:
    assert ALL[name].help


def test_the_table_of_verbs_names_what_its_modules_hold() -> None:
    assert {name.split()[1] for name in ALL} == set(VERBS)


def completions(arguments: list[str], incomplete: str) -> list[CompletionItem]:
    return ShellComplete(app, {}, "provision", "_PROVISION_COMPLETE").get_completions(arguments, incomplete)


def test_completion_knows_the_containers_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("homelab.yml").write_text("containers:\n  llama: { services: { x: { key: !secret k } } }\n  gateway:\n")
    Path("other.yml").write_text("containers: { desk: }\n")
    assert [one.value for one in completions(["up"], "") if one.type == "plain"] == ["gateway", "llama"]
    assert [one.value for one in completions(["up", "llama"], "") if one.type == "plain"] == ["gateway"]
    assert [one.value for one in completions(["up", "other.yml"], "") if one.type == "plain"] == ["desk"]
    assert [one.value for one in completions(["up", "-f", "other.yml"], "d") if one.type == "plain"] == ["desk"]
    assert [one.type for one in completions(["validate"], "")] == ["file"]


@pytest.mark.parametrize("content", ["", "[]", "containers: 3", "a: [", "a: 1\ncontainers:\n", "\0"])
def test_completion_of_a_broken_file_is_silent(tmp_path: Path, content: str) -> None:
    file = tmp_path / "homelab.yml"
    file.write_text(content)
    assert container_names(file) == []
    assert container_names(tmp_path / "none.yml") == []
