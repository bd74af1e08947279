"""Services that are a folder of ``roles/`` and nothing else: they are taken, reached, and nothing untrue is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from provisioner.catalog import load_catalog
from provisioner.lab.opening import open_lab
from provisioner.values.errors import ExitCode, ProvisionError
from provisioner.values.state import Secret
from tests.case_files import read_cases
from tests.folder_files import folder_files, write_folder
from tests.graphics_cards import RTX_3060
from tests.lab_files import wanted_fleet
from tests.scratch_roles import linked_roles
from tests.unit.cli.conftest import GATEWAY_KEY, World

CASES = read_cases("foreign_roles")

SPEECH, ENGINE, APPLICATION = "heron", "falcon", "magpie"
PORTS = {SPEECH: 7001, ENGINE: 7002, APPLICATION: 7003}
PAGE: dict[str, Any] = {"health": "/health", "defaults": {"memory": "1GiB", "disk": "5GiB"}, "stampable": True}
PAGES: dict[str, dict[str, Any]] = CASES["pages"]
OPTIONS: dict[str, dict[str, Any]] = {
    SPEECH: {},
    ENGINE: {"model": {"type": "path", "required": True}},
    APPLICATION: {
        "backend": {"type": "str", "required": True},
        "backend_key": {"type": "str", "default": "", "no_log": True},
    },
}
FILE: str = CASES["file"]
BIRD_KEY = "a-key-of-a-bird-a3c9"
REASON = "its role does not say what it computes on"


def write_role(roles: Path, role: str, page: dict[str, Any], options: dict[str, Any]) -> None:
    """The two pages of a role, and nothing else."""
    port = {"type": "int", "default": PORTS[role]}
    all_options = {"port": port, "listen": {"type": "str", "default": "127.0.0.1"}, **options}
    specs = {"main": {"options": {f"{role}_{name}": option for name, option in all_options.items()}}}
    whole = {**PAGE, **page, "unit": f"{role}.service", "port": PORTS[role], "internal": ["listen"]}
    meta = roles / role / "meta"
    meta.mkdir(parents=True, exist_ok=True)
    (meta / "service.yml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    (meta / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": specs}), encoding="utf-8")


@pytest.fixture
def roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's roles and three of somebody else."""
    folder = linked_roles(tmp_path, monkeypatch)
    for role, page in PAGES.items():
        write_role(folder, role, page, OPTIONS[role])
    return folder


