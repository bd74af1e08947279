"""Models from a hub and from addresses: what validate, plan and up say, and when the lock file is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.file_server import FileServer, serving
from tests.gguf_bytes import model_bytes
from tests.unit.cli.conftest import World
from tests.unit.models.test_hub import COMMIT, PAGE, REPOSITORY, page_of, sibling

TOKEN = "hf_CANARY0b1c2d"
SOURCE = f"hf:{REPOSITORY}:Q4_K_M"


def write(lab: Path, source: str, more: str = "") -> None:
    lab.write_text(f"""\
name: homelab
hosts: {{ box: {{ incus: local }} }}
models:
  small: {{ source: "{source}"{more} }}
containers:
  llama:
    services:
      llama_cpp: {{ model: small }}
""")


def holds(hub: FileServer, *numbers: int) -> None:
    """The repository's only file now hashes to one that bears the number."""
    body = json.dumps(page_of(*(sibling("Small-Q4_K_M.gguf", number) for number in numbers))).encode()
    hub.pages[PAGE] = lambda _seen: (200, {}, body)


@pytest.fixture
def hub(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A hub on this machine, and a file that takes a model from it."""
    write(lab, SOURCE)
    with serving(FileServer(model_bytes())) as server:
        holds(server, 1)
        monkeypatch.setenv("HF_ENDPOINT", server.address.rpartition("/models")[0])
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("no_proxy", "*")
        yield server


def asked(hub: FileServer) -> int:
    """How often the hub was asked which file is meant."""
    return sum(one.path.startswith(PAGE) for one in hub.seen)


def heads(hub: FileServer) -> int:
    """How often it was asked for a file's head."""
    return len(hub.seen) - asked(hub)


def pins(lab: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = yaml.safe_load(lab.with_suffix(".lock").read_text())["models"]
    return found


def test_validate_asks_nobody(world: World, hub: FileServer) -> None:
    assert world.command("validate").code == 0
    assert hub.seen == []


def test_plan_says_what_it_found_and_writes_nothing(world: World, hub: FileServer, lab: Path) -> None:
    answer = world.done("plan")
    assert answer.after_plan == world.snapshot
    assert TOKEN not in answer.printed
    assert asked(hub) == 1
    assert not lab.with_suffix(".lock").exists()


def test_up_pins_it_and_the_next_run_asks_nobody(world: World, hub: FileServer, lab: Path) -> None:
    assert world.command("up", "--yes").code == 0
    assert pins(lab)["small"] == {
        "source": SOURCE,
        "revision": COMMIT,
        "file": "Small-Q4_K_M.gguf",
        "sha256": f"{1:064x}",
        "size": 5_000_000_000,
    }
    assert TOKEN not in lab.with_suffix(".lock").read_text()
    holds(hub, 2)
    before = lab.with_suffix(".lock").read_bytes()
    world.done("plan", "--detailed-exitcode")
    assert world.command("up", "--yes").code == 0
    assert lab.with_suffix(".lock").read_bytes() == before
    assert asked(hub) == 1


def test_a_pin_that_was_removed_is_found_anew(world: World, hub: FileServer, lab: Path) -> None:
    world.command("up", "--yes")
    holds(hub, 2)
    lab.with_suffix(".lock").unlink()
    assert world.command("plan", "--detailed-exitcode").code == 2
    assert world.command("up", "--yes").code == 0
    assert pins(lab)["small"]["sha256"] == f"{2:064x}"


@pytest.mark.usefixtures("hub")
def test_a_lock_file_that_was_lost_is_written_though_nothing_changes(world: World, lab: Path) -> None:
    world.command("up", "--yes")
    lab.with_suffix(".lock").unlink()
    assert world.command("up", "--yes").code == 0
    assert set(pins(lab)) == {"small"}


def test_another_source_is_found_anew_and_a_former_models_pin_goes(world: World, hub: FileServer, lab: Path) -> None:
    world.command("up", "--yes")
    write(lab, f"hf:{REPOSITORY}:q4_k_m")
    assert world.command("up", "--yes").code == 0
    assert pins(lab)["small"]["source"] == f"hf:{REPOSITORY}:q4_k_m"
    assert asked(hub) == 2
    write(lab, "builtin:tiny")
    assert world.command("up", "--yes").code == 0
    assert pins(lab) == {}


def test_a_hash_in_the_file_must_be_the_hubs(world: World, hub: FileServer, lab: Path) -> None:
    write(lab, SOURCE, f', sha256: "{"c" * 64}"')
    refused = world.command("plan").ended(64)
    assert f"hashes to {1:064x} there, and sha256 is {'c' * 64}" in refused
    assert refused == world.snapshot
    assert asked(hub) == 1


@pytest.mark.parametrize("verb", [["plan"], ["up", "--yes"], ["status"], ["show", "--expanded"]], ids=" ".join)
def test_a_quantisation_that_is_not_there_names_its_line(
    world: World, hub: FileServer, lab: Path, verb: list[str]
) -> None:
    write(lab, f"hf:{REPOSITORY}:Q9_K")
    assert world.command(*verb).ended(64) == world.snapshot
    assert asked(hub) == 1
    assert not lab.with_suffix(".lock").exists()
    assert world.host.containers == {}


@pytest.mark.usefixtures("hub")
def test_a_hub_that_does_not_answer_refuses_before_anything_is_touched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert world.command("up", "--yes").ended(4) == world.snapshot
    assert world.host.containers == {}


def test_a_damaged_lock_file_is_refused(world: World, hub: FileServer, lab: Path) -> None:
    lab.with_suffix(".lock").write_text("version: 7\n")
    assert world.command("up", "--yes").ended(64) == world.snapshot
    assert hub.seen == []


def test_verbs_that_need_no_model_ask_nobody(world: World, hub: FileServer) -> None:
    world.command("up", "--yes")
    count = len(hub.seen)
    for verb in (["down", "--yes"], ["destroy", "--yes", "--lab", "homelab"], ["graph"]):
        assert world.command(*verb).code == 0, verb
    assert len(hub.seen) == count


def test_the_token_is_shown_nowhere(world: World, hub: FileServer) -> None:
    for verb in (["plan", "--json"], ["show", "--expanded"], ["up", "--yes", "--json"], ["status", "--json"]):
        answer = world.done(*verb)
        assert TOKEN not in answer.out + answer.err
    assert hub.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"


def test_an_address_without_a_hash_is_refused_with_how_to_get_it(world: World, lab: Path) -> None:
    write(lab, "https://host/a.gguf")
    assert world.command("validate").ended(64) == world.snapshot


def test_an_address_with_its_hash_needs_no_hub_and_no_lock_file(world: World, lab: Path) -> None:
    write(lab, "https://host/a.gguf", f', sha256: "{"a" * 64}"')
    assert world.command("up", "--yes").code == 0
    assert not lab.with_suffix(".lock").exists()


CACHED = "{ model: small, kv_cache: { k: q8_0, v: q8_0 } }"


def packs_its_cache(lab: Path) -> None:
    lab.write_text(lab.read_text().replace("{ model: small }", CACHED))


def test_the_head_of_a_file_elsewhere_refuses_what_no_server_could_run_with(
    world: World, hub: FileServer, lab: Path
) -> None:
    hub.content = model_bytes(attention__key_length=20)
    packs_its_cache(lab)
    assert world.command("validate").code == 0, "nobody is asked"
    for verb in (["plan"], ["up", "--yes"]):
        assert world.command(*verb).ended(64) == world.snapshot
    assert heads(hub) == 1
    assert world.host.containers == {}


def test_validate_knows_what_was_read_once(world: World, hub: FileServer, lab: Path) -> None:
    hub.content = model_bytes(attention__key_length=20)
    assert world.command("up", "--yes").code == 0
    packs_its_cache(lab)
    count = len(hub.seen)
    assert world.command("validate").printed == world.snapshot
    assert len(hub.seen) == count


@pytest.mark.usefixtures("hub")
def test_what_a_model_was_trained_with_is_said_before_it_is_downloaded(world: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("{ model: small }", "{ model: small, context: 9000 }"))
    answer = world.done("plan")
    assert answer.after_plan == world.snapshot


def test_a_head_that_does_not_come_is_a_note(world: World, hub: FileServer, lab: Path) -> None:
    hub.content = b""
    packs_its_cache(lab)
    answer = world.done("plan")
    assert answer.after_plan == world.snapshot


@pytest.mark.usefixtures("hub")
def test_a_damaged_lock_file_does_not_keep_a_lab_from_being_destroyed(world: World, lab: Path) -> None:
    assert world.command("up", "--yes").code == 0
    lab.with_suffix(".lock").write_text("version: 7\n")
    assert world.command("destroy", "--yes", "--lab", "homelab").code == 0
