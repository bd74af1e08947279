"""Looks into a container and keeps its stamps: sent with the call as text, never installed; needs only Python ≥ 3.10.

A stamp is a file per role, readable by root only: what the role was run with, and the state of every thing that it
manages, taken when its proof had passed. The controller imports this file for the functions that both sides share.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import re
import stat
import subprocess
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
FOLDER = "/var/lib/provisioner/stamps"
PROOFS = "/var/lib/provisioner/proofs"
"""Where a role's proof notes what computes, with the unit's start and the driver that it speaks of."""
NVIDIA_VERSION = "/proc/driver/nvidia/version"
KEEPER_RUN, KEEPER_STATE = "/run/switch-{}-keeper", "/var/lib/switch-{}-keeper"
"""Where the keeper of an idle service notes, by its unit's name, that it is asleep and how long starts took."""
ASLEEP = "asleep"
"""The state of a unit that has ended because nobody asked its service; the next request starts it."""
NOT_THERE = ("inactive", "failed", "activating", "deactivating")
"""States in which a unit may be that is asleep: it is stopped for that, or waits for its turn on a card."""
NOT_ASKED = "exec-condition"
"""What systemd says became of a start at which a unit was found not to be needed yet."""
CLOSED = ("active", "activating")
"""States of the unit that keeps people out of a service, in which it does that."""
LARGE_BYTES = 16 * 2**20
"""A larger file is not read: its size, times and inode stand for its content."""
HEALTH_TIMEOUT_S = 5.0
LINE_BYTES = 4096
"""The first line of an answer is shorter."""
AGAIN_TIMEOUT_S = 2.0
"""How long one that did not answer is asked again, while it is watched."""
BUSY = "busy"
"""The health of a service that computes for somebody and answers nobody else meanwhile."""
BUSY_SHARE = 0.05
"""Of one processor: so much a service that computes gets on a machine that has much to do, and a hung one never."""
_TIMED_OUT = "timed out"
_LISTENING, _CONNECTED, _STILL_THERE = ("0A",), ("01", "08"), ("01",)
"""States in /proc/net/tcp; a client that has given up is connected as long as its request has not ended."""
_UNIT = ("state", "enablement", "unit file", "drop-ins", "files")
_FILE = ("type", "mode", "owner", "group", "content")
FIELDS = {
    "paths": _FILE,
    "reloaded": _FILE,
    "watched": _FILE,
    "users": ("id", "group", "home", "shell", "groups"),
    "units": _UNIT,
    "helpers": _UNIT,
}
"""What the positions of an entry mean."""
LEFT = {("users", "id"), ("users", "group"), *(("watched", field) for field in _FILE)}
"""Fields, each of its kind, that no role puts back; nor does one remove a drop-in of somebody else."""
STAYS = " (stays as it is)"
OTHER = {"venvs": "holds other distributions", "passwords": "has another password"}
"""Words for kinds of which only a digest is known."""
NONE = {"": "none"}
SHADOW = "/etc/shadow"
OLDER, READ = "older", "read"
"""Whether the process of a unit is older than the files of its role."""
UNIT = (
    "LoadState,ActiveState,Result,UnitFileState,FragmentPath,DropInPaths,MainPID,ExecMainStartTimestampMonotonic,"
    "InvocationID"
)
PACKAGE = "${Package}\t${Version}\t${db:Status-Status}\n"


