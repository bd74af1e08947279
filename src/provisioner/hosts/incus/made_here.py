"""What ``host prepare`` made on this machine: noted in a file of root's, listed, and removed by ``host remove``.

The machine is looked at before and after the roles run; what is there only afterwards was made by them. A thing that
somebody else made in between, or changed since, is left alone.
"""

from __future__ import annotations

import grp
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from http.client import HTTPException
from operator import itemgetter
from pathlib import Path
from typing import Any

from provisioner.hosts.incus.api import Client, Endpoint, WireError
from provisioner.hosts.incus.translate import ARTIFACT
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.plain_data import MOST_OF_AN_OUTPUT, Foreign, json_value
from provisioner.values.regular_files import content_of, text_of

# Things, and the note of them.

DEFAULT_FOLDER = "/var/lib/incus"
VERSION = 1
MOST_BYTES = 1_000_000
WRITABLE_BY_OTHERS = 0o022
_NAME = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_./:+@~-]{0,254}")
"""Names of packages, files, accounts and things of Incus; none begins like an option."""


@dataclass(frozen=True, slots=True, order=True)
class Thing:
    """One thing of a machine. ``place``: the folder of the Incus that has it; ``value``: what it was when looked at."""

    kind: str
    name: str
    place: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{KINDS[self.kind]} {self.name}" + (f" of the Incus in {self.place}" if self.place else "")


STATE = "state"
"""The kind of a daemon's own folder, which is its own place, too."""
KINDS: Mapping[str, str] = {
    "volume": "built volume",
    "device": "device of the default profile:",
    "image": "image",
    "network": "bridge",
    "pool": "storage pool",
    "setting": "setting",
    "member": "membership in group incus-admin of",
    "package": "package",
    "group": "group",
    "line": "root's line in",
    "file": "file",
    "folder": "folder",
    STATE: "folder of Incus",
}
"""The kinds of things, in the order in which they are removed."""
OF_INCUS = frozenset({"device", "image", "network", "pool", "setting", STATE})
GROUP = "incus-admin"
GROUPS = (GROUP, "incus")
FILES = (
    "/etc/apt/preferences.d/provisioner-incus",
    "/etc/apt/sources.list.d/provisioner-backports.sources",
    "/etc/sysctl.d/60-provisioner-incus.conf",
    "/etc/modules-load.d/provision-gpu.conf",
    "/usr/local/libexec/provision-gpu-nodes",
    "/etc/systemd/system/provision-gpu.service",
    "/etc/systemd/system/multi-user.target.wants/provision-gpu.service",
)
FOLDERS = ("/var/cache/provisioner", "/run/provisioner", "/var/log/provisioner")
"""What the roles ``incus_host`` and ``gpu_host`` write outside of Incus; a test holds them."""
PACKAGES = frozenset(
    {
        *("incus-base", "incus-client", "libcowsql0", "libraft0", "lxcfs", "uidmap", "dnsmasq-base", "nftables"),
        *("btrfs-progs", "zstd", "mmdebstrap", "squashfs-tools-ng", "xz-utils", "python3-apt"),
        *("libnvidia-container1", "libnvidia-container-tools"),
    }
)
"""What the roles install by name (ansible's apt: python3-apt); of others, only what apt installed for these counts."""
SUBIDS = ("/etc/subuid", "/etc/subgid")
SETTINGS = ("user.provisioner.host", "images.auto_update_interval")


@dataclass(frozen=True, slots=True)
class Note:
    """What was made; ``begun``: what was there before a run that has not ended yet."""

    made: frozenset[Thing] = frozenset()
    begun: frozenset[Thing] | None = None


def read_note(file: Path) -> Note:
    """Return the note, an empty one where there is none; ``PreflightError`` for one that is not ours to believe."""
    if not file.exists():
        return Note()
    try:
        return _note_of(json_value(content_of(file, MOST_BYTES)), file.stat())
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PreflightError(
            f"Unable to believe {file}, the note of what host prepare made here",
            details=str(error),
            resolution="Nothing was removed. See what is in it; without it, nothing on this machine counts as ours.",
        ) from error


