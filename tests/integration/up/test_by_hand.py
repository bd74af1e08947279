"""What people do to a lab behind provision's back, and two of them at once: named, mended, or refused in words."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.integration.up.quickstart_lab import Lab
from tests.lab import remains
from tests.lab.incus import RUN, lab_beside, prepare, take_down, turn
from tests.lab.incus import Lab as Incus
from tests.processes import completed, killed_at_end
from tests.waiting import wait_until

TIMEOUT_S = 120
pytestmark = [pytest.mark.incus]

NAME = "hand"
FILE = f"""
name: {NAME}
containers:
  hand-one: {{ cpu: 1, memory: 512MiB }}
"""
PROVISION = str(Path(sys.executable).parent / "provision")
WRONG_S = 600
USER, UID = "provisioner-hand", 54242
WRONG_CLOCK = f"""
import datetime, time
_time, _now = time.time, datetime.datetime
time.time = lambda: _time() + {WRONG_S}
class Wrong(_now):
    @classmethod
    def now(cls, tz=None):
        return _now.now(tz) + datetime.timedelta(seconds={WRONG_S})
datetime.datetime = Wrong
"""
"""A ``sitecustomize`` that makes every Python program's clock go ten minutes fast; timestamps of files stay right."""


@pytest.fixture(scope="module")
def shared(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    yield lab
    lab.write(FILE)
    lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)


@pytest.fixture
def lab(shared: Lab) -> Lab:
    """A lab of one container without services, up."""
    shared.write(FILE)
    for stray in ("hand-one", "hand-other"):
        if shared.incus("list", "--format", "csv", "--columns", "n", f"^{stray}$"):
            shared.incus("config", "set", stray, f"user.provisioner.lab={NAME}")
    shared.succeeded("up", "--yes", "--prune")
    return shared


def changes(lab: Lab) -> set[tuple[str, str]]:
    """What is planned: target and action."""
    ran = lab.provision("plan", "--json")
    return {(line["target"], line["action"]) for line in ran.lines if line["type"] == "planned_change"}


def created(lab: Lab) -> dict[str, str]:
    """When each container of the lab was made."""
    return {one["name"]: one["created_at"] for one in lab.made()}


def test_a_container_that_was_removed_is_made_again(lab: Lab) -> None:
    lab.incus("delete", "--force", "hand-one")
    assert changes(lab) == {("hand-one", "create")}
    assert lab.provision("up", "--yes").code == 0
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_a_container_that_was_renamed_is_an_orphan_and_its_old_name_is_made(lab: Lab) -> None:
    lab.incus("stop", "--force", "hand-one")
    lab.incus("rename", "hand-one", "hand-other")
    ran = lab.provision("plan", "--json")
    assert [line["target"] for line in ran.lines if line["type"] == "orphan"] == ["hand-other"]
    assert changes(lab) == {("hand-one", "create")}
    assert lab.provision("up", "--yes").code == 0
    assert set(created(lab)) == {"hand-one", "hand-other"}


@pytest.mark.parametrize("mark", ["", "somebody-else"])
def test_a_container_whose_mark_is_not_ours_is_left_alone(lab: Lab, mark: str) -> None:
    lab.incus("config", "set", "hand-one", f"user.provisioner.lab={mark}")
    before = json.loads(lab.incus("query", "/1.0/instances/hand-one"))
    for verb in (["up", "--yes"], ["plan"], ["up", "--yes", "--replace", "hand-one"]):
        ran = lab.provision(*verb)
        assert ran.code == 4, verb
        assert "the name is taken" in ran.err
    assert lab.provision("destroy", "--prune", "--yes", "--lab", NAME).code == 0
    assert json.loads(lab.incus("query", "/1.0/instances/hand-one")) == before


