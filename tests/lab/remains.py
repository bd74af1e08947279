"""What an Incus leaves on a machine, and how to be rid of it: each function removes one kind of thing.

Nothing that belongs to another Incus of the machine is touched. A process is known by what it runs, never by its name
alone: a number in a file may be somebody else's by now, and a zombie has no program.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TIMEOUT_S = 60
INCUSD = "/usr/libexec/incus/incusd"
LXCFS = "/usr/bin/lxcfs"
LXCFS_MOUNT = Path("/var/lib/lxcfs")
CGROUPS = Path("/sys/fs/cgroup")
STOP_TIMEOUT_S = 120
TABLE = ("inet", "incus")


def pidfile(state: Path, run: Path) -> Path:
    """Where the number of the lab's daemon is written (``roles/incus_host/files/start_incus.sh``)."""
    return run / f"{str(state).strip('/').replace('/', '-')}.pid"


def running(file: Path, program: str) -> int | None:
    """The process of a pidfile when it lives and runs ``program``, or None."""
    if not file.exists():
        return None
    pid = int(file.read_text(encoding="ascii"))
    return pid if _program(pid) == program else None


def stop_daemon(state: Path, run: Path) -> None:
    """Stop all containers and the daemon in good order; one that does not end in time is killed."""
    pid = running(pidfile(state, run), INCUSD)
    if pid is None:
        return
    environment = os.environ | {"INCUS_DIR": str(state)}
    for command in (["stop", "--all", "--all-projects", "--force"], ["admin", "shutdown", "--timeout", "60"]):
        # what fails here is dealt with below, by force
        subprocess.run(["incus", *command], env=environment, capture_output=True, timeout=STOP_TIMEOUT_S, check=False)
    if not _wait_until(lambda: _program(pid) != INCUSD, 30):
        os.kill(pid, signal.SIGKILL)
        _wait_until(lambda: _program(pid) != INCUSD, 10)


def kill_processes(state: Path) -> None:
    """Kill what a dead daemon left: containers and their monitors, DNS and port forwarders."""
    for pid in list(_processes(state)):
        victims = [*_children(pid), pid] if _is_monitor(_arguments(pid), state) else [pid]
        for victim in victims:
            _kill(victim)
    _wait_until(lambda: not list(_processes(state)), 30)


def remove_cgroups(state: Path) -> None:
    """Remove the control groups of killed containers; a group in which something goes on running is another Incus's."""
    names = [entry.name for entry in state.glob("containers/*")]
    # where a group of that name was left before, LXC takes the name with a number
    patterns = [f"lxc.{kind}.{name}{n}" for name in names for kind in ("payload", "monitor") for n in ("", "-[0-9]*")]
    # v1 has a tree for each controller, v2 has one
    for group in [group for pattern in patterns for tree in ("", "*/") for group in CGROUPS.glob(tree + pattern)]:
        if _wait_until(lambda group=group: not _members(group), 5):  # type: ignore[misc]
            _remove_tree(group)


def unmount(state: Path) -> None:
    """Unmount everything below the folder, deepest first, and detach its loop devices."""
    for point in sorted(_mounts(state), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True, timeout=TIMEOUT_S)
    for device in _loops(state):
        # one whose last user goes with the unmount detaches itself meanwhile
        subprocess.run(["losetup", "--detach", device], capture_output=True, check=False, timeout=TIMEOUT_S)
    _wait_until(lambda: not list(_loops(state)), 30)


def remove_network(bridge: str) -> None:
    """Remove the bridge and its chains of the table that all Incus daemons of a machine share; the table when empty."""
    if Path("/sys/class/net", bridge).exists():
        subprocess.run(["ip", "link", "delete", bridge], check=True, timeout=TIMEOUT_S)
    chains = _chains()
    for chain in (chain for chain in chains if chain.endswith(f".{bridge}")):
        subprocess.run(["nft", "delete", "chain", *TABLE, chain], check=True, timeout=TIMEOUT_S)
    if chains and not _chains():
        subprocess.run(["nft", "delete", "table", *TABLE], check=True, timeout=TIMEOUT_S)


def remove_folder(state: Path) -> None:
    """Delete the daemon's folder, unless something is still mounted below it."""
    if _mounts(state):
        raise RuntimeError(f"Unable to delete {state}\nstill mounted: {', '.join(_mounts(state))}")
    if state.exists():
        shutil.rmtree(state)


def remove_traces(state: Path, run: Path) -> None:
    """Delete the pidfile and the logs."""
    file = pidfile(state, run)
    file.unlink(missing_ok=True)
    for log in Path("/var/log/provisioner").glob(f"{file.stem}.*"):
        log.unlink()


def stop_lxcfs(run: Path) -> None:
    """Stop the lxcfs that was started for the lab, when no other Incus of the machine can be using it."""
    file = run / "lxcfs.pid"
    pid = running(file, LXCFS)
    if pid is None or any(_program(int(entry.name)) == INCUSD for entry in _proc()):
        return
    os.kill(pid, signal.SIGTERM)
    _wait_until(lambda: _program(pid) != LXCFS, 10)
    if os.path.ismount(LXCFS_MOUNT):
        subprocess.run(["umount", "--lazy", str(LXCFS_MOUNT)], check=True, timeout=TIMEOUT_S)
    file.unlink()


def left(state: Path, bridge: str) -> list[str]:
    """What is still there, in words."""
    found = [f"process {pid} ({' '.join(_arguments(pid))[:60]})" for pid in _processes(state)]
    found += [f"mount {point}" for point in _mounts(state)]
    found += [f"loop device {device}" for device in _loops(state)]
    found += [f"chain {chain}" for chain in _chains() if chain.endswith(f".{bridge}")]
    found += [f"bridge {bridge}"] if Path("/sys/class/net", bridge).exists() else []
    return found + ([f"folder {state}"] if state.exists() else [])


def _members(group: Path) -> str:
    return "".join(file.read_text(encoding="ascii") for file in group.rglob("cgroup.procs"))


def _remove_tree(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        Path(folder).rmdir()


def _proc() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _processes(state: Path) -> Iterator[int]:
    for pid in (int(entry.name) for entry in _proc()):
        arguments = _arguments(pid)
        helper = Path(_program(pid)).name in {"incusd", "dnsmasq"}
        if _is_monitor(arguments, state) or (helper and any(f"{state}/" in argument for argument in arguments)):
            yield pid


def _is_monitor(arguments: list[str], state: Path) -> bool:
    return " ".join(arguments).startswith(f"[lxc monitor] {state}/")


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:  # it ended meanwhile
        return []


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:  # it ended meanwhile
        return []


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:  # it ended, or is a kernel thread
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _mounts(state: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [point for point in (line.split()[1] for line in lines) if point.startswith(f"{state}/")]


def _loops(state: Path) -> Iterator[str]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text(encoding="utf-8")
        except OSError:  # detached meanwhile
            continue
        if file.startswith(f"{state}/"):
            yield f"/dev/{backing.parents[1].name}"


def _chains() -> list[str]:
    if shutil.which("nft") is None:
        return []
    done = subprocess.run(
        ["nft", "--json", "list", "chains"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    chains = (entry["chain"] for entry in json.loads(done.stdout)["nftables"] if "chain" in entry)
    return [chain["name"] for chain in chains if (chain["family"], chain["table"]) == TABLE]


def _wait_until(is_so: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