def _note_of(content: Mapping[str, Any], status: os.stat_result) -> Note:
    if status.st_uid != os.geteuid() or status.st_mode & WRITABLE_BY_OTHERS:
        raise ValueError("others can write it")
    if set(content) != {"version", "made", "begun"} or content["version"] != VERSION:
        raise ValueError(f"it is no note of version {VERSION}")
    begun = content["begun"]
    return Note(_things(content["made"]), None if begun is None else _things(begun))


def _things(entries: Sequence[Mapping[str, Any]]) -> frozenset[Thing]:
    """Return the things of a note; ``ValueError`` for one that no role of ours makes."""
    found = set()
    for entry in entries:
        thing = Thing(**entry)
        if set(map(type, astuple(thing))) != {str}:
            raise ValueError("a thing has a part that is no text")
        _require_ours(thing)
        found.add(thing)
    return frozenset(found)


def _require_ours(thing: Thing) -> None:
    """Raise ``ValueError`` for a file, a folder or an Incus of which our roles know nothing."""
    path, kind = Path(thing.name), thing.kind
    is_plain = bool(_NAME.fullmatch(thing.name)) and os.path.normpath(thing.name) == thing.name
    is_known = {
        "file": thing.name in FILES,
        "line": thing.name in SUBIDS,
        "group": thing.name in GROUPS,
        "folder": thing.name in FOLDERS or path.parts[-2:] in CACHES,
    }
    is_known[STATE] = is_plain and thing.name == thing.place and _may_be_state(path)
    if kind not in _REMOVERS or not is_plain or not is_known.get(kind, True):
        raise ValueError(f"{Foreign(kind)} {Foreign(thing.name)} is nothing that host prepare makes")
    if (kind in OF_INCUS) != thing.place.startswith("/"):
        raise ValueError(f"{Foreign(thing.place)} is no folder of an Incus")


CACHES = (("provisioner", "images"), ("provisioner", "host"), ("provisioner", "packed-modules"))
"""The ends of paths of caches: of images that were built, of the logs of `host prepare`, and of Ansible's modules."""
SILENT = "silent"
"""The value of the folder of a daemon that has a database and did not answer."""


def _may_be_state(path: Path) -> bool:
    """Tell whether this is a daemon's folder, as far as it is there: it has a database then, or what a purge leaves."""
    is_own = path.is_absolute() and len(path.parts) > MOST_COMMON_PARTS
    return is_own and (not path.exists() or any((path / name).is_dir() for name in ("database", "shmounts")))


MOST_COMMON_PARTS = 2
"""A folder with no more parts (`/`, `/var`) is nobody's own."""


def write_note(note: Note, file: Path) -> None:
    """Write the note whole, for root alone."""
    begun = None if note.begun is None else [asdict(thing) for thing in sorted(note.begun)]
    content = {"version": VERSION, "made": [asdict(thing) for thing in sorted(note.made)], "begun": begun}
    partial = file.with_suffix(".partial")
    try:
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
        partial.chmod(0o600)
        partial.replace(file)
    except OSError as error:
        raise PreflightError(f"Unable to write {file}", details=error.strerror or str(error)) from error


@contextmanager
def noted(folder: Path, caches: Sequence[Path], file: Path) -> Iterator[None]:
    """Note what the block makes, for an Incus whose state lies in ``folder``; what a killed run made counts, too."""
    note = read_note(file)
    before = look([folder], caches) if note.begun is None else note.begun
    write_note(Note(note.made, before), file)
    yield
    write_note(Note(note.made | _made(before, look([folder], caches))), file)


def found_here(note: Note, caches: Sequence[Path]) -> frozenset[Thing]:
    """Return what of the note is still there as it was made; ``PreflightError`` where that cannot be told."""
    if note.begun is not None:
        raise PreflightError(
            "Unable to tell what host prepare made here: its last run has not ended",
            resolution="Run it once more, so that it ends: sudo provision host prepare",
        )
    places = {thing.place for thing in note.made} - {""}
    there = look(map(Path, sorted(places)), caches)
    silent = {thing.name for thing in there if thing.value == SILENT}
    if silent:
        raise PreflightError(
            f"Unable to tell what is in the Incus in {', '.join(sorted(silent))}: it does not answer",
            resolution="Start it: sudo provision host prepare",
        )
    return note.made & there