@pytest.fixture
def lab(tmp_path: Path, roles: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a lab with them, in the folder that commands run in."""
    assert roles.is_dir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PROVISION_SECRET_GATEWAY_KEY", GATEWAY_KEY)
    file = tmp_path / "homelab.yml"
    file.write_text(FILE, encoding="utf-8")
    return file


@pytest.fixture
def world(lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A host with one card."""
    assert lab.exists()
    made = World(monkeypatch)
    made.host.cards.there = (RTX_3060,)
    return made


def test_they_are_taken_planned_and_made(world: World) -> None:
    assert world.command("validate").code == 0
    planned = world.done("plan")
    for name in ("bird", "fast", "page"):
        assert name in planned.out
    world.done("up", "--yes")
    assert {f"service_{role}" for role in PAGES} <= {one.split("/")[0] for _, hosts in world.played for one in hosts}
    assert world.command("plan", "--detailed-exitcode").code == 0


def test_the_gateway_offers_what_they_speak_and_compute(world: World) -> None:
    (result,) = world.command("show", "--expanded", "--json").of("result")
    services = {one["role"]: one for each in result["value"]["instances"] for one in each["services"]}
    told = services["litellm"]["variables"]
    assert [(one["name"], one["model"], one["api_base"], one["voice"]) for one in told["litellm_speech"]] == [
        ("tts", "openai/kokoro", "http://voice.incus:8880/v1", "af_heart"),
        ("tts-bird", "openai/heron", "http://bird.incus:7001/v1", ""),
    ]
    deployments = told["litellm_routes"]["deployments"]
    assert {(one["model_name"], one["api_base"]) for one in deployments} == {
        (name, "http://fast.incus:7002/v1") for name in ("quick", "tiny")
    }
    assert set(services["litellm"]["needs"]) == {"voice/kokoro", "bird/heron", "fast/falcon"}


def test_the_application_gets_the_gateways_address_and_key(lab: Path) -> None:
    services = {one.role: one for each in wanted_fleet(open_lab(lab)).instances for one in each.services}
    variables = services[APPLICATION].variables
    assert variables["magpie_backend"] == "http://gateway.incus:4000"
    key = variables["magpie_backend_key"]
    assert isinstance(key, Secret)
    assert key.reveal() == GATEWAY_KEY
    assert services[APPLICATION].needs == ("gateway/litellm",)


@pytest.mark.parametrize("verb", CASES["no output has the key"], ids=" ".join)
def test_no_output_has_the_key(world: World, lab: Path, verb: tuple[str, ...]) -> None:
    assert verb[0] in ("plan", "up") or world.command("up", "--yes").code == 0
    for more in ((), ("--json",)):
        answer = world.command(*verb, *more)
        assert answer.code in (0, ExitCode.VERIFICATION_FAILED), answer.err
        assert answer.out
        assert GATEWAY_KEY not in answer.out + answer.err
    written = [one for one in lab.parent.rglob("*") if one.is_file() and not one.is_symlink()]
    assert [one for one in written if GATEWAY_KEY.encode() in one.read_bytes()] == []
    assert all(GATEWAY_KEY not in inventory for inventory in world.inventories)


def test_a_service_without_a_key_gives_none(lab: Path) -> None:
    lab.write_text(FILE.replace("backend: gateway/litellm", "backend: fast/falcon"), encoding="utf-8")
    services = {one.role: one for each in wanted_fleet(open_lab(lab)).instances for one in each.services}
    assert services[APPLICATION].variables["magpie_backend"] == "http://fast.incus:7002"
    assert services[APPLICATION].variables["magpie_backend_key"] == ""


def test_nobody_writes_the_key_of_another_service(world: World, lab: Path) -> None:
    text = FILE.replace("backend: gateway/litellm", "backend: gateway/litellm, backend_key: !secret gateway_key")
    lab.write_text(text, encoding="utf-8")
    answer = world.command("validate")
    assert answer.code == 64
    assert "magpie.backend_key: an option that is filled in from the rest of the file" in answer.err


@pytest.mark.parametrize(("page", "option", "words"), CASES["a page whose key goes astray is refused"])
def test_a_page_whose_key_goes_astray_is_refused(
    roles: Path, page: dict[str, Any], option: dict[str, Any] | None, words: str
) -> None:
    options = OPTIONS[APPLICATION] | ({"backend_key": option} if option else {})
    write_role(roles, APPLICATION, PAGES[APPLICATION] | page, options)
    with pytest.raises(ProvisionError, match=f"pages of role {APPLICATION}") as raised:
        load_catalog(roles)
    assert words in raised.value.details


def processors(world: World) -> dict[str, tuple[str, str]]:
    """What computes for each service, and why we say so."""
    return {
        f"{container['name']}/{one['role']}": (one["processor"], one["why"])
        for container in world.command("status", "--json").of("container")
        for one in container["services"]
    }


def test_status_does_not_know_what_a_foreign_engine_computes_on(world: World) -> None:
    assert world.command("up", "--yes").code == 0
    found = processors(world)
    assert found["fast/falcon"] == ("?", REASON)
    assert found["bird/heron"] == ("CPU", "its container has no card")
    answer = world.command("status")
    (row,) = [line.split() for line in answer.out.splitlines() if line.startswith("fast ")]
    assert row[-2] == "?"
    assert f"fast/falcon: ?: {REASON}" in answer.out


def test_status_does_not_say_cpu_of_a_card_that_is_gone(world: World) -> None:
    assert world.command("up", "--yes").code == 0
    world.host.cards.there = ()
    assert processors(world)["fast/falcon"] == ("?", REASON)


BESIDE = FILE.replace("fast: {", "llama: { gpu: any, services: { llama_cpp: { model: tiny } } }\n  fast: {")
UNKNOWN = ExitCode.VERIFICATION_FAILED
UNDECIDED = {
    "card of the host": (FILE, 12, (), UNKNOWN),
    "told memory": (FILE, 12, ("--memory", "8GiB"), UNKNOWN),
    "a card of unknown memory": (FILE, 0, (), ExitCode.DONE),
    "too much without the unknown one": (BESIDE, 12, ("--memory", "1MiB"), ExitCode.REFUSED),
    "beside the unknown one": (BESIDE, 12, ("--memory", "8GiB"), UNKNOWN),
    "an application with a card": (FILE.replace("page: {", "page: { gpu: any,"), 12, (), UNKNOWN),
}


@pytest.mark.parametrize("case", UNDECIDED.values(), ids=UNDECIDED)
def test_fit_does_not_decide_what_nobody_knows(
    world: World, lab: Path, case: tuple[str, int, tuple[str, ...], ExitCode], snapshot: SnapshotAssertion
) -> None:
    text, gib, arguments, code = case
    lab.write_text(text, encoding="utf-8")
    world.host.cards.there = (replace(RTX_3060, memory=gib * 2**30),)
    answer = world.command("fit", *arguments)
    assert answer.code == code, answer.err
    assert "it fits" not in answer.out.replace("whether it fits is not known", "")
    assert answer.out == snapshot
    (result,) = world.command("fit", *arguments, "--json").of("result")
    card = result["cards"][0]
    unknown = {one["unknown"]: one["total"] for one in card["services"] if one["unknown"]}
    assert unknown["nobody knows what Falcon takes of a card"] is None
    assert text == BESIDE or card["total"] is None, "of one engine alone something is known"
    assert code == ExitCode.REFUSED or (card["contexts"], card["advice"]) == ([], [])


def test_clients_of_foreign_speech_alone_are_told_no_voice(world: World, lab: Path) -> None:
    lab.write_text(
        "name: homelab\nhosts: { box: { incus: local } }\ncontainers: { bird: { services: { heron: {} } } }\n",
        encoding="utf-8",
    )
    assert world.command("up", "--yes").code == 0
    told = world.command("show", "--client", "openai")
    assert "# speech: model heron\n" in told.out, told.err
    assert "AUDIO_TTS_VOICE" not in world.command("show", "--client", "openwebui").out


@pytest.fixture
def closed(roles: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab whose speech asks for a key."""
    options = {"api_key": {"type": "str", "default": "", "no_log": True}}
    write_role(roles, SPEECH, PAGES[SPEECH] | {"key_option": "api_key"}, options)
    monkeypatch.setenv("PROVISION_SECRET_BIRD_KEY", BIRD_KEY)
    lab.write_text(FILE.replace("heron: {}", "heron: { api_key: !secret bird_key }"), encoding="utf-8")
    return lab


def test_the_gateway_gets_the_key_of_what_speaks(world: World, closed: Path) -> None:
    services = {one.role: one for each in wanted_fleet(open_lab(closed)).instances for one in each.services}
    without, with_key = services["litellm"].variables["litellm_speech"]
    assert "api_key" not in without
    assert isinstance(with_key["api_key"], Secret)
    assert with_key["api_key"].reveal() == BIRD_KEY
    assert world.command("up", "--yes").code == 0
    for verb in (("show", "--expanded"), ("plan", "--json"), ("status",)):
        answer = world.done(*verb)
        assert BIRD_KEY not in answer.out + answer.err
    assert all(BIRD_KEY not in inventory for inventory in world.inventories)


def test_clients_of_speech_alone_are_told_the_name_of_its_key(world: World, closed: Path) -> None:
    page = "containers: { bird: { services: { heron: { api_key: !secret bird_key } } } }\n"
    closed.write_text(f"name: homelab\nhosts: {{ box: {{ incus: local }} }}\n{page}", encoding="utf-8")
    assert world.command("up", "--yes").code == 0
    assert 'OPENAI_API_KEY="$PROVISION_SECRET_BIRD_KEY"' in world.command("show", "--client", "openai").out


def test_a_screen_that_is_a_role_alone_can_be_opened(world: World, roles: Path, lab: Path) -> None:
    write_role(roles, APPLICATION, {"title": "Magpie", "stage": "app", "protocol": "rdp"}, {})
    page = "containers: { page: { services: { magpie: {} } } }\n"
    lab.write_text(f"name: homelab\nhosts: {{ box: {{ incus: local }} }}\n{page}", encoding="utf-8")
    assert world.command("up", "--yes").code == 0
    world.done("open", "-o", "page.rdp")
    lines = (lab.parent / "page.rdp").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(("full address", "username", "redirectclipboard"))] == [
        "full address:s:192.0.2.2:7003",
        "redirectclipboard:i:0",
    ]


def test_an_engine_is_asked_for_the_name_that_the_file_gives_its_model(world: World, roles: Path, lab: Path) -> None:
    references = {"model": {"kind": "model", "formats": ["gguf"], "name_to": "served_as"}}
    options = OPTIONS[ENGINE] | {"served_as": {"type": "str", "default": ""}}
    write_role(roles, ENGINE, PAGES[ENGINE] | {"references": references}, options)
    names = {"model: tiny": "openai/tiny", "model: tiny, served_as: swift": "openai/swift"}
    for written, model in names.items():
        lab.write_text(FILE.replace("model: tiny", written), encoding="utf-8")
        services = {one.role: one for each in wanted_fleet(open_lab(lab)).instances for one in each.services}
        deployments = services["litellm"].variables["litellm_routes"]["deployments"]
        assert {one["model"] for one in deployments} == {model}
    assert world.command("validate").code == 0


OWN = """\
name: homelab
hosts: { box: { incus: local } }
models: { small: { source: "dir:small" } }
containers:
  voice: { gpu: any, services: { kokoro: {} } }
  tabby:
    gpu: any
    services:
      tabbyapi: { model: small, api_key: !secret gateway_key, admin_key: !secret admin_key }
"""


@pytest.fixture
def own(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab of two of our own services whose proofs do not note what computed."""
    monkeypatch.setenv("PROVISION_SECRET_ADMIN_KEY", "an-admin-key-of-its-own")
    write_folder(lab.parent / "small", folder_files("exl3"))
    lab.write_text(OWN, encoding="utf-8")
    return lab


def test_status_names_the_device_of_kokoro_and_tabbyapi_and_says_that_nothing_proves_it(
    world: World, own: Path
) -> None:
    assert own.exists()
    assert world.command("up", "--yes").code == 0
    unproven = ("device named, unproven", "its proof does not note what computed")
    assert processors(world) == {"voice/kokoro": unproven, "tabby/tabbyapi": unproven}
    rows = [line for line in world.command("status").out.splitlines() if line.startswith(("voice ", "tabby "))]
    assert [row for row in rows if "device named, unproven" not in row] == []
    assert len(rows) == 2


def test_fit_adds_up_what_kokoro_takes_and_does_not_know_that_of_tabbyapi(
    world: World, own: Path, snapshot: SnapshotAssertion
) -> None:
    assert own.exists()
    answer = world.command("fit")
    assert answer.code == ExitCode.VERIFICATION_FAILED, answer.err
    assert answer.out == snapshot
    assert "it fits" not in answer.out.replace("whether it fits is not known", "")
