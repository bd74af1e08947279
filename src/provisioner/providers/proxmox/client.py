"""One Proxmox VE cluster, reached through one of its nodes: calls, tasks, and what is repeated when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from provisioner.providers.base import OnProgress
from provisioner.providers.proxmox import failures, forms, tasks
from provisioner.providers.proxmox.access import Access
from provisioner.providers.proxmox.backoff import Backoff
from provisioner.providers.proxmox.failures import PveError, UnreachableError

if TYPE_CHECKING:
    from provisioner.providers.proxmox import tls
    from provisioner.providers.proxmox.login import Login

ROOT = "root@pam"
PATIENCE_S = 60.0
HASTY_TIMEOUT_S = 5.0
HASTY_PATIENCE_S = 1.0
PARALLEL = 10

T = TypeVar("T")


class Client:
    """Calls of a cluster's API, from many threads at once; nothing is connected to before the first one."""

    def __init__(self, access: Access, *, timeout_s: float = 30.0) -> None:
        self.access = access
        self.patience_s = PATIENCE_S
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._logins: dict[bool, Login] = {}
        self._shared: tls.Adapter | None = None
        self._was_reached = False
        self._node = access.node
        self._hasty: Client | None = None

    @property
    def node(self) -> str:
        """The node that is ours: the one that the file names, else the one that answers."""
        if self._node is None:
            self._node = self._answering_node()
        return self._node

    @property
    def hasty(self) -> Client:
        """A client for what must not wait: a lock whose renewal hangs holds up those on other hosts."""
        with self._lock:
            if self._hasty is None:
                self._hasty = Client(self.access, timeout_s=HASTY_TIMEOUT_S)
                self._hasty.patience_s = HASTY_PATIENCE_S
            return self._hasty

    def get(self, *path: object, **query: object) -> Any:
        """The answer of the API at ``path``, each part of which is quoted."""
        return self._call("GET", path, query)

    def find(self, *path: object, **query: object) -> Any | None:
        """The answer at ``path``, None when there is no such thing."""
        try:
            return self.get(*path, **query)
        except PveError as error:
            if failures.is_missing(error):
                return None
            raise

    def post(self, *path: object, as_root: bool = False, **form: object) -> Any:
        """Make something; ``as_root`` as root@pam itself where the file gives its password."""
        return self._call("POST", path, form, as_root=as_root)

    def put(self, *path: object, as_root: bool = False, **form: object) -> Any:
        """Change something."""
        return self._call("PUT", path, form, as_root=as_root)

    def delete(self, *path: object, as_root: bool = False, **query: object) -> Any:
        """Delete something."""
        return self._call("DELETE", path, query, as_root=as_root)

    def task(
        self, upid: str, *, name: str = "", on_progress: OnProgress | None = None, timeout_s: float = tasks.TIMEOUT_S
    ) -> str:
        """Wait for a task's end: the last line it said, or its warnings; ``PveError`` with its log when it failed."""
        return tasks.wait(self, upid, name=name, on_progress=on_progress, timeout_s=timeout_s)

    def run(
        self,
        start: Callable[[], str],
        *,
        name: str = "",
        on_progress: OnProgress | None = None,
        timeout_s: float = tasks.TIMEOUT_S,
    ) -> str:
        """Start a task and wait for its end; again when it failed because somebody held a lock for too long."""
        backoff = Backoff(self.patience_s)
        while True:
            try:
                return self.task(start(), name=name, on_progress=on_progress, timeout_s=timeout_s)
            except PveError as error:
                if not failures.is_transient(error) or not backoff.wait():
                    raise

    def many(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls at once, as many as a node bears; their results in the same order."""
        if not calls:
            return []
        with ThreadPoolExecutor(min(PARALLEL, len(calls))) as pool:
            futures = [pool.submit(call) for call in calls]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _answering_node(self) -> str:
        try:
            entries = self.get("cluster", "status")
        except PveError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            nodes = self.get("nodes")
            if len(nodes) != 1:
                raise
            return str(nodes[0]["node"])
        for entry in entries:
            if entry["type"] == "node" and entry.get("local"):
                return str(entry["name"])
        raise PveError("The cluster does not say which of its nodes answers: write `node:` for the host.")

    def _call(self, verb: str, path: Sequence[object], given: Mapping[str, object], *, as_root: bool = False) -> Any:
        backoff = Backoff(self.patience_s)
        form = {name: _plain(value) for name, value in given.items() if value is not None}
        while True:
            try:
                answer = self._login(as_root=as_root).call(verb, path, form)
            except UnreachableError as error:
                error.lost = verb != "GET" and not error.unsent
                if not self._may_pass(error):
                    raise
                if not backoff.wait():
                    self._was_reached = False  # what is still to be asked does not wait as long again
                    raise
            except PveError as error:
                self._was_reached = True
                if not failures.is_transient(error) or not backoff.wait():
                    raise
            else:
                self._was_reached = True
                return forms.checked(path, answer) if verb == "GET" else answer

    def _may_pass(self, error: UnreachableError) -> bool:
        """Whether to ask again: never what may have been done, and not for a minute whether there is a host at all."""
        return error.is_passing and not error.lost and (self._was_reached or not error.unsent)

    def _login(self, *, as_root: bool) -> Login:
        access = self.access
        in_person = as_root and access.password is not None and access.user == ROOT
        with self._lock:
            if in_person not in self._logins:
                from provisioner.providers.proxmox import login, tls  # with proxmoxer and requests, which take a while

                self._shared = self._shared or tls.Adapter(access)
                self._logins[in_person] = login.Login(access, self._shared, self._timeout_s, as_root=in_person)
            return self._logins[in_person]


def _plain(value: object) -> object:
    """Booleans as numbers: PVE does not take requests' ``True``."""
    return int(value) if isinstance(value, bool) else value
