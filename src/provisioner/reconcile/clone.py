"""A copy of a running container to try something: ``clone NAME COPY --set …`` writes it into the file and proves it.

The original is only read: it runs on, and nothing of the file changes for it or for any other container.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provisioner.lab.artifacts import has_nobody_to_ask
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ResolvedContainer, host_name
from provisioner.labfile.document import parse_document
from provisioner.labfile.editing import (
    CONTAINERS,
    EditError,
    Place,
    Setting,
    value_written,
    with_copy,
    without_container,
)
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Container
from provisioner.labfile.whole_files import replace_text, require_room
from provisioner.reconcile import journal, snapshots
from provisioner.reconcile.effects import Effects, Outcome
from provisioner.reconcile.journal import recording
from provisioner.reconcile.observe import Survey, observe, survey
from provisioner.reconcile.up import up
from provisioner.values.errors import InputError, PreflightError, ProviderError, ProvisionError
from provisioner.values.events import Diagnostic
from provisioner.values.plain_data import Foreign
from provisioner.values.plan import Change, Plan, Wishes
from provisioner.values.refusals import path_text
from provisioner.values.state import Fleet, Instance

OWN = ("copy_of", "adopt", "host", "image")
"""What of a container is not for ``--set``: a copy is of the same image, on the same host."""
SERVICES = "services"
PATH = re.compile(r"[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)*", re.ASCII)
RENEW_S = 120.0
RENEW = """set -eu
units=$1
shift
[ -z "$units" ] || systemctl disable --quiet --now $units
for file; do rm -f -- "$file"; done
if ls /etc/ssh/ssh_host_*_key > /dev/null 2>&1; then
  rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
  if command -v ssh-keygen > /dev/null; then
    ssh-keygen -A > /dev/null
    systemctl try-restart ssh.service
  fi
fi
"""
"""Ends the units that it is told, takes away files, and makes new host keys where the container has some.

The roles start the units again, once their options are the copy's: until then nothing computes as the original does.
"""
SET_IP = "Give it an address that nothing else has: --set {kind}.network.ip=ADDRESS/PREFIX"
_GATEWAYS = {"gateway": "ip", "gateway6": "ip6"}
"""The keys of gateways, and those of the addresses that they go with."""
NETWORK = "network"
"""The setting of a container with its network card, where its kind of host has one."""
CARD = ("gpu", "node")
"""Kinds of devices by which a container has a card."""


@dataclass(frozen=True, slots=True)
class NewText:
    """What the file is to say instead of what was read of it."""

    file: Path
    before: str
    after: str

    def write(self) -> None:
        """Have the file say it; raises ``InputError`` where it no longer says what was read of it."""
        if read_text(self.file) != self.before:
            raise InputError(
                f"Unable to write {self.file}: it was changed meanwhile", resolution="Run the same command again."
            )
        replace_text(self.file, self.after, mode=self.file.stat().st_mode)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The copy that is asked for: of which container, its name, and what is another value in it."""

    source: str
    name: str
    settings: tuple[Setting, ...]

    @property
    def what(self) -> str:
        """The beginning of every refusal."""
        return f"Unable to copy container {self.source} as {self.name}"

    @property
    def words(self) -> str:
        """The other values, as they were asked for."""
        return ", ".join(f"{'.'.join(setting.path)}={setting.written}" for setting in self.settings)

    def gives_address(self, path: Place) -> bool:
        """Whether a fixed address was asked for at ``path``, or something that it is part of."""
        return any(path[: len(one.path)] == one.path and "/" in one.written for one in self.settings)

    def says(self, path: Place) -> bool:
        """Whether what stands at ``path`` was asked for, or something that it is part of."""
        return any(path[: len(setting.path)] == setting.path for setting in self.settings)


def settings_of(words: Sequence[str]) -> tuple[Setting, ...]:
    """What ``--set PATH=VALUE`` says, each once; raises ``InputError`` for what is none."""
    found: dict[Place, Setting] = {}
    for word in words:
        path, sign, written = word.partition("=")
        if not sign or not PATH.fullmatch(path) or not written.strip():
            raise InputError(
                f"Unable to use --set {path}: it says no option and its value",
                resolution="Write the path below the container's name: --set services.ROLE.OPTION=VALUE",
            )
        place = tuple(path.split("."))
        if place in found:
            raise InputError(f"Unable to use --set {path}: it is set twice", resolution="Leave one of them out.")
        found[place] = Setting(place, written.strip())
    return tuple(found.values())