def _made(before: frozenset[Thing], after: frozenset[Thing]) -> frozenset[Thing]:
    """Return what is there only afterwards; nothing of an Incus that was there before and did not answer then."""
    had = {replace(thing, value="") for thing in before}
    silent = {thing.place for thing in before if thing.value == SILENT}
    made = set()
    for thing in after:
        was_there = replace(thing, value="") in had
        if not was_there and thing.place not in silent:
            made.add(thing)
    return frozenset(made)


# The look at the machine.

LOOK_TIMEOUT_S = 60


def look(folders: Iterable[Path], caches: Iterable[Path]) -> frozenset[Thing]:
    """Return all that ``host prepare`` could have made: packages, files, lines, members, and what each Incus has."""
    groups = {group.gr_name: group.gr_mem for group in grp.getgrall()}
    found = _all("package", _packages())
    found |= _all("file", filter(os.path.exists, FILES))
    found |= _all("folder", filter(os.path.exists, (*FOLDERS, *map(str, caches))))
    found |= _all("group", groups.keys() & set(GROUPS))
    found |= _all("member", groups.get(GROUP, ()))
    for file in map(Path, filter(os.path.exists, SUBIDS)):
        lines = re.findall(r"^root:.*$", text_of(file), re.MULTILINE)
        found.update(Thing("line", str(file), value=line) for line in lines)
    for folder in filter(Path.exists, folders):
        found |= _of_incus(folder)
    return frozenset(found)


def _all(kind: str, names: Iterable[str], place: str = "") -> set[Thing]:
    return {Thing(kind, name, place) for name in names}


def _packages() -> set[str]:
    """Return the packages that our roles name or that apt installed for others, without those that people asked for."""
    if shutil.which("apt-mark") is None:  # another system, whose owner has installed Incus
        return set()
    named = set(_run(["apt-mark", "showmanual"]).split()) & PACKAGES
    return named | set(_run(["apt-mark", "showauto"]).split())


def _of_incus(folder: Path) -> set[Thing]:
    """Return the folder, and what the Incus in it has; one that has a database and does not answer is ``SILENT``."""
    client, place = Client(Endpoint(str(folder / "unix.socket"))), str(folder)
    try:
        pools = client.get("storage-pools", recursion="1")
        networks = client.get("networks", recursion="1")
        aliases = client.get("images", "aliases", recursion="1")
        devices = client.get("profiles", "default")["devices"]
        config = client.get()["config"]
    except (WireError, OSError, HTTPException):
        return {Thing(STATE, place, place, SILENT if (folder / "database").exists() else "")}
    found = _all(STATE, [place], place)
    found |= _all("pool", map(_NAMED, pools), place)
    found |= _all("network", map(_NAMED, filter(_MANAGED, networks)), place)
    for alias in aliases:
        found.add(Thing("image", alias["name"], place, alias["target"]))
    for name, device in devices.items():
        found.add(Thing("device", name, place, json.dumps(device, sort_keys=True)))
    for key in config.keys() & set(SETTINGS):
        found.add(Thing("setting", key, place, config[key]))
    return found


_NAMED = itemgetter("name")
_MANAGED = itemgetter("managed")


# What is in the way of a removal: things of others in what is ours.


def require_unused(things: frozenset[Thing]) -> tuple[Thing, ...]:
    """Return the volumes that go with their pools; ``PreflightError`` names what others have in what would go."""
    volumes, others = list[Thing](), list[str]()
    for place in sorted({thing.place for thing in things} - {""}):
        of_place = [thing for thing in things if thing.place in {place, ""}]
        client = Client(Endpoint(f"{place}/unix.socket"))
        expected = {"/1.0/profiles/default", "/1.0/projects/default"}
        for thing in of_place:
            expected.add(f"/1.0/images/{thing.value}")  # of a pool or a network there is no such image
            if thing.kind == "pool":
                built = list(_built(client, thing.name, place))
                expected |= {f"/1.0/storage-pools/{thing.name}/volumes/custom/{volume.name}" for volume in built}
                volumes += built
        used = dict.fromkeys(_used(client, of_place))
        others += [path for path in used if path.partition("?")[0] not in expected]
    if others:
        raise PreflightError(
            "Unable to remove what host prepare made here: something else is in it",
            details="\n".join(others).replace("/1.0/", ""),
            resolution="Labs are removed by: provision destroy FILE.yml   What is left, by its owner: incus list --all-"
            "projects; incus image list; incus storage volume list",
        )
    return tuple(volumes)


