"""Models that are folders, on the command line: what validate, plan, show and up say of them, used by nobody too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.file_server import FileServer, serving
from tests.folder_files import CONFIG, config, folder_files, write_folder
from tests.unit.cli.conftest import World
from tests.unit.models.test_hub_folder import REPOSITORY, REVISION, StandIn

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
    "line", ["validate", "show", "show --expanded", "schema", "graph", "plan", "fit", "up --yes", "status"]
)
def test_a_folder_that_no_service_uses_is_in_nobodys_way(world: World, hub: StandIn, lab: Path, line: str) -> None:
    write_folder(lab.parent / "small", folder_files("awq"))
    write(lab, f'  far: {{ source: "{SOURCE}" }}\n  near: {{ source: "dir:small", context: 4096 }}')
    world.done(*line.split())
    assert hub.server.seen == []


def test_show_tells_the_formats_as_they_were_understood(world: World, lab: Path) -> None:
    write_folder(lab.parent / "small", folder_files("awq"))
    made = "  made: { source: builtin:tiny-hf }"
    write(lab, f'  far: {{ source: "{SOURCE}" }}\n  near: {{ source: "dir:small" }}\n{made}')
    models = world.command("show", "--json").of("result")[0]["value"]["models"]
    formats = {name: one["format"] for name, one in models.items()}
    assert formats == {"tiny": "gguf", "far": "exl3", "near": "awq", "made": "safetensors"}


def test_a_folder_for_an_engine_that_reads_gguf_is_refused_before_anybody_is_asked(
    world: World, hub: StandIn, lab: Path
) -> None:
    write(lab, f'  far: {{ source: "{SOURCE}" }}', "far")
    refused = world.command("validate")
    assert refused.printed == world.snapshot
    for verb in ("validate", "plan", "fit"):
        answer = world.command(verb)
        assert (answer.code, answer.printed) == (64, refused.printed)
    assert hub.server.seen == []


@pytest.mark.parametrize(
    ("models", "used"),
    [
        ("  made: { source: builtin:tiny-hf }", "made"),
        ('  near: { source: "dir:none" }', "tiny"),
        ('  near: { source: "dir:small", format: exl3 }', "tiny"),
    ],
    ids=["for another engine", "not there", "of another format"],
)
def test_what_is_wrong_with_a_folder_names_its_line(world: World, lab: Path, models: str, used: str) -> None:
    write_folder(lab.parent / "small", {**folder_files(), CONFIG: config("gptq")})
    write(lab, models, used)
    assert world.command("validate").ended(64) == world.snapshot


def test_the_schema_knows_both(world: World) -> None:
    model = json.loads(world.command("schema").out)["$defs"]["Model"]["properties"]
    assert model["format"]["enum"] == ["gguf", "exl3", "exl2", "awq", "gptq", "fp8", "safetensors"]
    assert "dir:" in model["source"]["pattern"]


def test_a_lab_with_a_folder_that_nobody_uses_is_ejected(world: World, hub: StandIn, lab: Path) -> None:
    write_folder(lab.parent / "small", folder_files("awq"))
    write(lab, f'  far: {{ source: "{SOURCE}" }}\n  near: {{ source: "dir:small" }}')
    assert world.command("up", "--yes").code == 0
    world.done("eject", str(lab.parent / "plain"))
    assert (lab.parent / "plain" / "site.yml").is_file()
    assert hub.server.seen == []
