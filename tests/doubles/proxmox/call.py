"""One call on its way to its answer, and the list of what answers it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from tests.doubles.proxmox import routes
from tests.doubles.proxmox.guest import Guest
from tests.doubles.proxmox.schema import Value
from tests.doubles.proxmox.tasks import Task
from tests.doubles.proxmox.world import Node, World

ROOT = "root@pam"


@dataclass(frozen=True)
class Counted:
    """A part of a list, and how long the whole is."""

    data: list[object]
    total: int


@dataclass(frozen=True)
class Call:
    """A call whose parameters were checked. ``node`` answers it; ``user`` is ``user@realm`` or ``user@realm!token``."""

    world: World
    node: Node
    user: str
    given: Mapping[str, Value]

    def text(self, name: str, default: str = "") -> str:
        """A parameter, or ``default`` when it was not given."""
        return str(self.given.get(name, default))

    def flag(self, name: str) -> bool:
        """A boolean parameter; off when it was not given."""
        return self.given.get(name) == "1"

    def number(self, name: str, default: int = 0) -> int:
        """A whole number."""
        return int(self.text(name, str(default)))

    @property
    def vmid(self) -> int:
        """The guest's number."""
        return self.number("vmid")

    @property
    def is_root(self) -> bool:
        """Whether root@pam is there in person: no token, root's own included, counts."""
        return self.user == ROOT

    def guest(self) -> Guest:
        """The guest that the call is about."""
        return self.world.guest(self.vmid, self.node.name)

    def may(self, path: str, *privileges: str) -> bool:
        """Whether the caller has all of the privileges."""
        return self.world.access.permissions.may(self.user, path, privileges)

    def may_any(self, path: str, *privileges: str) -> bool:
        """Whether the caller has one of the privileges."""
        return self.world.access.permissions.may(self.user, path, privileges, one_is_enough=True)

    def check(self, path: str, *privileges: str) -> None:
        """Refuse a caller without them."""
        self.world.access.permissions.check(self.user, path, privileges)

    def check_any(self, path: str, *privileges: str) -> None:
        """Refuse a caller with none of them."""
        self.world.access.permissions.check(self.user, path, privileges, one_is_enough=True)

    def begin(self, kind: str, ident: object, work: Callable[[Task], None]) -> str:
        """Start a task on the node and give its UPID."""
        return self.world.tasks.begin(self.node.name, kind, str(ident), self.user, work)


Handler = Callable[[Call], object]
_HANDLERS: dict[str, Handler] = {}


def answers(*keys: str) -> Callable[[Handler], Handler]:
    """Register what answers ``VERB /path/{template}``."""

    def registered(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(keys, handler))
        return handler

    return registered


@cache
def handlers() -> Mapping[str, Handler]:
    """All that answer, from every module in ``routes``."""
    for module in pkgutil.iter_modules(routes.__path__):
        importlib.import_module(f"{routes.__name__}.{module.name}")
    return _HANDLERS
