"""``init`` keeps what is there and makes what is missing; ``show`` shows everything but secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gguf_bytes import projector_bytes
from tests.unit.cli.conftest import FILE, World

VARIABLES = ("PROVISION_SECRET_ENGINE_KEY", "PROVISION_SECRET_GATEWAY_KEY")


@pytest.fixture
def bare(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """No file and no secret."""
    lab.unlink()
    for name in VARIABLES:
        monkeypatch.delenv(name)
    return world


def lines(file: str = "secrets.env") -> dict[str, str]:
    return dict(line.split("=", 1) for line in Path(file).read_text().splitlines() if not line.startswith("#"))


def test_init_writes_a_lab_that_is_valid_and_can_be_made(bare: World) -> None:
    assert bare.command("init", "--secrets").code == 0
    assert json.loads(Path(".provision/homelab.schema.json").read_text())["type"] == "object"
    assert Path("homelab.yml").read_text().startswith("# yaml-language-server: $schema=.provision/homelab.schema.json")
    assert bare.command("validate").code == 0
    assert bare.command("up", "--yes").code == 0


def test_init_again_changes_nothing(bare: World) -> None:
    bare.command("init", "--secrets")
    before = {
        name: Path(name).read_bytes() for name in ("homelab.yml", "secrets.env", ".provision/homelab.schema.json")
    }
    answer = bare.done("init", "--secrets", "--json")
    assert answer.of("result")[0]["secrets"] == []
    assert {name: Path(name).read_bytes() for name in before} == before


def test_a_secret_that_has_a_value_keeps_it(bare: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("homelab.yml").write_text(FILE)
    Path("secrets.env").write_text("# mine\nengine_key=kept-value")
    Path("secrets.env").chmod(0o600)
    assert bare.command("init", "--secrets").code == 0
    assert Path("secrets.env").read_text().startswith("# mine\nengine_key=kept-value\ngateway_key=sk-")
    assert lines()["engine_key"] == "kept-value"
    Path("secrets.env").unlink()
    for name in VARIABLES:
        monkeypatch.setenv(name, "sk-from-the-environment")
    bare.command("init", "--secrets")
    assert not Path("secrets.env").exists()


def test_init_says_what_comes_next_and_what_git_leaves_out(bare: World) -> None:
    Path(".gitignore").write_text("/secrets.env\n", encoding="utf-8")
    assert bare.command("init").ended(0) == bare.snapshot(name="init")
    assert bare.command("init", "--secrets").ended(0) == bare.snapshot(name="secrets")
    (result,) = bare.command("init", "--json").of("result")
    assert (result["ignored"], result["next"]) == ([], "provision init --secrets homelab.yml")


def test_a_secret_of_another_system_is_not_invented(bare: World) -> None:
    text = FILE.replace(
        "containers:", "upstreams:\n  far: { model: openrouter/a/b, api_key: !secret cloud }\ncontainers:"
    )
    Path("homelab.yml").write_text(text)
    assert bare.command("init", "--secrets").ended(0) == bare.snapshot
    assert set(lines()) == {"engine_key", "gateway_key"}


def test_init_refuses_a_file_that_is_wrong(bare: World) -> None:
    Path("homelab.yml").write_text("name: [")
    assert bare.command("init", "--secrets").code == 64
    assert not Path("secrets.env").exists()


def test_no_generated_secret_is_printed(bare: World) -> None:
    answer = bare.command("init", "--secrets")
    values = list(lines().values())
    assert len(values) == 2
    assert not any(value in answer.out + answer.err for value in values)


def test_a_secret_in_clear_is_a_warning(world: World, lab: Path) -> None:
    lab.write_text(FILE.replace("!secret engine_key", "in-clear-0123456789"))
    answer = world.done("validate")
    assert answer.printed == world.snapshot
    assert "in-clear" not in answer.printed


def test_a_key_in_clear_is_not_shown_to_clients_either(world: World, lab: Path) -> None:
    lab.write_text(FILE.replace("!secret gateway_key", "sk-in-clear-0123456789"))
    world.command("up", "--yes")
    assert world.command("show", "--client", "openai").printed == world.snapshot


def test_schema_is_json_schema(world: World) -> None:
    schema: dict[str, Any] = json.loads(world.command("schema").out)
    assert "containers" in schema["properties"]
    assert world.command("schema", "--json").of("result")[0]["schema"] == schema


def test_show_gives_the_file_with_defaults_and_masked_secrets(world: World) -> None:
    shown = yaml.safe_load(world.command("show").out)
    llama = shown["containers"]["llama"]
    assert llama["image"] == "debian/12"
    assert llama["memory"] == "2GiB"
    assert llama["services"]["llama_cpp"]["port"] == 8080
    assert llama["services"]["llama_cpp"]["api_key"] == "********"
    assert shown["containers"]["gateway"]["services"]["litellm"]["aliases"] == {"fast": ["tiny"]}
    assert "listen" not in llama["services"]["llama_cpp"]
    assert world.command("show", "--json").of("result")[0]["value"] == shown


def test_what_show_gives_is_a_valid_file_that_means_the_same(world: World, lab: Path) -> None:
    before = world.command("show", "--expanded").out
    shown = world.command("show").out
    for option, secret in (("api_key", "engine_key"), ("master_key", "gateway_key")):
        assert shown.count(f"{option}: '********'") == 1
        shown = shown.replace(f"{option}: '********'", f"{option}: !secret {secret}")
    lab.write_text(shown)
    assert world.command("show", "--expanded").out == before


def test_expanded_shows_devices_variables_and_artifacts(world: World) -> None:
    shown = yaml.safe_load(world.command("show", "--expanded").out)
    llama = next(one for one in shown["instances"] if one["name"] == "llama")
    made = {one["name"]: one["mounted_at"] for one in shown["artifacts"]}
    assert made.keys() == {"litellm", "llama_cpp", "model-tiny"}
    assert llama["services"][0]["variables"]["llama_cpp_model"] == f"{made['model-tiny']}/tiny.gguf"
    assert llama["services"][0]["variables"]["llama_cpp_artifact_path"] == made["llama_cpp"]


def test_client_settings_have_the_gateways_address_and_name_its_key(world: World) -> None:
    assert world.command("show", "--client", "openai").code == 4
    world.command("up", "--yes")
    assert world.command("show", "--client", "openai").printed == world.snapshot
    snippet = json.loads(world.command("show", "--client", "opencode").out)
    assert snippet["provider"]["homelab"]["models"]["fast"]["limit"]["context"] == 4096


def test_clients_are_told_of_images_and_of_each_requests_share(world: World, lab: Path) -> None:
    (lab.parent / "eye.gguf").write_bytes(projector_bytes(64))
    engine = "{ model: tiny, mmproj: eye, parallel: 2, api_key: !secret engine_key }"
    text = FILE.replace("{ model: tiny, api_key: !secret engine_key }", engine)
    lab.write_text(text.replace("containers:", '  eye: { source: "file:eye.gguf" }\ncontainers:'))
    assert world.command("up", "--yes").code == 0
    snippet = json.loads(world.command("show", "--client", "opencode").out)
    model = snippet["provider"]["homelab"]["models"]["fast"]
    assert model["limit"] == {"context": 2048, "output": 512}
    assert model["modalities"]["input"] == ["text", "image"]
    assert world.command("show", "--client", "openai").printed == world.snapshot


def test_clients_talk_to_the_engine_where_there_is_no_gateway(world: World, lab: Path) -> None:
    lab.write_text(FILE.partition("  gateway:")[0])
    world.command("up", "--yes")
    assert world.command("show", "--client", "openai").printed == world.snapshot
    lab.write_text("name: homelab\nhosts: { box: { incus: local } }\ncontainers: {}\n")
    assert world.command("show", "--client", "openai").code == 64


TURNS = FILE.replace("incus: local", "incus: local, share: [[llama/llama_cpp, code/llama_cpp]]").replace(
    "  gateway:\n", "  code: { services: { llama_cpp: { model: tiny, hold: 30s } } }\n  gateway:\n"
)
"""Two engines that take turns."""


def test_show_says_who_takes_turns_and_masks_their_key(
    world: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_SHARE_BOX", "key-of-the-members")
    lab.write_text(TURNS)
    file = yaml.safe_load(world.command("show").out)
    assert file["hosts"]["box"]["share"] == [["llama/llama_cpp", "code/llama_cpp"]]
    assert file["containers"]["code"]["services"]["llama_cpp"]["hold"] == "30s"
    answer = world.command("show", "--expanded")
    (code,) = [one for one in yaml.safe_load(answer.out)["instances"] if one["name"] == "code"]
    variables = code["services"][0]["variables"]
    assert variables["llama_cpp_share"][0] == {
        "name": "llama/llama_cpp",
        "url": "http://llama.incus:8080",
        "own": False,
    }
    assert variables["llama_cpp_share_key"] == file["hosts"]["box"]["share_key"]
    assert "key-of-the-members" not in answer.out + str(file) + world.command("graph").out


def test_another_key_of_those_who_take_turns_is_a_reason_to_run_them(
    world: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_text(TURNS)
    assert world.command("plan").printed == world.snapshot
    monkeypatch.setenv("PROVISION_SECRET_SHARE_BOX", "key-of-the-members")
    assert world.command("up", "--yes").code == 0
    assert world.command("plan", "--detailed-exitcode").code == 0
    monkeypatch.setenv("PROVISION_SECRET_SHARE_BOX", "another-key")
    changes = world.command("plan", "--json").of("planned_change")
    assert {one["target"] for one in changes} == {"llama/llama_cpp", "code/llama_cpp"}
    assert {one["meanwhile"] for one in changes} == {"requests wait meanwhile, for up to 2m"}
    assert all("share-box" in one["reason"] for one in changes)
