"""Models that are folders, on the command line: what validate, plan, show and up say of them, used by nobody too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.file_server import FileServer, serving
from tests.folder_files import CONFIG, config, folder_files, write_folder
from tests.unit.cli.conftest import World
from tests.unit.test_hub_folder import REPOSITORY, REVISION, StandIn

SOURCE = f"hf:{REPOSITORY}@{REVISION}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A hub on this machine that has the repository."""
    with serving(FileServer()) as server:
        standin = StandIn(server)
        monkeypatch.setenv("HF_ENDPOINT", standin.hub.endpoint)
        monkeypatch.setenv("no_proxy", "*")
        yield standin


def write(lab: Path, models: str, used: str = "tiny") -> None:
    lab.write_text(f"""\
name: homelab
hosts: {{ box: {{ incus: local }} }}
models:
  tiny: {{ source: "builtin:tiny" }}
{models}
containers:
  llama:
    services:
      llama_cpp: {{ model: {used} }}
""")


@pytest.mark.parametrize(
    "verb",
    [
        ["validate"],
        ["show"],
        ["show", "--expanded"],
        ["schema"],
        ["graph"],
        ["plan"],
        ["fit"],
        ["up", "--yes"],
        ["status"],
    ],
)
def test_a_folder_that_no_service_uses_is_in_nobodys_way(
    world: World, hub: StandIn, lab: Path, verb: list[str]
) -> None:
    write_folder(lab.parent / "small", folder_files("awq"))
    write(lab, f'  far: {{ source: "{SOURCE}" }}\n  near: {{ source: "dir:small", context: 4096 }}')
    answer = world.command(*verb)
    assert answer.code == 0, answer.err
    assert hub.server.seen == []


def test_show_tells_the_formats_as_they_were_understood(world: World, lab: Path) -> None:
    write_folder(lab.parent / "small", folder_files("awq"))
    made = "  made: { source: builtin:tiny-hf }"
    write(lab, f'  far: {{ source: "{SOURCE}" }}\n  near: {{ source: "dir:small" }}\n{made}')
    answer = world.command("show", "--json")
    models = answer.of("result")[0]["value"]["models"]
    formats = {name: one["format"] for name, one in models.items()}
    assert formats == {"tiny": "gguf", "far": "exl3", "near": "awq", "made": "safetensors"}


def test_a_folder_for_an_engine_that_reads_gguf_is_refused_before_anybody_is_asked(
    world: World, hub: StandIn, lab: Path
) -> None:
    write(lab, f'  far: {{ source: "{SOURCE}" }}', "far")
    for verb in (["validate"], ["plan"], ["fit"]):
        answer = world.command(*verb)
        assert answer.code == 64
        assert "homelab.yml:9: containers.llama.services.llama_cpp.model: llama.cpp server reads gguf" in answer.err
        assert 'model "far" is exl3' in answer.err
    assert hub.server.seen == []


def test_the_built_in_folder_is_for_engines_that_read_it(world: World, lab: Path) -> None:
    write(lab, "  made: { source: builtin:tiny-hf }", "made")
    for verb in (["validate"], ["plan"]):
        answer = world.command(*verb)
        assert answer.code == 64
        assert 'llama_cpp.model: llama.cpp server reads gguf, and model "made" is safetensors' in answer.err


def test_a_missing_folder_names_its_line(world: World, lab: Path) -> None:
    write(lab, '  near: { source: "dir:small" }')
    answer = world.command("validate")
    assert answer.code == 64
    assert f"homelab.yml:5: models.near.source: no folder {lab.parent}/small" in answer.err


def test_the_formats_of_a_folder_and_of_the_file_are_both_told(world: World, lab: Path) -> None:
    write_folder(lab.parent / "small", {**folder_files(), CONFIG: config("gptq")})
    write(lab, '  near: { source: "dir:small", format: exl3 }')
    answer = world.command("validate")
    assert answer.code == 64
    assert "models.near.source: its config.json says gptq, and its format is exl3. Write format: gptq" in answer.err


def test_the_schema_knows_both(world: World) -> None:
    model = json.loads(world.command("schema").out)["$defs"]["Model"]["properties"]
    assert model["format"]["enum"] == ["gguf", "exl3", "exl2", "awq", "gptq", "fp8", "safetensors"]
    assert "dir:" in model["source"]["pattern"]


def test_a_lab_with_a_folder_that_nobody_uses_is_ejected(world: World, hub: StandIn, lab: Path) -> None:
    write_folder(lab.parent / "small", folder_files("awq"))
    write(lab, f'  far: {{ source: "{SOURCE}" }}\n  near: {{ source: "dir:small" }}')
    assert world.command("up", "--yes").code == 0
    answer = world.command("eject", str(lab.parent / "plain"))
    assert answer.code == 0, answer.err
    assert (lab.parent / "plain" / "site.yml").is_file()
    assert hub.server.seen == []