def text_with_copy(lab: Lab, text: str, wanted: Wanted) -> str:
    """The file's text with the copy in it; raises ``InputError`` for what cannot be written so.

    It is the same text where a run of the same command was killed when it had written it.
    """
    lab.check_targets([wanted.source])
    if wanted.name not in lab.spec.containers:
        return _text_with_new(lab, text, wanted)
    with suppress(EditError, InputError):
        if _said(_text_with_new(lab, without_container(text, wanted.name), wanted)) == _said(text):
            return text
    raise InputError(
        f"{wanted.what}: the file has a container {wanted.name}",
        resolution=f"Choose another name, or take that one away: provision destroy {lab.loaded.path} {wanted.name}",
    )


def _said(text: str) -> Any:
    return parse_document(text.encode()).data


def _text_with_new(lab: Lab, text: str, wanted: Wanted) -> str:
    container = lab.spec.containers[wanted.source]
    for setting in wanted.settings:
        _check(setting, container, lab, wanted)
    given_up = [setting for setting, _ in _given_up(container, wanted)]
    settings = (*wanted.settings, *given_up, Setting(("copy_of",), wanted.source))
    try:
        return with_copy(text, wanted.source, wanted.name, settings)
    except EditError as error:
        raise InputError(
            f"{wanted.what}: its block cannot be written into {lab.loaded.path}",
            details=f"{wanted.words}: {error}",
            resolution="Write that container in lines of its own, or set a whole option: services.ROLE.OPTION=VALUE",
        ) from error


def _check(setting: Setting, container: Container, lab: Lab, wanted: Wanted) -> None:
    """Raise ``InputError`` where the rules of the file could not say what is wrong with a setting."""
    path = ".".join(setting.path)
    first, *below = setting.path
    if first in OWN:
        raise InputError(
            f"{wanted.what}: {first} of a copy is what it is of its original",
            resolution="Leave it out, or write another container into the file.",
        )
    role = below[0] if first == SERVICES and below else ""
    if first == SERVICES and role not in container.services:
        hint = f"Its services: {', '.join(container.services) or 'none'}"
        raise InputError(f"{wanted.what}: {wanted.source} has no service {role or '(none is named)'}", resolution=hint)
    try:
        value = value_written(setting.written)
    except EditError as error:
        raise InputError(f"{wanted.what}: the value of {path} is no YAML: {error}") from error
    for name in reversed(setting.path):
        value = {name: value}
    for in_clear in parse_spec({CONTAINERS: {wanted.name: value}}, lab.resolved.catalog).warnings:
        secret = path_text(in_clear.path[2:])
        raise InputError(
            f"{wanted.what}: {secret} is a secret, and others see what stands on a command line",
            resolution="Write !secret NAME in its place, and NAME=VALUE into secrets.env.",
        )


def _given_up(container: Container, wanted: Wanted) -> Iterator[tuple[Setting, str]]:
    """Yield what only one of two containers can have and was not asked for, as a copy has it instead, in words."""
    for setting, words in _of_one_alone(container, wanted):
        if not wanted.says(setting.path):
            yield setting, words


def _of_one_alone(container: Container, wanted: Wanted) -> Iterator[tuple[Setting, str]]:
    if container.adopt:
        yield Setting(("adopt",), "false"), ""
    for role, service in container.services.items():
        if service.expose == "lan":
            yield Setting((SERVICES, role, "expose"), "host"), f"{role} is not exposed to the LAN"
    if container.block is None:
        return
    for path, instead, words in container.block.given_up():
        if path[-1] in _GATEWAYS and wanted.gives_address((container.block.kind, *path[:-1], _GATEWAYS[path[-1]])):
            continue  # another address has the same gateway
        yield Setting((container.block.kind, *path), instead), words


def objection(container: ResolvedContainer) -> tuple[str, str] | None:
    """Why a container cannot be copied, and what to do; None where it can."""
    for service in container.services:
        if service.sites:
            return (
                f"{service.address} is a door: the names of its sites lead to one, and its certificate is its own",
                "Write another door into the file, with names of its own.",
            )
        if service.share:
            others = ", ".join(address for address in service.share if address != service.address)
            return (
                f"{service.address} takes turns on one card with {others}: a copy would take them in its name",
                f"Take it out of share while you try, and run: provision up FILE {service.container}",
            )
    return None