def _built(client: Client, pool: str, place: str) -> Iterator[Thing]:
    """Yield the pool's volumes that hold what provision built or downloaded."""
    for page in client.get("storage-pools", pool, "volumes", "custom", recursion="1"):
        if ARTIFACT in page["config"] and not page["used_by"]:
            yield Thing("volume", page["name"], place, pool)


def _used(client: Client, things: Sequence[Thing]) -> Iterator[str]:
    """Yield the paths of all that uses these pools and networks, and of what else is in an Incus that goes whole."""
    there = {(thing.kind, thing.name) for thing in things}
    pages = {"pool": client.get("storage-pools", recursion="1")}
    pages["network"] = list(filter(_MANAGED, client.get("networks", recursion="1")))
    for kind, found in pages.items():
        for page in found:
            if (kind, page["name"]) in there:
                yield from page["used_by"]
            elif IS_WHOLE in there:
                yield f"/1.0/{kind}/{page['name']}"
    if IS_WHOLE in there:
        for path in ("images", "profiles", "projects"):
            yield from client.get(path)


IS_WHOLE = ("package", "incus-base")
"""The package without which there is no Incus any more."""


# The removal itself.

COMMAND_TIMEOUT_S = 900
_REMOVED = re.compile(r"^(?:Remv|Purg) ([^\s:]+)", re.MULTILINE)


def require_packages_alone(things: Iterable[Thing]) -> None:
    """Raise ``PreflightError`` where apt would remove a package of somebody else's together with ours."""
    ours = sorted(thing.name for thing in things if thing.kind == "package")
    removed = set(_REMOVED.findall(_run(["apt-get", "--simulate", "purge", *ours]))) if ours else set()
    others = sorted(removed - set(ours))
    if others:
        raise PreflightError(
            "Unable to remove the packages that host prepare installed: others need them",
            details=", ".join(others),
            resolution="Remove those first, if you need them no more: sudo apt-get purge " + " ".join(others),
        )


def listed(things: Iterable[Thing]) -> Iterator[str]:
    """Yield a line for the things of each kind, in the order in which they are removed."""
    names: dict[str, list[str]] = {KINDS[kind]: [] for kind in KINDS}
    for thing in sorted(things):
        names[KINDS[thing.kind]].append(thing.name)
    for kind, found in names.items():
        if found:
            yield f"{kind} {', '.join(found)}"


def require_no_other_daemon(things: Iterable[Thing]) -> None:
    """Raise ``PreflightError`` where an Incus that nobody noted runs by the packages that would go."""
    names = {thing.name for thing in things}
    if IS_WHOLE[1] not in names:
        return
    for process in Path("/proc").glob("[0-9]*"):
        program, folder = _program_and_folder(process)
        if program == DAEMON and folder not in names:
            raise PreflightError(
                f"Unable to remove the packages of Incus: the Incus in {folder} runs by them, and is not ours",
                resolution=f"Remove that one first, if you need it no more. Its process is {process.name}.",
            )


def _program_and_folder(process: Path) -> tuple[str, str]:
    """Return the program of a process, and the folder in which it would look for the state of an Incus."""
    try:
        program = str((process / "exe").readlink())
        variables = (process / "environ").read_bytes().decode(errors="replace")
    except OSError:  # it ended meanwhile, or is a thread of the kernel
        return "", ""
    found = re.search(r"(?:^|\0)INCUS_DIR=([^\0]*)", variables)
    return program, found[1] if found else DEFAULT_FOLDER