def canonical(value: Any) -> bytes:
    """``value`` as JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def keyed_digest(salt: str, content: bytes) -> str:
    """The HMAC-SHA256 in hexadecimal: without the salt nobody can try out what a short secret may be."""
    return hmac.new(salt.encode(), content, hashlib.sha256).hexdigest()


def sealed(stamp: dict[str, Any]) -> dict[str, Any]:
    """``stamp`` with a digest of its own content, so that a damaged one is known."""
    return {**stamp, "seal": keyed_digest("seal", canonical({key: stamp[key] for key in stamp if key != "seal"}))}


class System:
    """What systemd and dpkg say of the things in several ``managed``: each is asked once, while files are read."""

    def __init__(self, managed: list[dict[str, list[str]]], units: list[str]) -> None:
        kinds = ("units", "helpers")
        self._units = sorted({one for each in managed for kind in kinds for one in each.get(kind, [])} | set(units))
        packages = sorted({one for each in managed for one in each.get("packages", [])})
        self._shown = _started(["systemctl", "show", "--property", UNIT, "--"], self._units)
        self._listed = _started(["dpkg-query", "--show", "--showformat", PACKAGE], packages)

    def units(self) -> dict[str, dict[str, str]]:
        """The properties of each unit; none for one that does not exist."""
        blocks = _output(self._shown).strip().split("\n\n") if self._units else []
        shown = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
        if len(shown) != len(self._units):
            return {}  # systemd itself has not started yet, and says nothing of any
        found = {}
        for name, one in zip(self._units, shown, strict=True):
            state, result = one.get("ActiveState"), one.get("Result")
            if state in NOT_THERE and _since(name):
                one["ActiveState"] = ASLEEP
            elif (state, result) == ("inactive", NOT_ASKED):
                # Its container has just started: its keeper notes soon that it is asleep.
                one["ActiveState"] = "activating"
            if one.get("LoadState") not in (None, "not-found"):
                found[name] = one
        return found

    def packages(self) -> dict[str, str]:
        """The version of each package that is installed."""
        lines = (line.split("\t") for line in _output(self._listed).splitlines())
        return {name: version for name, version, status in lines if status == "installed"}


def _since(unit: str) -> int:
    """Since when it is asleep, in seconds of the epoch; 0 where it is not."""
    try:
        with open(os.path.join(KEEPER_RUN.format(unit.removesuffix(".service")), "asleep"), "rb") as file:
            return int(json.loads(file.read(LINE_BYTES))["since"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0


def _longest_start_s(unit: str) -> float:
    """How long the slowest of its last starts took; 0 where none was measured."""
    try:
        with open(os.path.join(KEEPER_STATE.format(unit.removesuffix(".service")), "starts"), "rb") as file:
            return max(0.0, *(float(word) for word in file.read(LINE_BYTES).split()))
    except (OSError, ValueError, TypeError):
        return 0.0


def _proved_at(role: str) -> int:
    """When its stamp was written, in seconds of the epoch; 0 where there is none."""
    with suppress(OSError):
        return int(os.lstat(_file_of(role)).st_mtime)
    return 0


def rest_of(role: str, unit: str, state: str) -> dict[str, Any] | None:
    """Of a service that ends when it is idle: since when it is asleep (0: it is not), when it was proved, its start."""
    since = _since(unit) if state == ASLEEP else 0
    start_s = _longest_start_s(unit)
    if not since and not start_s:
        return None
    return {"since": since, "proved": _proved_at(role), "start_s": start_s}


def _started(command: list[str], names: list[str]) -> subprocess.Popen[bytes] | None:
    if not names:
        return None
    environment = {"LC_ALL": "C", "PATH": os.defpath}
    return subprocess.Popen([*command, *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)


def _output(started: subprocess.Popen[bytes] | None) -> str:
    return started.communicate()[0].decode(errors="replace") if started else ""


def state_of(
    managed: dict[str, list[str]], salt: str, units: dict[str, dict[str, str]], packages: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """The state of everything in ``managed`` (names by kind), as JSON values that can be compared; None: not there."""
    written = max((_written_at(path) for path in managed.get("paths", [])), default=0.0)
    return {
        "paths": {path: _path(path, salt) for path in managed.get("paths", [])},
        "reloaded": {path: _path(path, salt) for path in managed.get("reloaded", [])},
        "watched": {path: _path(path, salt) for path in managed.get("watched", [])},
        "users": {name: _user(name) for name in managed.get("users", [])},
        "passwords": {name: _password(name, salt) for name in managed.get("passwords", [])},
        "venvs": {path: _distributions(path) for path in managed.get("venvs", [])},
        "packages": {name: packages.get(name) for name in managed.get("packages", [])},
        "units": {name: _unit(units.get(name), written) for name in managed.get("units", [])},
        "helpers": {name: _unit(units.get(name), 0.0) for name in managed.get("helpers", [])},
    }


def differences(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[list[str]]:
    """``[kind, name, words]`` for everything that is not as it was, or as it has to be since."""
    pairs = (
        (kind, name, _due(kind, was, now.get(kind, {}).get(name)), now.get(kind, {}).get(name))
        for kind in sorted(before)
        for name, was in sorted(before[kind].items())
    )
    return [[kind, name, _words(kind, was, found)] for kind, name, was, found in pairs if found != was]


def _due(kind: str, was: Any, now: Any) -> Any:
    """What a thing has to be now: a service that was started since it proved itself has read its files by that."""
    if kind == "units" and was and now and (was[-1], now[-1]) == (OLDER, READ):
        return [*was[:-1], READ]
    return was


def _words(kind: str, was: Any, now: Any) -> str:
    if was is None:
        return "has appeared"
    if now is None:
        return "is gone"
    if kind == "packages":
        return f"is version {now}, was {was}{STAYS}"
    if kind in OTHER:
        return OTHER[kind]
    pairs = [(field, *pair) for field, *pair in zip(FIELDS[kind], was, now, strict=True) if pair[0] != pair[1]]
    return ", ".join(_change(was[0], *pair) + STAYS * _is_left(kind, *pair) for pair in pairs)


def _is_left(kind: str, field: str, was: str, now: str) -> bool:
    """Return whether the kind's role leaves this field as it has become."""
    return (kind, field) in LEFT or (field == "drop-ins" and not set(now.split()) <= set(was.split()))


