"""Modules that Ansible has packed are used again as long as nothing has changed that they were packed from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from provisioner.inside.module_server.packed_modules import FOLDERS_KEPT, bring, folder_of, keep
from provisioner.reconcile.runner import ansible_environment

PACKING = "ANSIBALLZ: Creating module"
USING = "ANSIBALLZ: using cached module"
PLAY = {"hosts": "all", "gather_facts": False}
MODULE = """
from ansible.module_utils.basic import AnsibleModule

AnsibleModule({}).exit_json(msg="{SAYS}")
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with one packed module, and what Ansible leaves beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "ansible.modules.copy-ZIP_DEFLATED-none").write_bytes(b"packed")
    (folder / "ansible.modules.copy-ZIP_DEFLATED-none.lock").touch()
    (folder / "ansible.modules.file-ZIP_DEFLATED-none-part").write_bytes(b"half")
    (folder / "ansible_collections.some.where.plugins.modules.one-ZIP_DEFLATED-none").write_bytes(b"of a collection")
    return folder


@pytest.fixture
def kept(run: Path, tmp_path: Path) -> Path:
    """What is kept of it."""
    folder = tmp_path / "cache" / "packed-modules" / "one"
    keep(run, folder)
    return folder


def brought(kept: Path, tmp_path: Path) -> dict[str, bytes]:
    next_run = tmp_path / "next"
    bring(kept, next_run)
    return {file.name: file.read_bytes() for file in next_run.glob("*")}


def test_what_was_packed_is_there_in_the_next_run(kept: Path, tmp_path: Path) -> None:
    assert brought(kept, tmp_path) == {"ansible.modules.copy-ZIP_DEFLATED-none": b"packed"}


def test_nothing_kept_is_nothing_brought(tmp_path: Path) -> None:
    assert brought(tmp_path / "none", tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"pack", b"packed and more"])
def test_what_is_not_whole_is_left_out(kept: Path, tmp_path: Path, content: bytes) -> None:
    (file,) = kept.iterdir()
    file.write_bytes(content)
    assert brought(kept, tmp_path) == {}
    assert list(kept.iterdir()) == [], "it will be packed and kept anew"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_what_others_may_write_is_never_used(kept: Path, tmp_path: Path, mode: int) -> None:
    kept.chmod(mode)
    assert brought(kept, tmp_path) == {}
    kept.chmod(0o700)
    (file,) = kept.iterdir()
    file.chmod(mode)
    assert brought(kept, tmp_path) == {}


def test_what_is_not_a_file_of_ours_is_never_used(kept: Path, tmp_path: Path) -> None:
    (file,) = kept.iterdir()
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert brought(kept, tmp_path) == {}
    link = tmp_path / "link"
    link.symlink_to(kept)
    assert brought(link, tmp_path) == {}


def test_the_folder_is_its_owners_alone(kept: Path) -> None:
    assert kept.stat().st_mode & 0o777 == 0o700
    (file,) = kept.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_states_are_kept(run: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "packed-modules" / str(number) for number in range(FOLDERS_KEPT + 2)]
    for age, folder in enumerate(folders):
        keep(run, folder)
        os.utime(folder, ns=(age, age))
    keep(run, folders[0])
    assert {one.name for one in (tmp_path / "packed-modules").iterdir()} == {"0", "3", "4", "5"}


def test_each_state_of_the_files_has_its_own_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deeper").mkdir(parents=True)
    module = source / "deeper" / "module.py"
    module.write_text("one", encoding="ascii")
    found = {folder_of(tmp_path, "2.19.1", [source])}
    assert folder_of(tmp_path, "2.19.1", [source]) in found
    found.add(folder_of(tmp_path, "2.19.2", [source]))
    os.utime(module, ns=(1, 1))
    found.add(folder_of(tmp_path, "2.19.1", [source]))
    module.write_text("three", encoding="ascii")
    os.utime(module, ns=(1, 1))
    found.add(folder_of(tmp_path, "2.19.1", [source]))
    (source / "other.py").touch()
    found.add(folder_of(tmp_path, "2.19.1", [source]))
    assert len(found) == 5


def said(folder: Path, *arguments: str, **environment: str) -> str:
    """What Ansible says of a run of ``play.yml``."""
    variables = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"hosts": {"here": variables}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    (folder / "ansible.cfg").touch()
    own = {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_DEBUG": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", folder / "hosts.yml", folder / "play.yml", *arguments],
        env=os.environ | ansible_environment() | own | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def write(folder: Path, page: str, *content: object) -> None:
    (folder / page).parent.mkdir(parents=True, exist_ok=True)
    (folder / page).write_text(yaml.safe_dump(list(content)), encoding="utf-8")


def test_ansible_packs_a_module_once_and_again_where_what_is_kept_is_damaged(tmp_path: Path) -> None:
    write(tmp_path, "play.yml", PLAY | {"tasks": [{"ansible.builtin.stat": {"path": "/"}}]})
    assert PACKING in said(tmp_path)
    second = said(tmp_path)
    assert PACKING not in second
    assert USING in second
    (kept,) = (tmp_path / "cache/provisioner/packed-modules").iterdir()
    for file in kept.iterdir():
        file.write_bytes(b"damaged")
    assert PACKING in said(tmp_path)


def named(place: str) -> str:
    return f"says_{Path(place).parts[0]}"


def module(folder: Path, place: str, says: str) -> None:
    """A module in one of the folders that Ansible searches, named after that folder."""
    path = folder / place / f"{named(place)}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MODULE.replace("{SAYS}", f"{place} says {says}"), encoding="utf-8")


def test_a_module_of_any_folder_that_ansible_searches_is_packed_anew_when_it_changes(tmp_path: Path) -> None:
    places = ("library", "roles/beside/library", "configured", "given", "others/role/library")
    tasks: list[dict[str, object]] = [{named(place): {}} for place in places]
    write(tmp_path, "play.yml", PLAY | {"roles": ["beside", "role"], "tasks": tasks})
    arguments = ("-v", "--module-path", str(tmp_path / "given"))
    environment = {"ANSIBLE_LIBRARY": str(tmp_path / "configured"), "ANSIBLE_ROLES_PATH": str(tmp_path / "others")}
    for place in places:
        module(tmp_path, place, "one")
    said(tmp_path, *arguments, **environment)
    assert PACKING not in said(tmp_path, *arguments, **environment)
    for place in places:
        module(tmp_path, place, "two")
    printed = said(tmp_path, *arguments, **environment)
    assert [place for place in places if f"{place} says two" not in printed] == []


def test_a_run_that_was_led_to_another_folder_keeps_nothing(tmp_path: Path) -> None:
    write(tmp_path, "play.yml", {"import_playbook": "elsewhere/play.yml"})
    write(tmp_path, "elsewhere/play.yml", PLAY | {"tasks": [{"says_elsewhere": {}}]})
    for says in ("one", "two"):
        module(tmp_path, "elsewhere/library", says)
        assert f"elsewhere/library says {says}" in said(tmp_path, "-v")
    assert not list((tmp_path / "cache").rglob("*says_elsewhere*"))