def make_copy(lab: Lab, with_copy: Lab, wanted: Wanted, effects: Effects, text: NewText) -> Outcome:
    """Copy the container as it is now, and apply the settings to the copy alone, which proves itself.

    ``with_copy``: the lab as the file says it once ``text`` is written. Raises ``PreflightError`` for what cannot
    be, with nothing touched; ``VerificationError`` leaves the copy as it is. Nothing is done unless confirmed.
    What a killed run of the same command has left is brought to its end.
    """
    if text.before == text.after:
        if observe(lab.name, effects.providers).instance(wanted.name) is None:
            raise PreflightError(
                f"{wanted.what}: the file has it, and its host does not",
                resolution=f"Take it out of the file, then run the same command again: {_taken_away(lab, wanted)}",
            )
        return _proved(with_copy, wanted, effects, lambda plan: _loses_nothing(plan) and effects.confirm(plan))
    with effects.locked(lab.name, snapshots.CLONE) as lease:
        source, copy, left = _surveyed(lab, with_copy, wanted, effects)
        why = f"as a copy of {source.name} as it is now, with {wanted.words}"
        made = Plan((Change("create", wanted.name, None, copy, why),))
        effects.announce(made)
        for _, words in _given_up(lab.spec.containers[wanted.source], wanted):
            if words:
                effects.emit(Diagnostic("note", f"{wanted.name} gets what two cannot have of its own: {words}"))
        if not effects.confirm(made):
            return Outcome(made, applied=False)
        lease.check()
        with recording(lab.folder, snapshots.CLONE, effects.emit) as emit:
            require_room(text.file, text.after)
            if left is not None:
                effects.providers[left.host].delete(left)
            _copied(with_copy, source, copy, replace(effects, emit=emit), text)
    _proved(with_copy, wanted, effects, _loses_nothing)
    return Outcome(made, applied=True)


def _proved(with_copy: Lab, wanted: Wanted, effects: Effects, confirm: Callable[[Plan], bool]) -> Outcome:
    """Make the copy what the file says of it, and have it prove itself."""
    try:
        outcome = up(with_copy, replace(effects, confirm=confirm), Wishes(targets=frozenset({wanted.name})))
    except ProvisionError:
        leave = _taken_away(with_copy, wanted)
        effects.emit(Diagnostic("note", f"{wanted.source} was left alone; {wanted.name} is taken away by: {leave}"))
        raise
    return outcome


def _taken_away(lab: Lab, wanted: Wanted) -> str:
    return f"provision destroy {lab.loaded.path} {wanted.name}"


def _loses_nothing(plan: Plan) -> bool:
    """Agree with what is to be done to the copy, unless it would be made anew without what it is a copy of."""
    return not plan.of("replace", "delete")


def _surveyed(lab: Lab, with_copy: Lab, wanted: Wanted, effects: Effects) -> tuple[Instance, Instance, Instance | None]:
    """The original as it is, the copy as it shall be, and what a killed run has left of it.

    Raises ``PreflightError`` where it cannot be made.
    """
    _refuse(wanted, objection(lab.resolved.containers[wanted.source]))
    copied = with_copy.resolved.containers[wanted.name]
    if copied.page is not None and has_nobody_to_ask(copied, lab.resolved.containers[wanted.source]):
        hint = SET_IP.format(kind=copied.page.kind)
        _refuse(wanted, (f"it would ask DHCP, and build: of host {host_name(copied)} says that there is none", hint))
    there = observe(lab.name, effects.providers)
    source = there.instance(wanted.source)
    if source is None:
        why, hint = there.absence(wanted.source, lab.loaded.path)
        raise PreflightError(wanted.what, details=f"{wanted.source}: {why}", resolution=hint)
    left = snapshots.left_copy(replace(source, name=wanted.name), effects)
    if left is None:
        _refuse(wanted, _taken(wanted.name, host_name(lab.resolved.containers[wanted.source]), there))
    else:
        effects.emit(Diagnostic("note", f"{left.name} is of a run that was killed: it is deleted, and copied anew"))
    obstacle = effects.providers[source.host].snapshots.obstacle(source)
    _refuse(wanted, (obstacle, "Copy a container all of whose data is its own.") if obstacle else None)
    before = survey(lab, replace(effects, emit=lambda _event: None), [wanted.source])  # the other one says the same
    after = survey(with_copy, effects, [wanted.source])
    changed = _changed_by_it(before, after)
    _refuse(wanted, (f"{', '.join(changed)} would be changed by it", "Copy another one.") if changed else None)
    if after.cards:
        from provisioner.serving.fit import check_fit  # a lab without cards pays nothing for them

        check_fit(with_copy, after.models.files, after.cards, effects.emit, frozenset({wanted.name}))
    copy = after.desired.instance(wanted.name)
    assert copy is not None  # noqa: S101  # it is in the file
    return source, copy, left


