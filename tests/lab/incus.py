"""The lab: a second Incus beside the machine's own, shared by all test runs that are under way.

``python -m tests.lab up`` keeps it after the tests, so that the next run need not wait for it; ``down`` removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.ansible_environment import ansible_environment
from tests.lab import remains
from tests.processes import completed

ROOT = Path(__file__).resolve().parents[2]
RUN = Path("/run/provisioner")
BRING_UP_TIMEOUT_S = 1800
CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Lab:
    """Where the lab is and what it has."""

    state: Path = Path("/var/lib/provisioner-lab")
    bridge: str = "prvlab0"
    subnet: str = "10.89.77.1/24"
    images: tuple[str, ...] = ("debian/12", "debian/13", "debian/12-bare")

    @property
    def socket(self) -> Path:
        """The daemon's unix socket."""
        return self.state / "unix.socket"

    @property
    def environment(self) -> dict[str, str]:
        """What a program must have in its environment to find this Incus instead of the machine's own."""
        return {"INCUS_DIR": str(self.state)}


LAB = Lab()
BESIDE = ("far", "own", "hand")
"""Those that stand beside the lab, often at the same moments as it and as each other."""


def lab_beside(name: str, *images: str) -> Lab:
    """One more Incus with a folder, a bridge and a network that neither the lab nor another of ``BESIDE`` has."""
    subnet = f"10.89.{78 + BESIDE.index(name)}.1/24"
    return Lab(Path(f"/var/lib/provisioner-{name}"), f"prv{name}0", subnet, images)


def reason_to_skip() -> str:
    """Why there can be no lab here, or nothing."""
    if os.geteuid() != 0:
        return "the lab needs root: run the tests as root, or see README"
    status = Path("/proc/self/status").read_text(encoding="ascii")
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    if not capabilities >> CAP_SYS_ADMIN & 1:
        return "the lab needs to mount, which this container's root may not (CAP_SYS_ADMIN)"
    if not Path("/etc/debian_version").exists():
        return "the lab is made for Debian 12 and 13"
    return ""


def prepare(lab: Lab, arguments: Sequence[str] = (), **options: object) -> str:
    """Run ``playbooks/host.yml`` for the lab and give its output; ``CalledProcessError`` with that output else."""
    variables = {
        "incus_host_dir": str(lab.state),
        "incus_host_bridge": lab.bridge,
        "incus_host_subnet": lab.subnet,
        "incus_host_images": lab.images,
        "incus_host_image_cache": str(paths.cache() / "images"),
        **options,
    }
    quiet = {
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
    }
    with _firewall():
        done = completed(
            ["ansible-playbook", str(ROOT / "playbooks/host.yml"), "--extra-vars", json.dumps(variables), *arguments],
            env=os.environ | ansible_environment(ROOT) | quiet,
            timeout_s=BRING_UP_TIMEOUT_S,
        )
    if done.returncode:
        raise RuntimeError(f"Unable to bring up the lab in {lab.state}\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
    return done.stdout


def take_down(lab: Lab) -> None:
    """Remove the lab, whatever state it is in, and nothing else; ``RuntimeError`` names what could not be removed."""
    with _firewall():
        remains.stop_daemon(lab.state, RUN)
        remains.kill_processes(lab.state)
        remains.remove_cgroups(lab.state)
        remains.unmount(lab.state)
        remains.remove_network(lab.bridge)
        remains.remove_folder(lab.state)
        remains.remove_traces(lab.state, RUN)
        remains.stop_lxcfs(RUN)
    left = remains.left(lab.state, lab.bridge)
    if left:
        raise RuntimeError(f"Unable to take down the lab in {lab.state}\nleft: {', '.join(left)}")


def kept_mark(lab: Lab) -> Path:
    """The file that says: leave this lab up after the tests."""
    return RUN / f"{lab.state.name}.keep"


@contextmanager
def shared(lab: Lab) -> Iterator[Lab]:
    """The lab, up; the first of several runs brings it up, the last one takes it down unless it is to be kept.

    Locks on open files end with their process, so that a killed run counts for nothing: what it left is removed first.
    """
    with turn(lab), ExitStack() as use:
        bring_up(lab)
        use.enter_context(_used(lab, fcntl.LOCK_SH))
        later = use.pop_all()
    try:
        yield lab
    finally:
        with turn(lab):
            later.close()
            if not kept_mark(lab).exists():
                take_down_unused(lab)


def bring_up(lab: Lab) -> str:
    """Bring it up and give the play's output; what nobody keeps, or what was killed, is made anew; in one's turn."""
    has_daemon = remains.running(remains.pidfile(lab.state, RUN), remains.INCUSD) is not None
    if not (kept_mark(lab).exists() and has_daemon):
        take_down_unused(lab)
    try:
        return prepare(lab)
    except RuntimeError as error:
        # Packages and images come from servers: of one that fails for a moment half of all tests would fail.
        sys.stderr.write(f"{error}\nTried once more.\n")
        return prepare(lab)


def hold_to_limits(lab: Lab) -> None:
    """Have btrfs count anew what each container uses, where it no longer knows: their limits keep nobody from anything.

    That is so after a sudden end, and with newer kernels after the removal of a large container
    (``drop_subtree_threshold``).
    """
    pool = str(lab.state / "storage-pools/default")
    shown = subprocess.run(["btrfs", "qgroup", "show", pool], capture_output=True, text=True, timeout=60, check=False)
    if "inconsistent" in shown.stderr:
        subprocess.run(["btrfs", "quota", "rescan", "-w", pool], capture_output=True, timeout=300, check=True)


@contextmanager
def turn(lab: Lab) -> Iterator[None]:
    """One at a time brings up or takes down; the others wait."""
    with _locked(RUN / f"{lab.state.name}.turn"):
        yield


@contextmanager
def _firewall() -> Iterator[None]:
    """One lab at a time comes up or goes away: the daemons of all of them write to one table of the firewall."""
    with _locked(RUN / "provisioner-labs.firewall"):
        yield


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def take_down_unused(lab: Lab) -> bool:
    """Take it down unless a test run uses it, and say which; to be called in one's turn."""
    try:
        with _used(lab, fcntl.LOCK_EX | fcntl.LOCK_NB):
            take_down(lab)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _used(lab: Lab, how: int) -> Iterator[None]:
    with (RUN / f"{lab.state.name}.users").open("w") as file:
        fcntl.flock(file, how)
        yield


@contextmanager
def used_by_tests(lab: Lab) -> Iterator[Lab]:
    """The lab, up, and found by every program that is started meanwhile; skips where there can be none."""
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)
    before = os.environ.copy()
    with shared(lab):
        os.environ.pop("INCUS_SOCKET", None)
        os.environ.update(lab.environment)
        try:
            yield lab
        finally:
            os.environ.clear()
            os.environ.update(before)
