"""The API of a Proxmox VE cluster, through one of its nodes: calls, tasks, and what is repeated when it fails."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from provisioner.hosts.base import OnProgress
from provisioner.hosts.proxmox import failures
from provisioner.hosts.proxmox.access import ROOT, Access
from provisioner.hosts.proxmox.failures import PveError, UnreachableError

if TYPE_CHECKING:
    from provisioner.hosts.proxmox import session
    from provisioner.hosts.proxmox.session import Login

PATIENCE_S = 60.0
TIMEOUT_S = 40.0
"""Longer than the 30 s after which a node gives up another process of its own: its words say who did not answer."""
HASTY_TIMEOUT_S = 5.0
HASTY_PATIENCE_S = 1.0
PARALLEL = 10
TASK_TIMEOUT_S = 3600.0

T = TypeVar("T")


class Client:
    """Calls of a cluster's API, from many threads at once; nothing is connected to before the first one."""

    def __init__(self, access: Access, *, timeout_s: float = TIMEOUT_S) -> None:
        self.access = access
        self.patience_s = PATIENCE_S
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._logins: dict[bool, Login] = {}
        self._shared: session.TlsAdapter | None = None
        self._was_reached = False
        self._has_node_answered = False
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
        self, upid: str, *, name: str = "", on_progress: OnProgress | None = None, timeout_s: float = TASK_TIMEOUT_S
    ) -> str:
        """Wait for a task's end: the last line it said, or its warnings; ``PveError`` with its log when it failed."""
        return wait_for_task(self, upid, name=name, on_progress=on_progress, timeout_s=timeout_s)

    def run(
        self,
        start: Callable[[], str],
        *,
        name: str = "",
        on_progress: OnProgress | None = None,
        timeout_s: float = TASK_TIMEOUT_S,
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
                error.lost = verb != "GET" and error.status in failures.SILENT
                may_succeed = failures.is_transient(error) or self._may_answer(error, path)
                if not may_succeed or not backoff.wait():
                    raise
            else:
                self._was_reached = True
                self._has_node_answered |= self._is_of_node(path)
                return checked_answer(path, answer) if verb == "GET" else answer

    def _may_pass(self, error: UnreachableError) -> bool:
        """Whether to ask again: never what may have been done, and not for a minute whether there is a host at all."""
        return error.is_passing and not error.lost and (self._was_reached or not error.unsent)

    def _may_answer(self, error: PveError, path: Sequence[object]) -> bool:
        """Whether to ask again what was only to be read: of our own node, which has answered before.

        One of another node is asked once: that this is off is what many want to know.
        """
        is_read = error.verb == "GET" and error.status in failures.NODE_DOWN
        return is_read and self._has_node_answered and self._is_of_node(path)

    def _is_of_node(self, path: Sequence[object]) -> bool:
        return tuple(path[:2]) == ("nodes", self._node)

    def _login(self, *, as_root: bool) -> Login:
        access = self.access
        in_person = as_root and access.password is not None and access.user == ROOT
        with self._lock:
            if in_person not in self._logins:
                from provisioner.hosts.proxmox import session  # with proxmoxer and requests, which take a while

                self._shared = self._shared or session.TlsAdapter(access)
                self._logins[in_person] = session.Login(access, self._shared, self._timeout_s, as_root=in_person)
            return self._logins[in_person]


def _plain(value: object) -> object:
    """Booleans as numbers: PVE does not take requests' ``True``."""
    return int(value) if isinstance(value, bool) else value


# Tasks of nodes, by their UPIDs: wait for their end and report their log meanwhile.

# Not proxmoxer's Tasks.blocking_status: it looks once a second and sleeps after the end, too, so that a task of 0.2 s
# takes 2 s, and it tells nothing of the log meanwhile.
FIRST_POLL_S = 0.1
LONGEST_POLL_S = 1.0
POLL_GROWTH = 1.4
REPORT_S = 2.0
LOG_LINES = 500
"""Of a log that are asked for at once."""

_TASK_SUCCESS = re.compile(r"OK|WARNINGS: \d+")
_TASK_END = re.compile(r"TASK (OK|WARNINGS: \d+|ERROR: .*)")
_EMPTY_LOG = "no content"


@dataclass(slots=True)
class _TaskLog:
    """The log of a task so far."""

    client: Client
    path: tuple[str, ...]
    lines: list[str]

    def read(self) -> None:
        """Read what is new."""
        while True:
            rows = self.client.get(*self.path, "log", start=len(self.lines), limit=LOG_LINES)
            new = [str(row["t"]) for row in rows if int(row["n"]) > len(self.lines)]
            is_empty = new == [_EMPTY_LOG] and not self.lines
            if is_empty:
                return
            self.lines += new
            if len(new) < LOG_LINES:
                return

    @property
    def last(self) -> str:
        """The last line that is not the end of the log itself."""
        for line in reversed(self.lines):
            if line.strip() and not _TASK_END.fullmatch(line):
                return line
        return ""


def wait_for_task(
    client: Client,
    upid: str,
    *,
    name: str = "",
    on_progress: OnProgress | None = None,
    timeout_s: float = TASK_TIMEOUT_S,
) -> str:
    """The last line that the task said, or its warnings; ``PveError`` with its log when it failed."""
    path = ("nodes", node_of_task(upid), "tasks", upid)
    log = _TaskLog(client, path, [])
    began = reported = time.monotonic()
    poll_s = FIRST_POLL_S
    while True:
        status = client.get(*path, "status")
        if status["status"] == "stopped":
            break
        now = time.monotonic()
        if now - began > timeout_s:
            log.read()
            raise _task_failure(f"it still runs after {timeout_s:.0f} s: {upid}", log)
        if on_progress and now - reported >= REPORT_S:
            reported = now
            log.read()
            on_progress(name, log.last)
        time.sleep(poll_s)
        poll_s = min(poll_s * POLL_GROWTH, LONGEST_POLL_S)
    log.read()
    return _task_outcome(str(status.get("exitstatus", "")), log)


def _task_outcome(exit_status: str, log: _TaskLog) -> str:
    """The warnings of a task that succeeded, or its last line; ``PveError`` when it failed."""
    if not _TASK_SUCCESS.fullmatch(exit_status):
        raise _task_failure(exit_status or "it ended without saying how", log)
    if exit_status == "OK":
        return log.last
    warnings = [line for line in log.lines if line.startswith("WARN")]
    return "\n".join(warnings) or log.last


def task_lines(client: Client, upid: str) -> list[str]:
    """All that a task has said, but for how it ended."""
    log = _TaskLog(client, ("nodes", node_of_task(upid), "tasks", upid), [])
    log.read()
    return [line for line in log.lines if not _TASK_END.fullmatch(line)]


def node_of_task(upid: str) -> str:
    """The node that a task runs on."""
    return upid.split(":")[1]


def _task_failure(message: str, log: _TaskLog) -> PveError:
    error = PveError(message)
    error.log = "\n".join(log.lines)
    return error


# Pauses between attempts: longer each time, never in step with others, and not for ever.

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 8.0


class Backoff:
    """The waits between the attempts of one call, ``patience_s`` in all."""

    def __init__(self, patience_s: float) -> None:
        self._until = time.monotonic() + patience_s
        self._next_s = FIRST_WAIT_S

    def wait(self) -> bool:
        """Wait; False at once when patience is at its end."""
        pause = self._next_s * random.uniform(0.5, 1.5)  # noqa: S311 - so that two that collided do not again
        self._next_s = min(self._next_s * 2, LONGEST_WAIT_S)
        if time.monotonic() + pause > self._until:
            return False
        time.sleep(pause)
        return True


# The forms of answers, as far as this driver relies on them; one of another form is the host's error. A node in
# trouble, a proxy or another program in its place may answer anything, so every answer is checked on arrival.

ApiPath = Sequence[object]


@dataclass(frozen=True, slots=True)
class _AnswerForm:
    """The form of one answer: with ``rows`` a list of mappings that have ``keys``, else one mapping that has them.

    ``foreign``: keys such as memory and rootfs are no options of a container there, so only ``_PARTS`` are checked.
    """

    keys: tuple[str, ...] = ()
    rows: bool = True
    may_be_nothing: bool = False
    foreign: bool = False


_ANSWER_FORMS: Mapping[str, _AnswerForm] = {
    "version": _AnswerForm(("version",), rows=False),
    "cluster/resources": _AnswerForm(("vmid", "node")),
    "cluster/status": _AnswerForm(("type", "name")),
    "cluster/firewall/options": _AnswerForm(rows=False),
    "access/permissions": _AnswerForm(rows=False),
    "nodes": _AnswerForm(("node",)),
    "nodes/*/status": _AnswerForm(rows=False, foreign=True),
    "nodes/*/time": _AnswerForm(("time",), rows=False),
    "nodes/*/aplinfo": _AnswerForm(("template",)),
    "nodes/*/network": _AnswerForm(("iface",)),
    "nodes/*/certificates/info": _AnswerForm(("filename",)),
    "nodes/*/storage": _AnswerForm(("storage", "type")),
    "nodes/*/storage/*/content": _AnswerForm(("volid",)),
    "nodes/*/tasks": _AnswerForm(("upid",)),
    "nodes/*/tasks/*/status": _AnswerForm(("status",), rows=False),
    "nodes/*/tasks/*/log": _AnswerForm(("n", "t")),
    "nodes/*/lxc": _AnswerForm(("vmid",)),
    "nodes/*/lxc/*/config": _AnswerForm(rows=False),
    "nodes/*/lxc/*/feature": _AnswerForm(("hasFeature",), rows=False),
    "nodes/*/lxc/*/firewall/options": _AnswerForm(rows=False),
    "nodes/*/lxc/*/firewall/rules": _AnswerForm(("pos", "type", "action")),
    "nodes/*/lxc/*/interfaces": _AnswerForm(may_be_nothing=True),
    "nodes/*/lxc/*/snapshot": _AnswerForm(("name",)),
    "nodes/*/lxc/*/snapshot/*/config": _AnswerForm(rows=False),
    "nodes/*/lxc/*/status/current": _AnswerForm(("status",), rows=False),
    "pools": _AnswerForm(("poolid",)),
    "pools/*": _AnswerForm(rows=False),
}
_NUMBER_KEYS = frozenset({"vmid", "snaptime", "n", "time", "cores", "memory", "swap", "enable", "pos"})
"""Keys whose values are whole numbers."""
_TEXT_KEYS = frozenset(
    "name node type storage status pool poolid tags template volid upid lock parent description digest comment iface "  # noqa: SIM905
    "t hostname rootfs features filename version exitstatus user tokenid content inet inet6 ip-address".split()
)
_PART_KEYS = {"cpuinfo": dict, "current-kernel": dict, "ip-addresses": list}
_CHECKED_KEYS = _NUMBER_KEYS | _TEXT_KEYS | _PART_KEYS.keys()
_NAME_PARENTS = frozenset({"nodes", "lxc", "storage", "tasks", "snapshot", "pools"})
"""The parts of a path behind which stands a name or a number."""
_MOST_ROWS = 100_000
"""Rows of one answer."""
_PATH_SHOWN = 80
_MOST_DIGITS = 15
_FIRST_TOO_LARGE = 10**15


def checked_answer(path: ApiPath, answer: Any) -> Any:
    """Return the answer unchanged; raise ``PveError`` when it does not have the form that is known of that path."""
    form = _ANSWER_FORMS.get(_path_pattern(path))
    if form is None:
        return answer
    if answer is None and form.may_be_nothing:
        return answer
    fault = _fault_in_answer(answer, form)
    if fault:
        shown = "/".join(map(str, path))
        raise PveError(f"The answer at {shown[:_PATH_SHOWN]} is not one of Proxmox VE: {fault}.")
    return answer


def _path_pattern(path: ApiPath) -> str:
    """The path with a star in the place of each name: ``nodes/*/lxc``."""
    parts: list[str] = []
    parent = ""
    for part in path:
        is_name = parent in _NAME_PARENTS
        parts.append("*" if is_name else str(part))
        parent = parts[-1]
    return "/".join(parts)


def _fault_in_answer(answer: Any, form: _AnswerForm) -> str:
    """What is wrong with an answer, in words; nothing when it has its form."""
    if form.rows:
        return _fault_in_rows(answer, form.keys)
    checked_keys = frozenset(_PART_KEYS) if form.foreign else _CHECKED_KEYS
    return _fault_in_mapping(answer, form.keys, checked_keys)


def _fault_in_rows(answer: Any, keys: Sequence[str]) -> str:
    if not isinstance(answer, list):
        return "it is no list"
    if len(answer) > _MOST_ROWS:
        return f"it has more than {_MOST_ROWS} rows"
    for row in answer:
        fault = _fault_in_mapping(row, keys, _CHECKED_KEYS)
        if fault:
            return fault
    return ""


def _fault_in_mapping(value: Any, keys: Sequence[str], checked_keys: frozenset[str]) -> str:
    if not isinstance(value, dict):
        return "where it should have keys it has none"
    for key in keys:
        if value.get(key) is None:
            return f"there is no {key} in it"
    for key, part in value.items():
        if part is None or key not in checked_keys:
            continue
        fault = _fault_in_part(key, part)
        if fault:
            return fault
    return ""


def _fault_in_part(key: str, value: Any) -> str:
    if key in _NUMBER_KEYS:
        return "" if _is_number(value) else f"its {key} is no number"
    if key in _TEXT_KEYS:
        return "" if isinstance(value, str | int | float) else f"its {key} is no text"
    if not isinstance(value, _PART_KEYS[key]):
        return f"its {key} has another form"
    if isinstance(value, list):
        return _fault_in_rows(value, ())
    return ""


def _is_number(value: object) -> bool:
    """Whether it is a whole number of a usual size, or the digits of one: Perl knows both."""
    if isinstance(value, str):
        is_short = len(value) <= _MOST_DIGITS
        return is_short and value.isascii() and value.isdigit()
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return 0 <= value < _FIRST_TOO_LARGE