def controller(
    lab: Lab, folder: Path, environment: Mapping[str, str] | None = None
) -> AbstractContextManager[subprocess.Popen[str]]:
    """``provision up --yes`` of the same file from another folder, under way until the end of the block."""
    folder.mkdir(exist_ok=True)
    for name in ("homelab.yml", "secrets.env"):
        shutil.copy2(lab.folder / name, folder / name)
    return killed_at_end(
        subprocess.Popen(
            [PROVISION, "up", "--yes"],
            cwd=folder,
            env={**os.environ, **lab.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


@pytest.mark.parametrize("clock", ["right", pytest.param("wrong", marks=pytest.mark.slow)])
def test_of_two_controllers_one_works_and_the_other_names_it(lab: Lab, tmp_path: Path, clock: str) -> None:
    lab.incus("delete", "--force", "hand-one")
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK if clock == "wrong" else "", encoding="utf-8")
    wrong = {"PYTHONPATH": str(tmp_path)}
    with controller(lab, tmp_path / "a", wrong) as one, controller(lab, tmp_path / "b") as other:
        ended = {run.pid: (*run.communicate(timeout=300), run.returncode) for run in (one, other)}
    assert sorted(code for *_, code in ended.values()) == [0, 5], ended
    (winner,) = (pid for pid, (*_, code) in ended.items() if code == 0)
    (words,) = (err for _, err, code in ended.values() if code == 5)
    assert f"pid {winner}" in words
    assert list(created(lab)) == ["hand-one"]
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_a_controller_whose_clock_is_wrong_finds_nothing_to_do(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WRONG_CLOCK, encoding="utf-8")
    environment = {**os.environ, **lab.environment, "PYTHONPATH": str(tmp_path)}
    told = subprocess.check_output(
        [sys.executable, "-c", "import time; print(time.time())"], env=environment, timeout=TIMEOUT_S
    )
    assert float(told) - time.time() == pytest.approx(WRONG_S, abs=5)
    with controller(lab, tmp_path / "a", {"PYTHONPATH": str(tmp_path)}) as run:
        out, err = run.communicate(timeout=300)
    assert (run.returncode, "No changes" in out) == (0, True), out + err


def with_python_in_reach(place: Path) -> list[str]:
    """The beginning of a command line for which Python lies where everybody may go, in mounts of its own.

    A Python in root's home is one that an ordinary user does not have; it stands for the one that the user has.
    """
    python = Path(sys.base_prefix)
    closed = [one for one in reversed(python.parents) if not one.stat().st_mode & stat.S_IXOTH]
    if not closed:
        return []
    script = """
    umask 022
    mount --bind "$2" "$3"
    mount -t tmpfs -o mode=0755 none "$1"
    mkdir -p "$2"
    mount --bind "$3" "$2"
    shift 3
    exec "$@"
    """
    return ["unshare", "--mount", "sh", "-euc", script, "sh", str(closed[0]), str(python), str(place)]


@pytest.fixture
def member(incus_lab: Incus, tmp_path: Path) -> Iterator[list[str]]:
    """The beginning of a command line that runs as a user who is nobody but a member of the socket's group."""
    groups = str(incus_lab.socket.stat().st_gid)
    setpriv = [*with_python_in_reach(tmp_path), "setpriv", "--reuid", str(UID), "--regid", str(UID), "--inh-caps=-all"]
    # By way of a shell: setpriv itself may still look where the user may not.
    asked = [*setpriv, "--groups", groups, "sh", "-c", f"exec {PROVISION} --version"]
    tried = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if tried.returncode:
        pytest.skip(f"other users cannot run {PROVISION}, or the Python behind it: {tried.stderr.strip()}")
    home = Path("/home") / USER
    for left_by_a_killed_run in (["userdel", "--force", "--remove", USER], ["groupdel", USER]):
        subprocess.run(left_by_a_killed_run, check=False, capture_output=True, timeout=TIMEOUT_S)
    subprocess.run(["groupadd", "--gid", str(UID), USER], check=True, timeout=TIMEOUT_S)
    subprocess.run(
        ["useradd", "--uid", str(UID), "--gid", str(UID), "--create-home", "--home-dir", home, USER],
        check=True,
        timeout=TIMEOUT_S,
    )
    try:
        yield [*setpriv, "--groups", groups]
    finally:
        subprocess.run(["userdel", "--force", "--remove", USER], check=True, capture_output=True, timeout=TIMEOUT_S)


def test_a_member_of_the_sockets_group_needs_no_root(member: list[str], incus_lab: Incus) -> None:
    home = pwd.getpwnam(USER).pw_dir
    folder = Path(home) / "lab"
    environment = {"HOME": home, "PATH": os.defpath, "USER": USER, **incus_lab.environment}

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return completed(
            [*member, "sh", "-euc", 'mkdir -p "$1"; cd "$1"; shift; exec "$@"', "sh", str(folder), *arguments],
            env=environment,
            timeout_s=300,
        )

    text = FILE.replace(NAME, "member")
    assert command("sh", "-c", f"echo '{text}' > homelab.yml").returncode == 0
    steps = (["up", "--yes"], ["up", "--yes"], ["exec", "member-one", "--", "true"], ["status"])
    try:
        for step in steps:
            ran = command(PROVISION, *step)
            assert ran.returncode == 0, f"{step}\n{ran.stdout}{ran.stderr}"
    finally:
        ended = command(PROVISION, "destroy", "--prune", "--yes", "--lab", "member")
    assert ended.returncode == 0, ended.stderr
    assert {file.stat().st_uid for file in folder.rglob("*")} == {UID}


@pytest.fixture
def own_incus(incus_lab: Incus) -> Iterator[Incus]:
    """A daemon beside the lab's, which may be stopped: nobody else's containers feel it."""
    assert incus_lab
    own = lab_beside("hand", "debian/12")
    with turn(own):
        take_down(own)
        prepare(own)
        yield own
        take_down(own)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [(signal.SIGTERM, "Stopped"), (signal.SIGKILL, "Running")])
def test_a_daemon_that_ends_in_the_middle_is_told_and_the_next_run_goes_on(
    own_incus: Incus, tmp_path: Path, how: signal.Signals, status: str
) -> None:
    """Killed while it makes a container, Incus itself is left with one that it can neither start nor delete."""
    lab = Lab(tmp_path, own_incus.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with controller(lab, tmp_path / "a") as run:
        wait_until(lambda: status in {one["status"] for one in lab.made()} or run.poll() is not None)
        assert run.poll() is None
        file = remains.pidfile(own_incus.state, RUN)
        pid = remains.running(file, remains.INCUSD)
        assert pid is not None
        os.kill(pid, how)
        wait_until(lambda: remains.running(file, remains.INCUSD) is None)
        prepare(own_incus)
        out, err = run.communicate(timeout=300)
    assert run.returncode == 0 or "Unable to" in err, out + err
    lab.succeeded("up", "--yes")
    assert lab.provision("plan", "--detailed-exitcode").code == 0
