"""Evidence of a proof, taken out of containers: pictures of screens, and the last words of journals."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from provisioner.hosts.base import Provider
from provisioner.values.declared import masked
from provisioner.values.errors import ProviderError
from provisioner.values.events import Diagnostic, Event
from provisioner.values.facts import ACTIVE, ContainerFact, UnitState, by_address
from provisioner.values.plain_data import json_value
from provisioner.values.state import Finding, Instance, Screen, Service, secrets_of

TIMEOUT_S = 30.0
"""So long a look into a container may take."""

# Pictures that proofs took in containers, brought into `screens/` of the lab's folder, for its owner alone.

FOLDER = "screens"
ANSWER = "proof.json"
NAME = re.compile(r"(?:\./)?([a-z][a-z0-9_]{0,30})\.png", re.ASCII)
MOST_BYTES = 4 * 2**20
"""A container's word is not trusted with the controller's disk: a larger picture is left there."""
MOST_PICTURES = 10
PNG = b"\x89PNG\r\n\x1a\n"
PACKED_BYTES = 2 * MOST_BYTES * MOST_PICTURES
PACK = 'cd "$1" 2>/dev/null && find . -maxdepth 1 -type f -size -9000k | tar --create --file=- --files-from=-'


def gather(
    instances: Iterable[Instance], providers: Mapping[str, Provider], folder: Path, emit: Callable[[Event], None]
) -> dict[str, tuple[Screen, ...]]:
    """The pictures of every service of these running containers, by its address; older ones of the same name go.

    Those for which there is no room here are said, and left out.
    """
    found: dict[str, tuple[Screen, ...]] = {}
    for one in instances:
        for service in one.services:
            if not service.pictures:
                continue
            try:
                screens = _kept(service, _packed(service, providers[one.host]), folder)
            except OSError as error:
                emit(Diagnostic("warning", f"Unable to keep the pictures of {service.address}", str(error)))
                continue
            if screens:
                found[service.address] = screens
    return found


def _packed(service: Service, provider: Provider) -> bytes:
    """What its folder holds, nothing where that cannot be had: a picture less must not hide what a proof found."""
    command = ["sh", "-c", PACK, "sh", service.pictures]
    try:
        done = provider.execute(service.container, command, timeout_s=TIMEOUT_S, limit=PACKED_BYTES)
    except ProviderError:
        return b""
    return done.stdout if done.returncode == 0 else b""


def _kept(service: Service, packed: bytes, folder: Path) -> tuple[Screen, ...]:
    if not packed:
        return ()
    import tarfile  # nothing that services without pictures need

    try:
        members = list(_files(packed))
    except (tarfile.TarError, KeyError):  # not what we asked for; a link that leads nowhere
        return ()
    files = {name: content for name, content, _ in members}
    times = {name: _moment(mtime) for name, _, mtime in members}
    shows = _said(files.pop(ANSWER, b""))
    place = folder / FOLDER / service.container / service.role
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in place.glob("*.png"):
        if old.stem not in files:
            old.unlink(missing_ok=True)
    screens = []
    for name, content in sorted(files.items()):
        file = place / f"{name}.png"
        file.touch(mode=0o600)
        file.write_bytes(content)
        screens.append(Screen(name, shows.get(name, ""), str(file), times[name]))
    return tuple(screens)


def _moment(seconds: float) -> str:
    """When a file was written by its container's clock (ISO 8601); empty for what is no time at all."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else ""
    except (ValueError, OverflowError, OSError):  # a container may say any number
        return ""


def _files(packed: bytes) -> Iterator[tuple[str, bytes, float]]:
    """The pictures and the proof's answer by names, with when they were written; what is no picture is left out."""
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:  # packed ones could be far larger inside
        for member in archive.getmembers()[: MOST_PICTURES + 1]:
            found, stream = NAME.fullmatch(member.name), archive.extractfile(member)
            if stream is None or member.size > MOST_BYTES:
                continue
            content = stream.read()
            if member.name.removeprefix("./") == ANSWER:
                yield ANSWER, content, member.mtime
            elif found and content.startswith(PNG):
                yield found[1], content, member.mtime


def _said(answer: bytes) -> dict[str, str]:
    """What each picture was judged to show."""
    try:
        pictures = json_value(answer)["pictures"]
        return {str(name): str(shows) for name, shows in pictures.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


# Last words of services in their journals, for an error that says that one does not run.

LINES = 20
LINE_CHARACTERS = 240
MOST_CHARACTERS = 6000
READ = (
    'systemctl show --property=ActiveState --value -- "$1"; '
    f'journalctl --quiet --no-pager --output=cat --lines={LINES} --unit="$1" | tail -c {MOST_CHARACTERS}'
)
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""What steers a terminal: colours, the cursor, its title."""


def plain_line(line: str) -> str:
    """``line`` without what steers a terminal, and without characters that cannot be seen."""
    text = _SEQUENCES.sub("", line)
    return "".join(character for character in text if character == "\t" or character.isprintable())


def last_words(service: Service, provider: Provider, *, although_it_runs: bool = False) -> str:
    """The last lines that the service's unit wrote, as words of its own; "" where it runs, or none can be had.

    They are few and short, and hold no secret that the service was given.
    """
    if not service.unit:
        return ""
    try:
        done = provider.execute(service.container, ["sh", "-c", READ, "sh", service.unit], timeout_s=TIMEOUT_S)
    except ProviderError:  # a reason less must not hide what failed
        return ""
    state, _, journal = done.stdout.partition(b"\n")
    runs = state == ACTIVE.encode()
    if done.returncode != 0 or (runs and not although_it_runs):
        return ""
    lines = [f"  | {line}" for line in _shown(journal, service)]
    if not lines:
        return ""
    does = "runs and does not answer" if runs else "does not run"
    head = f"{service.address} {does}. The last lines of its journal, in its own words:"
    return "\n".join([head, *lines])


def explained(
    findings: Iterable[Finding],
    instances: Iterable[Instance],
    providers: Mapping[str, Provider],
    facts: Iterable[ContainerFact],
) -> tuple[Finding, ...]:
    """The same findings, those of units that do not run with what these wrote last."""
    units = by_address(facts, UnitState)
    down = {address for address, unit in units.items() if not unit.is_well}
    services = _with_hosts(instances)
    explained_findings = list[Finding]()
    for finding in findings:
        if finding.subject in down and finding.subject in services and finding.message.startswith("unit "):
            service, host = services[finding.subject]
            details = filter(None, (finding.details, last_words(service, providers[host])))
            explained_findings.append(replace(finding, details="\n".join(details)))
        else:
            explained_findings.append(finding)
    return tuple(explained_findings)


def _with_hosts(instances: Iterable[Instance]) -> dict[str, tuple[Service, str]]:
    """The services by their addresses, each with the host of its container."""
    services = dict[str, tuple[Service, str]]()
    for instance in instances:
        for service in instance.services:
            services[service.address] = service, instance.host
    return services


def _shown(journal: bytes, service: Service) -> Sequence[str]:
    """The last lines of the journal that say something, without secrets and cut to a length that can be read."""
    text = journal[-MOST_CHARACTERS:].decode(errors="replace")
    if len(journal) >= MOST_CHARACTERS:
        text = text.partition("\n")[2]  # it was cut, perhaps within a secret
    clean = masked(text, secrets_of(service.variables).values())
    shown = list[str]()
    for line in clean.splitlines():
        shortened = plain_line(line).rstrip()[:LINE_CHARACTERS]
        if shortened.strip():
            shown.append(shortened)
    return shown[-LINES:]
