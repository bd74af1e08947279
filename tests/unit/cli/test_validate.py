"""``validate`` of several files, and where the lab's secrets are not: in a hook and in a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots import case_name
from tests.unit.cli.conftest import ENGINE_KEY, FILE, GATEWAY_KEY, World

VALID = "homelab.yml is valid: lab homelab, 2 containers, 2 services.\n"


@pytest.fixture
def bare(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A machine that has none of the lab's secrets."""
    for name in ("ENGINE_KEY", "GATEWAY_KEY"):
        monkeypatch.delenv(f"PROVISION_SECRET_{name}")
    return world


def write(file: str, text: str = FILE) -> Path:
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(text, encoding="utf-8")
    return Path(file)


def test_one_file_is_told_as_ever(world: World) -> None:
    assert world.command("validate").out == VALID
    assert world.command("validate", "homelab.yml", "homelab.yml").out == VALID, "it is one file"
    assert world.command("validate", "-f", "homelab.yml").out == VALID


def test_each_of_several_files_is_told_by_its_name(world: World) -> None:
    write("other/homelab.yml", FILE.replace("name: homelab", "name: other"))
    answer = world.command("validate", "homelab.yml", "-f", "other/homelab.yml")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == VALID + "other/homelab.yml is valid: lab other, 2 containers, 2 services.\n"
    results = world.command("validate", "--json", "homelab.yml", "other/homelab.yml").of("result")
    assert [one["file"] for one in results] == ["homelab.yml", "other/homelab.yml"]


def test_what_is_wrong_with_one_file_hides_nothing_of_others(world: World) -> None:
    write("a/homelab.yml", FILE + "nmae: x\n")
    write("b/homelab.yml", "name: [")
    answer = world.command("validate", "a/homelab.yml", "b/homelab.yml", "none.yml", "homelab.yml")
    assert answer.code == 64
    assert answer.printed == world.snapshot
    summaries = world.command("validate", "--json", "a/homelab.yml", "homelab.yml").of("summary")
    assert [one["exit_code"] for one in summaries] == [64]


def test_the_variable_names_a_file_where_no_argument_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write("other.yml", FILE.replace("name: homelab", "name: other"))
    monkeypatch.setenv("PROVISION_FILE", "other.yml")
    assert world.command("validate").printed == world.snapshot
    assert world.command("validate", "homelab.yml").out == VALID


def test_without_its_secrets_a_file_is_valid_where_that_is_asked_for(bare: World) -> None:
    assert bare.command("validate").ended(64) == bare.snapshot
    answer = bare.command("validate", "--without-secrets")
    assert (answer.code, answer.out, answer.err) == (0, VALID, "")


def test_without_secrets_no_source_of_them_is_read(world: World, lab: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    write("secrets.env", "no line of it\n").chmod(0o644)
    lab.write_text(FILE + f"secrets: {{ command: [touch, '{told}', '{{name}}'] }}\n", encoding="utf-8")
    assert world.command("validate", "--without-secrets").code == 0
    assert not told.exists()
    assert list(tmp_path.glob("told*")) == []
    lab.write_text(FILE.replace("!secret engine_key", "!secret other_key"), encoding="utf-8")
    assert world.command("validate").printed == world.snapshot
    assert world.command("validate", "--without-secrets").code == 0


def test_a_value_that_its_service_would_refuse_is_not_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_GATEWAY_KEY", "begins-with-something-else-77f0")
    assert world.command("validate").code == 64
    assert world.command("validate", "--without-secrets").code == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model: tiny", "model: tyni"),
        ("context: 4096", "contxt: 4096"),
        ("{ fast: [tiny] }", "{ fast: [nobody] }"),
        ("api_key: !secret engine_key", "port: 0"),
    ],
    ids=case_name,
)
def test_everything_else_is_checked_without_secrets_too(bare: World, lab: Path, before: str, after: str) -> None:
    lab.write_text(FILE.replace(before, after), encoding="utf-8")
    assert bare.command("validate", "--without-secrets").ended(64) == bare.snapshot


def test_heads_that_were_read_before_are_held_against_options_without_secrets(
    bare: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def cached(path: Path, _models: object) -> dict[str, object]:
        asked.append(path)
        return {}

    monkeypatch.setattr("provisioner.lab.opening._cached", cached)
    assert bare.command("validate", "--without-secrets").code == 0
    assert asked == [Path("homelab.yml")]


def test_the_secrets_of_a_file_stay_hidden_behind_the_next_one(world: World) -> None:
    write("second/homelab.yml", f"name: [{ENGINE_KEY}\n{GATEWAY_KEY}")
    write("third/homelab.yml", f"name: {ENGINE_KEY}!\ncontainers: {{}}\n")
    answer = world.command("validate", "homelab.yml", "second/homelab.yml", "third/homelab.yml")
    assert answer.code == 64
    assert not any(key in answer.out + answer.err for key in (ENGINE_KEY, GATEWAY_KEY))
