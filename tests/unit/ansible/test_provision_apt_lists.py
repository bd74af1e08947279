"""Module `provision_apt_lists`: which lists of packages are fresh, and that real apt-get fetches those that are not."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.ansible.modules import provision_apt_lists as module

REPOSITORY = Path(__file__).parents[3]
LISTS, SOURCES = "var/lib/apt/lists", "etc/apt/sources.list.d"
LIST = f"{LISTS}/example.org_debian_dists_bookworm_main_binary-amd64_Packages.lz4"
NOW = 1_800_000_000.0
HOUR_S = 3600


def touched(path: Path, age_s: float) -> None:
    os.utime(path, (NOW - age_s, NOW - age_s))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A system whose lists were fetched a minute ago from sources of last month."""
    for name in (LISTS, SOURCES, "var/lib/apt/periodic"):
        (tmp_path / name).mkdir(parents=True)
    for name in (LIST, "etc/apt/sources.list", f"{SOURCES}/debian.sources"):
        (tmp_path / name).touch()
        touched(tmp_path / name, 30 * 24 * HOUR_S)
    touched(tmp_path / SOURCES, 30 * 24 * HOUR_S)
    touched(tmp_path / LISTS, 60)
    return tmp_path


def empty(root: Path) -> None:
    (root / LIST).unlink()
    touched(root / LISTS, 0)


def name_another_source(root: Path) -> None:
    (root / SOURCES / "more.sources").touch()
    touched(root / SOURCES / "more.sources", 30)
    touched(root / SOURCES, 30)


CASES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "as they are": (lambda _: None, True),
    "emptied": (empty, False),
    "old": (lambda root: touched(root / LISTS, HOUR_S + 1), False),
    "a clock that went back": (lambda root: touched(root / LISTS, -HOUR_S), False),
    "another source": (name_another_source, False),
    "a source that was changed": (lambda root: touched(root / SOURCES / "debian.sources", 30), False),
    "never fetched": (lambda root: shutil.rmtree(root / LISTS), False),
}


@pytest.mark.parametrize(("change", "is_fresh"), CASES.values(), ids=CASES)
def test_lists_are_fresh_where_they_are_there_and_young(
    root: Path, change: Callable[[Path], object], is_fresh: bool
) -> None:
    change(root)
    assert module.is_fresh(root, NOW) is is_fresh


def test_the_stamp_of_apt_counts_too(root: Path) -> None:
    touched(root / LISTS, 2 * HOUR_S)
    (root / "var/lib/apt/periodic/update-success-stamp").touch()
    touched(root / "var/lib/apt/periodic/update-success-stamp", 60)
    assert module.is_fresh(root, NOW)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="there is no apt-get here")
def test_real_apt_fetches_lists_that_were_emptied(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "Packages").write_text("Package: tool\nVersion: 1\nArchitecture: all\nFilename: tool.deb\n\n")
    for name in (f"{LISTS}/partial", SOURCES, "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").touch()
    source = tmp_path / "etc/apt/sources.list"
    source.write_text(f"deb [trusted=yes] file:{archive} ./\n")
    os.utime(source, (1, 1))
    os.utime(tmp_path / SOURCES, (1, 1))
    here = ["-o", f"Dir={tmp_path}", "-o", f"Dir::State::status={tmp_path}/var/lib/dpkg/status"]
    program = ["apt-get", *here, "-o", "APT::Sandbox::User=root"]
    assert not module.is_fresh(tmp_path, time.time()), "its folder is new, and there is nothing in it"
    assert module.refreshed(tmp_path, program) == ""
    assert list((tmp_path / LISTS).glob("*_Packages*"))
    assert module.is_fresh(tmp_path, time.time())


def test_a_lock_is_waited_for_and_what_apt_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LISTS).mkdir(parents=True)
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=lambda: sum(waited))
    monkeypatch.setattr(module, "time", clock)
    program = tmp_path / "apt"
    program.write_text(f"#!/bin/sh\n[ -e {tmp_path}/free ] || {{ echo 'E: Could not get lock /x' >&2; exit 100; }}\n")
    program.chmod(0o755)
    assert module.refreshed(tmp_path, [str(program)]) == "E: Could not get lock /x"
    assert 100 < sum(waited) <= module.LOCK_S
    (tmp_path / "free").touch()
    assert module.refreshed(tmp_path, [str(program)]) == ""
    program.write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    waited.clear()
    assert module.refreshed(tmp_path, [str(program)]) == "E: no network"
    assert sum(waited) <= module.NETWORK_S


def test_no_role_goes_by_the_age_of_the_folder_but_in_builds_which_the_lists_are_refreshed_for() -> None:
    """A build's own files are part of what it is known by: changed, all would be built again."""
    roles = REPOSITORY / "roles"
    by_age = {str(path.relative_to(roles)) for path in roles.rglob("*.yml") if "cache_valid_time" in path.read_text()}
    builds = {name for name in by_age if name.endswith("/tasks/build.yml")}
    assert by_age - builds == {"torch_stack/tasks/install.yml"}, "it makes the venv of a build"
    for play in (REPOSITORY / "playbooks/artifacts.yml", roles / "base/tasks/build_here.yml"):
        before, _, after = play.read_text().partition("provision_apt_lists:")
        assert ("tasks_from: build" in before, "tasks_from: build" in after) == (False, True)
