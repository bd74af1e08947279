"""What a live display remembers of each container, and which rows of that fit on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from provisioner.cli.progress import doing_text

State = Literal["", "done", "failed"]
PHASE = " | "
"""A task is named "phase | words"."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a container, one of its roles, or how many are not shown."""

    name: str
    doing: str = ""
    elapsed_s: float | None = None
    message: str = ""
    state: State = ""
    is_role: bool = False


@dataclass
class Role:
    """One role that works in a container: since when, until when (None: now), and what it does."""

    name: str
    begun: float
    until: float | None = None
    phase: str = ""
    words: str = ""
    state: State = ""

    def row(self, now: float) -> Row:
        """Its line; of one that is done only that, and how long it took."""
        elapsed_s = (now if self.until is None else self.until) - self.begun
        if self.state == "done":
            return Row(self.name, "", elapsed_s, state="done", is_role=True)
        return Row(self.name, self.phase, elapsed_s, self.words, self.state, is_role=True)


@dataclass
class Block:
    """One container or artifact: what is done to it, since when, and its roles in the order of their work."""

    name: str
    begun: float
    action: str = ""
    state: State = ""
    message: str = ""
    elapsed_s: float | None = None
    roles: dict[str, Role] = field(default_factory=dict)
    past: list[Row] = field(default_factory=list)
    """What was done to it before, such as its creation before its configuration."""

    def begin(self, action: str, now: float) -> None:
        """Something else is done to it from now on."""
        if self.state == "done":
            self.past.append(Row(f"{doing_text(self.action)} done", "", self.elapsed_s, state="done", is_role=True))
        self.action, self.begun = action, now
        self.state, self.message, self.elapsed_s = "", "", None
        self.roles.clear()

    def go_on(self, name: str, message: str, now: float) -> None:
        """It, or one of its roles, does this now; an empty message: it waits."""
        if not name:
            self.message = message
            return
        before = self._working
        if message and before is not None and before.name != name:
            before.state, before.until = "done", now if before.until is None else before.until
        role = self.roles.setdefault(name, Role(name, now))
        phase, separator, words = message.partition(PHASE)
        if message:
            role.phase, role.words = (phase, words) if separator else ("", message)
            role.state, role.until = "", None
        else:
            role.words, role.until = "", now

    def finish(self, elapsed_s: float, now: float) -> None:
        """It is done, and so are its roles."""
        self.state, self.message, self.elapsed_s = "done", "", elapsed_s
        for role in self.roles.values():
            role.state, role.until = "done", now if role.until is None else role.until

    def fail(self, message: str, now: float) -> None:
        """It has failed, in the role that worked last."""
        self.state, self.message, self.elapsed_s = "failed", message, now - self.begun
        role = self._working
        if role is not None:
            role.state, role.until = "failed", now if role.until is None else role.until

    def rest(self) -> None:
        """The display ends: of what was only looked at, every role that waits is done."""
        for role in self.roles.values():
            if not self.action and role.until is not None:
                role.state = "done"

    @property
    def _working(self) -> Role | None:
        return next((role for role in reversed(self.roles.values()) if not role.state), None)

    def head(self, now: float) -> Row:
        """Its own line."""
        elapsed_s = now - self.begun if self.elapsed_s is None else self.elapsed_s
        return Row(self.name, f"{doing_text(self.action)} {self.state}".strip(), elapsed_s, self.message, self.state)

    def line(self, now: float) -> Row:
        """All of it in one line: what its last role does stands beside its own name."""
        role, head = self._working, self.head(now)
        if role is None or self.message:
            return head
        parts = [part for part in (role.name, role.phase, role.words) if part]
        return Row(head.name, head.doing, head.elapsed_s, ": ".join(parts), head.state)

    def rows(self, now: float) -> list[Row]:
        """Its line, one for each thing that was done before, one for each role."""
        return [self.head(now), *self.past, *(role.row(now) for role in self.roles.values())]


def picture_rows(blocks: Sequence[Block], now: float, height: int) -> list[Row]:
    """The most telling picture that has at most ``height`` lines; what failed is always in it.

    First what is done becomes one line, then each container; then what still works is counted.
    """
    done = [block for block in blocks if block.state == "done"]
    others = [block for block in blocks if block.state != "done"]
    summary = [Row(f"{len(done)} done", state="done")] if done else []
    whole = _joined(block.rows(now) for block in blocks)
    if len(whole) <= height:
        return whole
    shorter = [*summary, *_joined(block.rows(now) for block in others)]
    if len(shorter) <= height:
        return shorter
    lines = [*summary, *(block.line(now) for block in others)]
    if len(lines) <= height:
        return lines
    failed = [block.line(now) for block in others if block.state == "failed"]
    working = [block.line(now) for block in others if block.state != "failed"]
    room = max(0, height - len(summary) - len(failed) - 1)
    more = [Row(f"{len(working) - room} more")] if working[room:] else []
    return [*failed, *working[:room], *more, *summary]


def _joined(groups: Iterable[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(groups))
