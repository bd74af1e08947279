"""A small lab to change by hand, and every change that can be made to what its stamps name, each with its way back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from provisioner.cli.session import Session
from provisioner.inside import agent
from provisioner.lab.opening import open_lab
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.observe import survey
from provisioner.values.state import Execution
from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY, Lab, Ran
from tests.lab_files import lab_text

ENGINE, GATEWAY = "drift-engine", "drift-gateway"
FILE = lab_text("drift")
PYTHON = "/usr/bin/python3"
NO_PYTHON = frozenset({"python3 is missing", "python3 cannot be run"})
"""What is said of every role of a container into which nobody can look."""
STRANGER = "1"
"""A user and a group that no service of ours runs as: daemon."""
FIXED = "what cannot be written to is covered by a mount, and nothing can be mounted in the place of a link or a folder"
"""Why what is mounted read-only has fewer changes: ``replaced by a link`` and ``replaced by a folder`` are left out."""
SETTLE_TIMEOUT_S = 120.0
POLL_S = 0.2
STALE = "has not read its files as they are"


@dataclass(frozen=True)
class Mutation:
    """One thing of one role, changed by hand: ``change`` and ``undo`` are shell; a look then says ``words`` of it."""

    address: str
    kind: str
    name: str
    what: str
    change: str
    undo: str
    words: str
    bare: str = ""
    """The change alone, for a thing that is not put aside before."""
    is_mounted: bool = False

    def __str__(self) -> str:
        return f"{self.address} {self.name} {self.what}".replace("/", "|")

    @property
    def container(self) -> str:
        """Where it is done."""
        return self.address.partition("/")[0]

    def is_told_by(self, found: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether the reasons of its role name the thing and say what has become of it."""
        reasons = found.get(self.address, ())
        return any(
            one in NO_PYTHON if self.words in NO_PYTHON else self.name in one and self.words in one for one in reasons
        )


class DriftLab(Lab):
    """An engine and a gateway, looked at in process as ``plan`` looks at them, and changed as root inside."""

    def look(self) -> dict[str, tuple[str, ...]]:
        """Why roles have to be run, by address: nothing when everything is as it was."""
        reasons = survey(self._opened, self.effects).inside.reasons
        return {str(address): why for address, why in reasons.items()}

    def sh(self, container: str, script: str) -> str:
        """Run a script in the container, which has to succeed; what it wrote."""
        ran: Execution = self.effects.providers["local"].execute(container, ["sh", "-euc", script], timeout_s=60)
        assert ran.returncode == 0, f"{script}\n{ran.stderr.decode()}"
        return ran.stdout.decode()

    def stamps(self, container: str) -> list[dict[str, Any]]:
        """The container's stamps, as they lie there."""
        text = self.sh(container, f"for one in {agent.FOLDER}/*.json; do cat $one; echo; done")
        return [json.loads(line) for line in text.splitlines() if line]

    def seen(self) -> dict[str, dict[str, Any]]:
        """The state of everything that is managed when it was stamped, by address; content by its digest's absence."""
        return {
            f"{name}/{stamp['role']}": {kind: _without_content(kind, things) for kind, things in stamp["seen"].items()}
            for name in (ENGINE, GATEWAY)
            for stamp in self.stamps(name)
        }

    def main_pid(self, container: str, unit: str) -> str:
        """The process of a service."""
        return self.sh(container, f"systemctl show --property MainPID --value {unit}").strip()

    def mutations(self) -> list[Mutation]:
        """Every change of everything that the stamps of the running containers name."""
        self._all = [one for name in (ENGINE, GATEWAY) for stamp in self.stamps(name) for one in self._of(name, stamp)]
        return self._all

    def affected(self, mutation: Mutation) -> set[str]:
        """What has to be run for it: its own role; without python3, which looks, every role of the container."""
        if mutation.words not in NO_PYTHON:
            return {mutation.address}
        return {one.address for one in self._all if one.container == mutation.container}

    def settled(self) -> dict[str, tuple[str, ...]]:
        """What a look says once services that were started a moment ago have come up."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while (found := self.look()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return found

    def logs(self) -> set[str]:
        """The names of the logs of playbooks that were run."""
        return {log.name for log in (self.folder / ".provision" / "logs").glob("*.log")}

    def up(self, *arguments: str) -> Ran:
        """``up --yes``."""
        return self.provision("up", "--yes", *arguments)

    def answers(self) -> None:
        """Assert that both services do their work."""
        for container, port, model, key in ((ENGINE, 8080, "tiny", ENGINE_KEY), (GATEWAY, 4000, "fast", MASTER_KEY)):
            answer = self.ask(container, port, model, key)
            assert answer.status == 200, (container, answer.body)
            assert answer.text

    @cached_property
    def effects(self) -> Effects:
        """The lab's hosts, on which nothing can be confirmed."""
        return Session().effects(self._opened)

    @cached_property
    def _opened(self) -> Any:
        return open_lab(self.folder / "homelab.yml")

    def write(self, text: str = FILE) -> None:
        """Write the file and its secrets, and look at it anew from now on."""
        super().write(text)
        self.__dict__.pop("_opened", None)

    def _of(self, container: str, stamp: Mapping[str, Any]) -> Iterator[Mutation]:
        address, seen = f"{container}/{stamp['role']}", stamp["seen"]
        files_of_all = {kind: seen[kind] for kind in ("paths", "reloaded", "watched")}
        paths = " ".join([*seen["paths"], *seen["reloaded"], *seen["venvs"]])
        fixed = "for p in %s; do touch -c -h -r $p $p 2>/dev/null || echo $p; done" % paths  # noqa: UP031 - $ and {}
        read_only = set(self.sh(container, fixed).split()) if paths else set()
        for kind, things in files_of_all.items():
            for path, state in things.items():
                mutations = (_covered if path in read_only else _replaced)(address, path, state)
                yield from (replace(one, kind=kind) for one in mutations)
        for name in seen["venvs"]:
            yield from _venv(address, name)
        for name in seen["packages"]:
            yield from _package(address, name)
        for name, state in seen["units"].items():
            files = [one for one, is_ in seen["paths"].items() if is_[0] == "file" and one not in read_only]
            yield from _unit(address, name, state, files[0])
        for name, state in seen["helpers"].items():
            changes = _unit(address, name, state, "/none")
            yield from (replace(one, kind="helpers") for one in changes if one.words != STALE)
        for name, state in seen["users"].items():
            yield from _user(address, name, state)