def _change(kind: Any, field: str, was: Any, now: Any) -> str:
    if field == "content":
        return f"points to {now}, pointed to {was}" if kind == "link" else "edited"
    if field == "files":
        return {"": "has no process", OLDER: "has not read its files as they are", READ: "has a process"}[now]
    return f"{field} is {NONE.get(now, now)}, was {NONE.get(was, was)}"


def _path(path: str, salt: str) -> list[Any] | None:
    try:
        seen = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    kind, content = "special file", ""
    if stat.S_ISLNK(seen.st_mode):
        kind, content = "link", os.readlink(path)
    elif stat.S_ISDIR(seen.st_mode):
        kind = "folder"
    elif stat.S_ISREG(seen.st_mode):
        kind, content = "file", _content(path, seen, salt)
    return [kind, f"{stat.S_IMODE(seen.st_mode):04o}", seen.st_uid, seen.st_gid, content]


def _content(path: str, seen: os.stat_result, salt: str) -> str:
    if seen.st_size > LARGE_BYTES:
        return f"{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino}"
    with open(path, "rb") as file:
        return keyed_digest(salt, file.read())


def _written_at(path: str) -> float:
    """When a file was last written; a folder's time says nothing about what a program has read."""
    with suppress(OSError):
        seen = os.stat(path)
        if stat.S_ISREG(seen.st_mode):
            return seen.st_mtime
    return 0.0


def _user(name: str) -> list[Any] | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = " ".join(map(str, sorted(os.getgrouplist(name, entry.pw_gid))))
    return [entry.pw_uid, entry.pw_gid, entry.pw_dir, entry.pw_shell, groups]


def _password(name: str, salt: str) -> str:
    """Return a digest of the hash of an account's password, or of its absence."""
    hashes = {}
    if os.path.exists(SHADOW):
        with open(SHADOW, encoding="utf-8", errors="replace") as file:
            for line in file:  # others than accounts' may stand there, which libc passes over
                account, _, rest = line.partition(":")
                hashes[account] = rest.partition(":")[0]
    return keyed_digest(salt, canonical(hashes.get(name)))


def _distributions(path: str) -> str | None:
    found = []
    for _folder, folders, _files in os.walk(os.path.join(path, "lib")):
        found += [one for one in folders if one.endswith(".dist-info")]
        folders[:] = [one for one in folders if re.fullmatch(r"python[0-9.]+|site-packages", one)]
    return keyed_digest("venv", canonical(sorted(found))) if found else None


def _unit(seen: dict[str, str] | None, written: float) -> list[str] | None:
    if seen is None:
        return None
    files = ""
    if seen.get("MainPID", "0") != "0":
        age = time.monotonic() - int(seen["ExecMainStartTimestampMonotonic"]) / 1e6
        files = OLDER if written > time.time() - age else READ
    state = seen.get("ActiveState", "")
    if state == ASLEEP:  # as it is when somebody asks: it reads its files then
        state, files = "active", READ
    names = ("UnitFileState", "FragmentPath", "DropInPaths")
    return [state, *(seen.get(name, "") for name in names), files]