DAEMON = "/usr/libexec/incus/incusd"
SYSTEMD = Path("/run/systemd/system")
UNITS = ("incus*.socket", "incus*.service")
"""Patterns: of a unit that is not there nothing is said."""
PROGRAMS = {"lxcfs": "/usr/bin/lxcfs"}
"""Names of files with numbers of processes, which are the daemon's where they are none of these."""


def remove(things: Iterable[Thing], volumes: Iterable[Thing], file: Path) -> Iterator[str]:
    """Remove the things in their order, yield each in words, and the note last; ``ProviderError`` else."""
    for volume in volumes:
        _run(["incus", "storage", "volume", "delete", volume.value, volume.name], place=volume.place)
        yield str(volume)
    things = sorted(things)
    for kind in _REMOVERS:
        chosen = [thing for thing in things if thing.kind == kind]
        if chosen:
            _REMOVERS[kind](chosen)
            yield from map(str, chosen)
    file.unlink(missing_ok=True)
    with suppress(OSError):  # something else may be noted there
        file.parent.rmdir()


def _each(*command: str, last: tuple[str, ...] = ()) -> Callable[[Sequence[Thing]], None]:
    """Return what runs a command for each thing, whose name is an argument before the last ones."""

    def removed(things: Sequence[Thing]) -> None:
        for thing in things:
            _run([*command, thing.name, *last], place=thing.place)

    return removed


def _purge(things: Sequence[Thing]) -> None:
    """Stop the daemons, also those that were started by hand and of which packages know nothing, and purge ours.

    A socket's unit that ran on without its file would keep a later Incus from being reached.
    """
    run = Path("/run/provisioner")
    for pid_file in sorted(run.glob("*.pid")):
        program = PROGRAMS.get(pid_file.stem, DAEMON)
        options = ["--stop", "--oknodo", "--retry", "60", "--pidfile", str(pid_file), "--exec", program]
        _run(["start-stop-daemon", *options])
    if SYSTEMD.is_dir():
        _run(["systemctl", "stop", *UNITS])
    _run(["apt-get", "--yes", "purge", *(thing.name for thing in things)])


def _remove_folders(things: Sequence[Thing]) -> None:
    """Remove the folders; of a daemon's own, what it mounted for containers comes off first."""
    for thing in things:
        mounted = re.findall(rf"^\S+ ({re.escape(thing.name)}/\S+) ", text_of(Path("/proc/self/mounts")), re.MULTILINE)
        for point in reversed(mounted):
            _run(["umount", "--lazy", "--", point])
        _run(["rm", "--recursive", "--force", "--one-file-system", "--", thing.name])


def _remove_lines(things: Sequence[Thing]) -> None:
    for thing in things:
        file = Path(thing.name)
        without = re.sub(rf"^{re.escape(thing.value)}\n", "", text_of(file), flags=re.MULTILINE)
        file.write_text(without, encoding="utf-8")


_REMOVERS: Mapping[str, Callable[[Sequence[Thing]], None]] = {
    "device": _each("incus", "profile", "device", "remove", "default"),
    "image": _each("incus", "image", "delete"),
    "network": _each("incus", "network", "delete"),
    "pool": _each("incus", "storage", "delete"),
    "setting": _each("incus", "config", "unset"),
    "member": _each("gpasswd", "--delete", last=(GROUP,)),
    "package": _purge,
    "group": _each("groupdel", "--"),
    "line": _remove_lines,
    "file": _each("rm", "--force", "--"),
    "folder": _remove_folders,
    STATE: _remove_folders,
}


def _run(command: Sequence[str], *, place: str = "") -> str:
    """Run a command of this machine and return what it says; ``ProviderError`` where it fails."""
    environment = os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    if place:
        environment["INCUS_DIR"] = place
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise ProviderError(
            f"Unable to run {' '.join(command[:4])}",
            details=Foreign(done.stderr.strip() or done.stdout.strip(), MOST_OF_AN_OUTPUT),
            resolution="Run the same again when that is mended: what is gone by now is not asked for any more.",
        )
    return done.stdout