def _without_content(kind: str, things: Mapping[str, Any]) -> dict[str, Any]:
    """Digests are salted anew by each stamp."""
    if kind not in ("paths", "reloaded", "watched"):
        return dict(things)
    return {name: one and [*one[:4], one[4] if one[0] == "link" else ""] for name, one in things.items()}


def _bits(address: str, state: list[Any], there: str) -> Iterator[tuple[str, str, str]]:
    """What can be changed on a copy of a thing that lies ``there``: what, shell, words."""
    _kind, mode, owner, group, _content = state
    assert STRANGER not in (str(owner), str(group)), address
    if _kind == "file":
        yield "edited", f"echo >> {there}", "edited"
    if _kind != "link":
        yield "mode", f"chmod {int(mode, 8) ^ 0o011:04o} {there}", "mode is"
    yield "owner", f"chown -h {STRANGER} {there}", "owner is"
    yield "group", f"chgrp -h {STRANGER} {there}", "group is"


def _replaced(address: str, path: str, state: list[Any]) -> Iterator[Mutation]:
    """What can be written to: the thing is put aside, whole, and something else takes its place."""
    kept = f"{path}.kept"
    aside, back = f"mv {path} {kept}", f"rm -rf {path}; mv {kept} {path}"
    is_python = path == PYTHON

    def made(what: str, script: str, words: str, bare: str = "") -> Mutation:
        return Mutation(address, "paths", path, what, f"{aside}; {script}", back, words, bare)

    for what, script, words in _bits(address, state, path):
        yield made(what, f"cp -a {kept} {path}; {script}", words, script)
    yield made("deleted", ":", "python3 is missing" if is_python else "is gone", f"rm -rf {path}")
    for what, script, words in (
        ("replaced by a fifo", f"mkfifo {path}", "type is special file"),
        ("replaced by a folder", f"mkdir {path}", "type is folder"),
    ):
        if state[0] != "folder" or "folder" not in what:
            yield made(what, script, "python3 cannot be run" if is_python else words, f"rm -rf {path}; {script}")
    if state[0] == "link":
        yield made("pointed elsewhere", f"ln -s $(readlink -f {kept}) {path}", "points to")
        yield made("replaced by a file", f"cp -L {kept} {path}", "type is file")
    else:
        yield made("replaced by a link", f"ln -s {kept} {path}", "type is link")


