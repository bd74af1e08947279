"""``eject``: a whole folder or none, without the value of any secret."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from provisioner.eject.inventory import listing
from provisioner.lab.opening import model_files, open_lab
from provisioner.values.events import ApplyProgress, Event
from tests.gguf_bytes import model_bytes
from tests.raising import raising
from tests.unit.cli.conftest import ENGINE_KEY, FILE, GATEWAY_KEY, World


def files(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}


def test_the_folder_is_whole(up: World, tmp_path: Path) -> None:
    assert up.command("eject", "out").ended(0) == up.snapshot
    made = files(tmp_path / "out")
    wanted = {"ansible.cfg", "hosts.yml", "site.yml", "verify.yml", "containers.yml", "README.md", "requirements.txt"}
    assert wanted | {"host_vars/llama.yml", "host_vars/gateway.yml"} <= made
    assert {one.split("/")[1] for one in made if one.startswith("roles/")} == {
        "base",
        "container",
        "litellm",
        "llama_cpp",
        "switch",
    }
    assert {one for one in made if one.startswith("library/")} >= {
        "library/provision_unit.py",
        "library/provision_container.py",
    }
    assert not [one for one in made if "__pycache__" in one]
    plays = yaml.safe_load((tmp_path / "out/site.yml").read_text())
    assert [play["hosts"] for play in plays] == ["containers", "service_llama_cpp", "service_litellm"]
    variables = yaml.safe_load((tmp_path / "out/host_vars/llama.yml").read_text())
    assert variables["container_memory"] == "2GiB"
    folders = [str(Path(one["path"]).parent) for one in variables["container_devices"]]
    assert folders == ["/opt/llama_cpp", str(Path(variables["llama_cpp_model"]).parents[1])]


def test_no_value_of_a_secret_is_in_it(up: World, tmp_path: Path) -> None:
    assert up.command("eject", "out").code == 0
    texts = [(tmp_path / "out" / one).read_bytes() for one in files(tmp_path / "out")]
    assert not [text for text in texts if ENGINE_KEY.encode() in text or GATEWAY_KEY.encode() in text]
    assert any(b"PROVISION_SECRET_GATEWAY_KEY" in text for text in texts)


def test_no_secret_needs_a_value(up: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENGINE_KEY", "GATEWAY_KEY"):
        monkeypatch.delenv(f"PROVISION_SECRET_{name}")
    assert up.command("eject", "out").code == 0
    assert (tmp_path / "out/hosts.yml").exists()


def test_an_empty_folder_is_filled(up: World, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    before = folder.stat().st_ino
    assert up.command("eject", "out").code == 0
    assert (folder / "site.yml").exists()
    assert folder.stat().st_ino == before, "somebody may stand in it"


def test_as_data(up: World, tmp_path: Path) -> None:
    (result,) = up.command("eject", "out", "homelab.yml", "--json").of("result")
    assert set(result["files"]) == files(tmp_path / "out")


def test_what_is_there_is_never_touched(up: World, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("out", "file", "no/out"):
        assert up.command("eject", name).ended(4) == up.snapshot
    assert files(tmp_path / "out") == {"mine"}


@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_half_made_is_left(
    up: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    monkeypatch.setattr(shutil, "copytree", raising(OSError(28, "No space left on device")))
    if is_there:
        (tmp_path / "out").mkdir()
    before = sorted(one.name for one in tmp_path.iterdir())
    assert up.command("eject", "out").ended(1) == up.snapshot
    assert sorted(one.name for one in tmp_path.iterdir()) == before
    assert files(tmp_path / "out") == set()


def test_what_was_moved_into_a_folder_goes_back_when_the_rest_cannot(
    up: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if Path(target) == tmp_path / "out/roles":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    assert up.command("eject", "out").ended(1) == up.snapshot
    assert list((tmp_path / "out").iterdir()) == []


def test_a_container_that_is_not_there_cannot_be_ejected(world: World, tmp_path: Path, lab: Path) -> None:
    assert world.command("eject", "out").ended(4) == world.snapshot
    assert not (tmp_path / "out").exists()
    assert lab.read_text() == FILE


def test_a_container_that_was_moved_is_told_with_its_place(up: World, tmp_path: Path) -> None:
    del up.host.containers["gateway"]
    up.host.elsewhere["gateway"] = "on node pve2, as CT 105"
    assert up.command("eject", "out").ended(4) == up.snapshot
    assert not (tmp_path / "out").exists()


def test_one_folder_is_named(world: World) -> None:
    assert world.command("eject").ended(64) == world.snapshot
    assert world.command("eject", "one", "two").code == 64


def test_how_far_a_large_model_is_read_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tiny.gguf").write_bytes(model_bytes())
    Path("homelab.yml").write_text(FILE.replace("builtin:tiny", "file:tiny.gguf"), encoding="utf-8")
    world.done("up", "--yes")
    monkeypatch.setattr(model_files, "EACH_S", 0.0)
    words = "reading all of it for its sha256: 100 %"
    os.utime("tiny.gguf", (1, 1))  # what was not touched is not read again
    (line,) = world.command("eject", "out", "--json").of("apply_progress")
    assert (line["target"], line["message"]) == ("tiny.gguf", words)
    os.utime("tiny.gguf", (2, 2))
    told: list[Event] = []
    listing(open_lab(Path("homelab.yml"), needs="none"), {"box": world.host}, told.append)
    assert told[0] == ApplyProgress("tiny.gguf", words)
