"""A folder of a hub in a lab whose engine reads it: found once, pinned, and held against what the file says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab.opening import Lab, find_files, keep_pins, look_at_models, open_lab
from provisioner.serving.fit import budgets_of
from provisioner.values.errors import InputError
from tests.file_server import FileServer, serving
from tests.folder_files import CONFIG, config, folder_files, taken, write_catalog
from tests.lab_files import files_of, wanted_fleet
from tests.unit.models.test_hub_folder import COMMIT, REPOSITORY, REVISION, StandIn

SOURCE = f"hf:{REPOSITORY}@{REVISION}"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A hub on this machine; labs are opened with a catalog whose engine reads folders."""
    catalog = load_catalog(write_catalog(tmp_path / "roles"))
    monkeypatch.setattr("provisioner.lab.opening.load_catalog", lambda: catalog)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "none"))
    with serving(FileServer()) as server:
        standin = StandIn(server)
        monkeypatch.setenv("HF_ENDPOINT", standin.hub.endpoint)
        monkeypatch.setenv("no_proxy", "*")
        yield standin


def opened(tmp_path: Path, more: str = "") -> Lab:
    file = tmp_path / "homelab.yml"
    file.write_text(f"""\
name: homelab
hosts: {{ box: {{ incus: local }} }}
models:
  m: {{ source: "{SOURCE}"{more} }}
containers:
  engine:
    services:
      tabbyapi: {{ model: m }}
""")
    return open_lab(file)


def test_it_is_found_once_and_pinned_with_every_file(hub: StandIn, tmp_path: Path) -> None:
    lab = opened(tmp_path)
    assert hub.server.seen == [], "who opens a file asks nobody"
    found = find_files(lab)
    (note,) = found.notes
    assert note.startswith(f"Model m is config.json and 6 more (0.00 GB) of {REPOSITORY}, commit {COMMIT[:12]}")
    keep_pins(lab, found.pins)
    pinned = yaml.safe_load(lab.lock_file.read_text())["models"]["m"]
    assert [pinned["file"], *(one["file"] for one in pinned["rest"])] == taken(folder_files())
    assert (pinned["source"], pinned["revision"], pinned["method"]) == (SOURCE, COMMIT, "exl3")
    asked = len(hub.server.seen)
    hub.files[CONFIG] = config("gptq")
    again = opened(tmp_path)
    assert find_files(again).notes == ()
    assert find_files(again).files == found.files
    assert len(hub.server.seen) == asked


def test_its_config_json_is_read_once_and_known_without_asking_after(hub: StandIn, tmp_path: Path) -> None:
    numbers = {"model_type": "qwen3", "max_position_embeddings": 4096}
    hub.files[CONFIG] = json.dumps({**json.loads(config("exl3")), **numbers}).encode()
    hub.serve()
    lab = opened(tmp_path)
    assert lab.resolved.known.headers == {}
    found = find_files(lab)
    looked, said = look_at_models(lab, found.files)
    assert said == []
    assert looked.resolved.known.headers["m"].context == 4096
    keep_pins(lab, found.pins)
    asked = len(hub.server.seen)
    again = opened(tmp_path)
    assert again.resolved.known.headers["m"].context == 4096
    assert look_at_models(again, found.files) == (again, [])
    assert len(hub.server.seen) == asked


def test_a_config_json_that_is_another_one_by_now_is_a_note(hub: StandIn, tmp_path: Path) -> None:
    lab = opened(tmp_path)
    found = find_files(lab)
    hub.files[CONFIG] = config("gptq")
    hub.serve()
    looked, (note,) = look_at_models(lab, found.files)
    assert "what comes is another file than the one that was found there" in note.message
    assert looked.resolved.known.headers == {}


def test_of_a_folder_neither_a_part_nor_a_sum_is_asked(hub: StandIn, tmp_path: Path) -> None:
    lab = opened(tmp_path)
    files = files_of(lab)
    lab, said = look_at_models(lab, files)
    assert said == []
    assert budgets_of(lab, files, {}, 1 << 33) == ()
    assert not any("Range" in one.headers for one in hub.server.seen)
    fleet = wanted_fleet(lab)
    engine = fleet.instances[0].services[-1]
    assert engine.variables["tabbyapi_model"] == fleet.artifacts[0].mounted_at


def test_what_the_configuration_says_is_held_against_the_files_name(hub: StandIn, tmp_path: Path) -> None:
    hub.files[CONFIG] = config("exl2")
    hub.serve()
    with pytest.raises(InputError) as caught:
        find_files(opened(tmp_path))
    assert (
        "homelab.yml:4:8: models.m.source: its config.json says exl2, and its format is exl3. Write format: exl2"
        in caught.value.details
    )
    lab = opened(tmp_path, ", format: exl2")
    keep_pins(lab, find_files(lab).pins)
    assert lab.lock_file.exists()
    with pytest.raises(InputError, match="Unable to use"):
        find_files(opened(tmp_path, ", format: exl3"))


def test_another_revision_is_found_anew(hub: StandIn, tmp_path: Path) -> None:
    lab = opened(tmp_path)
    keep_pins(lab, find_files(lab).pins)
    file = tmp_path / "homelab.yml"
    opened(tmp_path)
    file.write_text(file.read_text().replace(REVISION, "6.00bpw"))
    headers = {"X-Error-Code": "RevisionNotFound"}
    hub.server.pages[f"/api/models/{REPOSITORY}/revision/6.00bpw"] = lambda _seen: (404, headers, b"{}")
    with pytest.raises(InputError) as caught:
        find_files(open_lab(file))
    assert f"homelab.yml:4:8: models.m.source: {REPOSITORY} has no revision 6.00bpw" in caught.value.details
