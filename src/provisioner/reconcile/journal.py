"""Records of what a run does: on this machine line by line, on hosts what is half done with a container."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

from provisioner.reconcile.effects import Effects
from provisioner.values.events import ApplyComplete, ApplyErrored, ApplyProgress, ApplyStart, Diagnostic, Event
from provisioner.values.plain_data import json_value
from provisioner.values.state import Instance, Run

# The journal of a run, on this machine, so that the next run can say where a killed one stopped. Nothing is decided by
# it: what has to be done follows from the lab as it is.

FOLDER = "journal"
KEPT = 20
END = "end"
INTERRUPTED = "interrupted"


def runs_in(folder: Path) -> list[Run]:
    """The runs whose journals are kept in ``folder`` (the lab's ``.provision/``), the newest first."""
    found = []
    for file in sorted((folder / FOLDER).glob("*.jsonl"), reverse=True):
        lines = _lines(file)
        if lines:
            found.append(_run_of(lines))
    return found


def _run_of(lines: Sequence[Mapping[str, Any]]) -> Run:
    done, failed = [], []
    for line in lines:
        if line["type"] == "ApplyComplete":
            done.append(f"{line.get('action', '')} {line.get('target', '')}")
        elif line["type"] == "ApplyErrored":
            failed.append(f"{line.get('action', '')} {line.get('target', '')}: {line.get('message', '')}")
    first, last = lines[0], lines[-1]
    ended, error = "", ""
    if last["type"] in (END, INTERRUPTED):
        ended = str(last.get("at") or _last_moment(lines))
        error = INTERRUPTED if last["type"] == INTERRUPTED else str(last.get("error", ""))
    return Run(str(first["verb"]), str(first.get("at", "")), ended, error, tuple(done), tuple(failed))


def _last_moment(lines: Sequence[Mapping[str, Any]]) -> str:
    """When the last thing was done of which a time is known; journals of earlier versions say no time of their end."""
    moments = [str(line["at"]) for line in lines if line.get("at")]
    return moments[-1] if moments else ""


@contextmanager
def recording(folder: Path, verb: str, emit: Callable[[Event], None]) -> Iterator[Callable[[Event], None]]:
    """``emit`` that also writes what begins, ends and fails to a journal in ``folder`` (the lab's ``.provision/``)."""
    place = folder / FOLDER
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in sorted(place.glob("*.jsonl"))[: -KEPT + 1]:
        old.unlink(missing_ok=True)  # another run may have been faster
    now = datetime.now(UTC)
    journal = place / f"{now:%Y%m%dT%H%M%S.%f}-{os.getpid()}.jsonl"
    # Unbuffered: a line that finds no room is not tried again when the file is closed.
    with journal.open("xb", buffering=0) as file:
        begin = {"type": "begin", "verb": verb, "at": now.isoformat(timespec="seconds"), "pid": os.getpid()}
        try:
            file.write(_line(begin))
        except OSError as error:  # an open file does not say where it is
            raise OSError(error.errno, error.strerror, str(journal)) from error
        written = _Journal(file, emit, place)
        try:
            yield written.record
        except KeyboardInterrupt:
            written.write({"type": INTERRUPTED, "at": _now()})
            raise
        except Exception as error:
            written.write({"type": END, "error": type(error).__name__, "at": _now()})
            raise
        written.write({"type": END, "at": _now()})


class _Journal:
    """One that is being written; where there is no more room for it, work that has begun goes on without it."""

    def __init__(self, file: FileIO, emit: Callable[[Event], None], place: Path) -> None:
        self._file, self._emit, self._place = file, emit, place
        self._is_lost = False
        self._took: Mapping[tuple[str, str], float] | None = None

    def record(self, event: Event) -> None:
        """Hand the event on, and write what begins, ends and fails, and each step on the way.

        Who begins is told how long that took the last time.
        """
        if isinstance(event, ApplyStart):
            self._took = seconds_taken(self._place) if self._took is None else self._took
            event = replace(event, last_s=self._took.get((event.action, event.target)))
        is_step = isinstance(event, ApplyProgress) and not event.goes_on
        if is_step or isinstance(event, ApplyStart | ApplyComplete | ApplyErrored):
            self.write({"type": type(event).__name__, **asdict(event), "at": _now()})
        self._emit(event)

    def write(self, line: dict[str, Any]) -> None:
        """Write a line; the first that cannot be written is a warning."""
        try:
            self._file.write(_line(line))
        except OSError as error:
            if not self._is_lost:
                self._is_lost = True
                self._emit(Diagnostic("warning", f"Unable to write what is done into {self._file.name}", str(error)))


def seconds_taken(place: Path) -> dict[tuple[str, str], float]:
    """Return how long each action on each target took the last time, by the journals in ``place``."""
    took: dict[tuple[str, str], float] = {}
    for file in sorted(place.glob("*.jsonl")):
        lines: list[dict[str, Any]] = []
        with suppress(OSError):  # another run may have deleted it just now
            lines = _lines(file)
        for line in lines:
            elapsed_s = line.get("elapsed_s")
            if line["type"] == "ApplyComplete" and isinstance(elapsed_s, float):
                took[str(line.get("action")), str(line.get("target"))] = elapsed_s
    return took


def interrupted(folder: Path) -> str:
    """What the last run was doing when it was interrupted or killed, in words; "" when it came to its end."""
    journals = sorted((folder / FOLDER).glob("*.jsonl"))
    lines = _lines(journals[-1]) if journals else []
    if not lines or lines[-1]["type"] == END:
        return ""
    open_works: dict[str, str] = {}
    steps: dict[str, str] = {}
    for line in lines:
        if line["type"] == "ApplyStart":
            open_works[line["target"]] = line["action"]
        elif line["type"] == "ApplyProgress":
            steps[line["target"]] = line["message"]
        elif line["type"] in ("ApplyComplete", "ApplyErrored"):
            open_works.pop(line["target"], None)
    told = []
    for target, action in open_works.items():
        step = steps.get(target, "")
        told.append(f"{action} {target} ({step})" if step else f"{action} {target}")
    doing = f", while at: {', '.join(told)}" if told else ""
    return f"{lines[0]['verb']} of {lines[0]['at']} did not come to its end{doing}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _line(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _lines(journal: Path) -> list[dict[str, Any]]:
    """All whole lines: the last one of a killed run may be cut."""
    found = []
    for text in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json_value(text)
        except ValueError:
            break
        if isinstance(line, dict) and "type" in line:
            found.append(line)
    return found if found and "verb" in found[0] else []


# Notes on hosts: what a verb is about to do with a container, until it is done; the run after a killed one reads them.
#
# Only what cannot be seen of the container itself is written down, such as that it ran before it was stopped. It lies
# beside the run lock, as an object of the same kind, which a killed run leaves behind and a rollback does not undo.

PREFIX = "provisioner-unfinished-"


def note(containers: Iterable[Instance], work: str, effects: Effects) -> None:
    """Write down that ``work`` is begun with these containers; what was written of them before no longer counts."""
    for container in containers:
        provider, name = effects.providers[container.host], _name(container)
        written = {
            "lab": container.lab,
            "host": container.host,
            "container": container.name,
            "work": work,
            "volumes": " ".join(volumes_of(container)),
            "nonce": secrets.token_hex(8),  # by which a host whose answer was lost tells whose it is
        }
        if not provider.locks.create(name, written):
            provider.locks.delete(name)
            provider.locks.create(name, written)


def noted(lab: str, work: str, effects: Effects) -> frozenset[str]:
    """The names of the lab's containers with which ``work`` was begun and not ended."""
    return frozenset(written.get("container", "") for _, written in _read(lab, work, effects).values())


def drop_volumes_of(lab: str, work: str, effects: Effects) -> None:
    """End ``work`` with all containers: delete the volumes that they used, but for those that are still needed."""
    from provisioner.reconcile.volumes import delete_unused  # nothing that a plan needs

    for name, (host, written) in _read(lab, work, effects).items():
        delete_unused(written.get("volumes", "").split(), lab, effects.providers[host])
        effects.providers[host].locks.delete(name)


def volumes_of(container: Instance) -> list[str]:
    """The names of the volumes that are mounted in it, or were when a snapshot of it was taken."""
    mounted = {device.properties["volume"] for device in container.devices if device.kind == "volume"}
    return sorted(mounted.union(*(snapshot.volumes for snapshot in container.snapshots)))


def forget(containers: Iterable[Instance], effects: Effects) -> None:
    """It is done, or nobody wants it any more."""
    by_host: dict[str, set[str]] = {}
    for container in containers:
        by_host.setdefault(container.host, set()).add(_name(container))
    for host, names in by_host.items():
        provider = effects.providers[host]
        for name in names.intersection(provider.locks.read(PREFIX)):
            provider.locks.delete(name)


def _read(lab: str, work: str, effects: Effects) -> dict[str, tuple[str, Mapping[str, str]]]:
    """What is written of that work, and on which host, by the objects' names."""
    found: dict[str, tuple[str, Mapping[str, str]]] = {}
    for host, provider in effects.providers.items():
        for name, written in provider.locks.read(f"{PREFIX}{lab}_").items():
            # The nodes of a cluster have these objects in common.
            if (written.get("lab"), written.get("host"), written.get("work")) == (lab, host, work):
                found[name] = (host, written)
    return found


def _name(container: Instance) -> str:
    # No name of a lab or a container has an underscore: two of them never make one.
    return f"{PREFIX}{container.lab}_{container.name}"