def _taken(name: str, host: str, there: Fleet) -> tuple[str, str] | None:
    """Why a name is not free, and what to do."""
    hint = "Choose another name."
    if there.instance(name) is not None:
        return f"the lab has a container {name}, which is not in the file", f"{hint} Or: provision destroy {name}"
    if name in there.hosts[host].unmanaged:
        return f"host {host} has a container {name} that is not this lab's", hint
    if any(name in state.moved for state in there.hosts.values()):
        return f"the lab has a container {name}, which was moved", hint
    return None


def _changed_by_it(before: Survey, after: Survey) -> list[str]:
    """The containers that would no longer be what they are with the copy beside them."""
    changed = []
    for one in before.desired.instances:
        other = after.desired.instance(one.name)
        if other is None or (one, one.services, one.settings) != (other, other.services, other.settings):
            changed.append(one.name)
    return changed


def _refuse(wanted: Wanted, why: tuple[str, str] | None) -> None:
    if why is not None:
        raise PreflightError(wanted.what, details=why[0], resolution=why[1])


def _copied(with_copy: Lab, source: Instance, wanted: Instance, effects: Effects, text: NewText) -> None:
    """Make the copy, give it keys of its own, and write it into the file: all of it, or nothing is left."""
    provider = effects.providers[source.host]
    copy = replace(source, name=wanted.name)
    journal.note([copy], snapshots.CHANGED_CLONE, effects)
    try:
        made = snapshots.worked(effects, wanted.name, snapshots.CLONE, lambda: provider.clone(source, wanted.name))
        try:
            # Its card it gets from up, when nothing would be loaded as in the original.
            without_card = tuple(device for device in made.devices if device.kind not in CARD)
            settings = dict(made.settings)
            if NETWORK in wanted.settings:  # where no DHCP answers, it must not ask for an address
                settings[NETWORK] = wanted.settings[NETWORK]
            if (without_card, settings) != (made.devices, made.settings):
                made = provider.update(replace(made, devices=without_card, settings=settings))
            provider.start(made)
            provider.wait_until_ready(made)
            _renew(with_copy.resolved.containers[wanted.name], effects)
            text.write()
        except BaseException:  # an interruption, too, must not leave a copy with the original's keys
            provider.delete(made)
            raise
    finally:
        journal.forget([copy], effects)


def _renew(container: ResolvedContainer, effects: Effects) -> None:
    """End its services, and take away what made it its original to its clients; its roles bring both anew."""
    pages = [service.page for service in container.services]
    units = " ".join(page.unit for page in pages if page.unit)
    files = [file for page in pages for file in page.identity]
    command = ["sh", "-c", RENEW, "sh", units, *files]
    done = effects.providers[host_name(container)].execute(container.name, command, timeout_s=RENEW_S)
    if done.returncode:
        raise ProviderError(
            f"Unable to give container {container.name} keys of its own",
            details=Foreign.of_output(done.stderr),
            resolution="The copy was deleted again. Run the same command with -v.",
        )


def read_text(file: Path) -> str:
    """What the file says, its line ends as they are."""
    with file.open(encoding="utf-8", newline="") as stream:
        return stream.read()


def take_out(lab: Lab, names: Sequence[str], effects: Effects) -> tuple[str, ...]:
    """Take copies that were destroyed out of the file; their names. What cannot be taken out is said."""
    file = lab.loaded.path
    gone = []
    for name in names:
        container = lab.spec.containers.get(name)
        if container is None or container.copy_of is None:
            continue
        try:
            text = read_text(file)
            NewText(file, text, without_container(text, name)).write()
        except (EditError, ProvisionError) as error:
            effects.emit(Diagnostic("warning", f"{name} is still in {file}: {error}", resolution="Take it out of it."))
            continue
        gone.append(name)
    return tuple(gone)