def _covered(address: str, path: str, state: list[Any]) -> Iterator[Mutation]:
    """What is mounted read-only (see ``FIXED``): something else is mounted over it, in this container only."""
    other = "/run/drift/other"
    back = f"umount {path}; rm -rf /run/drift"
    for what, script, words in _bits(address, state, other):
        change = f"mkdir -p /run/drift; cp -a {path} {other}; {script}; mount --bind {other} {path}"
        yield Mutation(address, "paths", path, what, change, back, words, is_mounted=True)
    change = f"mkdir -p /run/drift; mkfifo {other}; mount --bind {other} {path}"
    yield Mutation(address, "paths", path, "replaced by a fifo", change, back, "type is special file", is_mounted=True)
    folder = PurePosixPath(path).parent
    change = f"mkdir -p {other}; mount --bind {other} {folder}"
    back = f"umount {folder}; rm -rf /run/drift"
    yield Mutation(address, "paths", path, "deleted", change, back, "is gone", is_mounted=True)


def _venv(address: str, path: str) -> Iterator[Mutation]:
    other = "/run/drift/other"
    for what, made, words in (
        ("other distributions", f"{other}/python3.11/site-packages/other-1.0.dist-info", "holds other distributions"),
        ("emptied", other, "is gone"),
    ):
        change = f"mkdir -p {made}; mount --bind {other} {path}/lib"
        back = f"umount {path}/lib; rm -rf /run/drift"
        yield Mutation(address, "venvs", path, what, change, back, words, is_mounted=True)


def _package(address: str, name: str) -> Iterator[Mutation]:
    """As dpkg says it: what a removal or an upgrade does to the files is found by their paths."""
    status = "/var/lib/dpkg/status"
    for what, line, words in (
        ("removed", "s/^Status: .*/Status: deinstall ok config-files/", "is gone"),
        ("another version", "s/^Version: .*/Version: 99.1/", "is version 99.1"),
    ):
        change = f"cp -a {status} {status}.kept; sed -i '/^Package: {name}$/,/^$/{line}' {status}"
        yield Mutation(address, "packages", name, what, change, f"mv {status}.kept {status}", words, change)


def _unit(address: str, name: str, state: list[Any], read: str) -> Iterator[Mutation]:
    """``read``: one of the files that its process reads."""
    fragment, drop_in = state[2], f"/etc/systemd/system/{name}.d"
    again = "systemctl daemon-reload"
    for what, change, undo, words in (
        ("disabled", f"systemctl disable --quiet {name}", f"systemctl enable --quiet {name}", "enablement is disabled"),
        (
            "masked",
            f"mv {fragment} {fragment}.kept; ln -s /dev/null {fragment}; {again}",
            f"rm {fragment}; mv {fragment}.kept {fragment}; {again}",
            "masked",
        ),
        (
            "given a drop-in",
            f"mkdir {drop_in}; printf '[Service]\\nNice=5\\n' > {drop_in}/by-hand.conf; {again}",
            f"rm -r {drop_in}; {again}",
            "drop-ins is",
        ),
        (
            "older than its files",
            f"touch -r {read} {read}.kept; touch {read}",
            f"touch -r {read}.kept {read}; rm {read}.kept",
            STALE,
        ),
        ("stopped", f"systemctl stop {name}", f"systemctl start {name}", "state is inactive"),
    ):
        yield Mutation(address, "units", name, what, change, undo, words, change)


def _user(address: str, name: str, state: list[Any]) -> Iterator[Mutation]:
    """The user's processes run on, which is why ``usermod`` would refuse most of it."""
    files = "for f in passwd group shadow gshadow; do"
    keep, back = f"{files} cp -a /etc/$f /etc/$f.kept; done", f"{files} mv /etc/$f.kept /etc/$f; done"
    field = "s#^(%s(:[^:]*){%d}:)[^:]*#\\1%s#"
    for what, script, words in (
        ("deleted", f"userdel -f {name}", "is gone"),
        ("another shell", f"usermod --shell /bin/sh {name}", "shell is /bin/sh"),
        ("another home", f"sed -Ei '{field % (name, 4, '/elsewhere')}' /etc/passwd", "home is /elsewhere"),
        ("another group", f"sed -Ei '{field % (name, 2, STRANGER)}' /etc/passwd", f"group is {STRANGER}"),
        ("another id", f"sed -Ei '{field % (name, 1, '4242')}' /etc/passwd", f"id is 4242, was {state[0]}"),
        ("in a further group", f"usermod --append --groups daemon {name}", "groups is"),
    ):
        yield Mutation(address, "users", name, what, f"{keep}; {script}", back, words, script)