def _health(port: int, page: str, timeout_s: float = HEALTH_TIMEOUT_S) -> int | str:
    """The HTTP status of the service's health page, or the words of the failure."""
    import socket  # while systemd answers

    try:
        with socket.socket() as link:
            link.settimeout(timeout_s)
            link.connect(("127.0.0.1", port))
            link.sendall(f"GET {page} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
            line = link.makefile("rb").readline(LINE_BYTES).decode("latin-1")
    except OSError as error:
        return error.strerror or str(error)
    found = re.match(r"HTTP/\S+ (\d{3})", line)
    return int(found[1]) if found else "it does not answer in HTTP"


def _asked_again(services: list[dict[str, Any]]) -> dict[str, int | str]:
    """The health of services that did not answer in time: asked once more, ``BUSY`` where other signs say that.

    Such a one computes (the processor time of its unit grows), for somebody (its own process listens on its own port,
    and has taken a connection there, from a client or from the switch before it). One that hangs takes no time, one
    that turns in circles has no client. ``late`` ones answer at their health page, and to a proof not in time: all
    their slots may be taken, by clients that are there.
    """
    processes = {one["address"]: _processes(one["unit"]) for one in services}
    began = time.monotonic()
    before = {address: _processor_s(found) for address, found in processes.items()}
    health = {one["address"]: _health(one["port"], one["health"], AGAIN_TIMEOUT_S) for one in services}
    if any(one["late"] for one in services):  # those answer at once: nothing but time shows whether they compute
        time.sleep(max(0.0, began + AGAIN_TIMEOUT_S - time.monotonic()))
    for one in services:
        found = processes[one["address"]]
        grown = _processor_s(found) - before[one["address"]]
        computes = grown >= BUSY_SHARE * (time.monotonic() - began)
        is_silent = health[one["address"]] == _TIMED_OUT
        clients = _CONNECTED if is_silent else _STILL_THERE
        if (is_silent or one["late"]) and computes and _has_client(found, one["own_port"], clients):
            health[one["address"]] = BUSY
    return health


def _processes(unit: str) -> list[str]:
    """The folders in ``/proc`` of the unit's processes."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/cgroup", encoding="utf-8", errors="replace") as file:
                groups = [part for line in file for part in line.strip().split("/")]
                if unit in groups:
                    found.append(f"/proc/{name}")
    return found


def _processor_s(processes: list[str]) -> float:
    """The processor time that they have taken so far."""
    ticks = 0
    for process in processes:
        with suppress(OSError), open(f"{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # a program's name may hold anything
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _has_client(processes: list[str], port: int, clients: tuple[str, ...]) -> bool:
    """Whether one of them listens on the port, and has taken a connection there that is in one of these states."""
    held = set()
    for process in processes:
        with suppress(OSError):
            for name in os.listdir(f"{process}/fd"):
                with suppress(OSError):  # it was closed meanwhile
                    held.add(os.readlink(f"{process}/fd/{name}"))
    return all(held & _sockets(port, states) for states in (_LISTENING, clients))


def _sockets(port: int, states: tuple[str, ...]) -> set[str]:
    """The sockets of this port in these states, as links to them read. Connections nobody has taken yet have none."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as file:
            for row in list(file)[1:]:
                fields = row.split()
                if fields[3] in states and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found


def _file_of(role: str) -> str:
    return os.path.join(FOLDER, role + ".json")


def read_stamp(role: str, of: str) -> dict[str, Any]:
    """The role's stamp, or ``{"problem": words}`` for one that does not count."""
    try:
        if not stat.S_ISREG(os.lstat(_file_of(role)).st_mode):
            return {"problem": "its stamp cannot be read"}  # to open a pipe would be to wait for ever
        with open(_file_of(role), "rb") as file:
            stamp: dict[str, Any] = json.loads(file.read())
        version = int(stamp["version"])
    except FileNotFoundError:
        return {"problem": "not proved yet"}
    except (OSError, ValueError, TypeError, KeyError):
        return {"problem": "its stamp cannot be read"}
    if version != VERSION:
        return {"problem": f"its stamp was written by {'a newer' if version > VERSION else 'an older'} provision"}
    if sealed(stamp) != stamp:
        return {"problem": "its stamp is damaged"}
    return stamp if stamp["of"] == of else {"problem": f"its stamp is of {stamp['of']}"}


def driver_now() -> str:
    """What tells one driver from another: NVIDIA's own line, or the release of the kernel that has the others in it."""
    try:
        with open(NVIDIA_VERSION, encoding="utf-8", errors="replace") as file:
            return file.readline().rstrip("\n") or os.uname().release
    except OSError:
        return os.uname().release


def verdict_of(role: str, start: str) -> dict[str, Any] | None:
    """What the role's proof noted of who computes; ``stale`` says why that is of the past. None: it noted nothing."""
    try:
        with open(os.path.join(PROOFS, role + ".json"), "rb") as file:
            note: dict[str, Any] = json.loads(file.read())
        was, driver = note["start"], note["driver"]
        stale = "it was started again" if was != start else "its driver changed" if driver != driver_now() else ""
        return {"verdict": str(note["verdict"]), "why": str(note["why"]), "stale": stale}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def look(request: dict[str, Any]) -> dict[str, Any]:
    """What is asked for: each role's stamp with what has changed since, each service's unit, health and verdict."""
    stamps = {role: read_stamp(role, request["of"]) for role in request["roles"]}
    whole = {role: stamp for role, stamp in stamps.items() if "problem" not in stamp}
    asked = {one["address"]: one["unit"] for one in request["services"] if one["unit"]}
    closers = {one["address"]: one["closed_by"] for one in request["services"] if one["closed_by"]}
    system = System([one["managed"] for one in whole.values()], [*asked.values(), *closers.values()])
    health = {one["address"]: _health(one["port"], one["health"]) for one in request["services"] if one["health"]}
    units, packages = system.units(), system.packages()
    silent = [one for one in request["services"] if one["late"] or health.get(one["address"]) == _TIMED_OUT]
    health.update(_asked_again([one for one in silent if units.get(one["unit"], {}).get("ActiveState") == "active"]))
    for role, stamp in whole.items():
        changed = differences(stamp["seen"], state_of(stamp["managed"], stamp["salt"], units, packages))
        stamps[role] = {name: stamp[name] for name in ("inputs", "secrets", "salt")} | {"changed": changed}
    verdicts = {
        address: verdict_of(address.partition("/")[2], units.get(unit, {}).get("InvocationID", ""))
        for address, unit in asked.items()
    }
    states = {address: units.get(unit, {}).get("ActiveState", "not there") for address, unit in asked.items()}
    rests = {address: rest_of(address.partition("/")[2], unit, states[address]) for address, unit in asked.items()}
    there = [name[:-5] for name in os.listdir(FOLDER) if name.endswith(".json")] if os.path.isdir(FOLDER) else []
    return {
        "stamps": stamps,
        "leftovers": sorted(set(there) - set(stamps)),
        "verdict": {address: verdict for address, verdict in verdicts.items() if verdict},
        "unit": states,
        "rest": {address: rest for address, rest in rests.items() if rest},
        "closed": [address for address, unit in closers.items() if units.get(unit, {}).get("ActiveState") in CLOSED],
        "health": health,
        "damaged": [path for path in request["manifests"] if not _is_intact(path)],
    }


def _is_intact(manifest: str) -> bool:
    folder, name = os.path.split(manifest)
    command = ["sha256sum", "--check", "--strict", "--quiet", name]
    if not os.path.isfile(manifest):
        return False
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def write_stamps(request: dict[str, Any]) -> dict[str, Any]:
    """Write a stamp for each role, whole or not at all; ``{"problem": words}`` when that is not possible.

    ``unmended`` in the answer: what the roles of ``compare``, run with the same wishes as before, have left as it had
    become.
    """
    system = System([one["managed"] for one in request["stamps"]], [])
    units, packages = system.units(), system.packages()
    compared = [stamp for stamp in request["stamps"] if stamp["role"] in request["compare"]]
    unmended = {stamp["role"]: _unmended(stamp, units, packages) for stamp in compared}
    try:
        os.makedirs(FOLDER, 0o700, exist_ok=True)
        for stamp in request["stamps"]:
            seen = state_of(stamp["managed"], stamp["salt"], units, packages)
            _write(sealed({**stamp, "version": VERSION, "seen": seen}))
    except OSError as error:
        return {"problem": error.strerror or str(error)}
    return {"unmended": unmended}


def _unmended(stamp: dict[str, Any], units: dict[str, dict[str, str]], packages: dict[str, str]) -> list[list[str]]:
    before = read_stamp(stamp["role"], stamp["of"])
    if "problem" in before:
        return []
    seen = {**before["seen"], "passwords": {}}  # a role that puts one back has it hashed with another salt
    return differences(seen, state_of(before["managed"], before["salt"], units, packages))


def _write(stamp: dict[str, Any]) -> None:
    import tempfile  # a look writes nothing, and this is a tenth of its time

    partial, name = tempfile.mkstemp(dir=FOLDER)  # mode 0600
    try:
        with os.fdopen(partial, "wb") as file:
            file.write(canonical(stamp))
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, _file_of(stamp["role"]))
    except OSError:
        os.unlink(name)
        raise


def main(request: bytes) -> None:
    """Answer a request of the controller (JSON) on standard output."""
    asked = json.loads(request)
    answers = {"look": look, "stamp": write_stamps}
    sys.stdout.write(json.dumps(answers[asked["do"]](asked)))
