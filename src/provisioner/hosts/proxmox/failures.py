"""What Proxmox VE says when something fails, in our words: what failed, what it said, what to do now."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

from provisioner.hosts.proxmox.access import ROLE, ROLE_PRIVILEGES, ROOT
from provisioner.values.errors import ProviderError, UnavailableError
from provisioner.values.plain_data import MOST_OF_AN_OUTPUT, Foreign

NODE_DOWN = frozenset({595, 596, 597, 598, 599})
"""AnyEvent's own statuses: the node that was asked could not reach the one that was meant, or got no answer."""
SILENT = NODE_DOWN - {595}
"""Those after which the one that was meant may have done what it was asked for: 595 is that no connection came up."""

_LOCK_TIMEOUT = re.compile(r"can't lock file '[^']*' - got timeout")
_MISSING = re.compile(
    r"[Cc]onfiguration file 'nodes/[^']*' does not exist|pool '[^']*' does not exist|snapshot '[^']*' does not exist"
    r"|no such task"
)
_MISSING_TO_READ = re.compile(r"(storage|volume) '[^']*' does not exist|no such (user|token|role)")
_TAKEN = re.compile(r"\b(CT|VM|pool) '?[^' ]+'? already exists")
_DENIED = re.compile(r"Permission check failed \((?P<path>/[^,)]*), (?P<privileges>[^)]+)\)")
_LOG_LINES = 40
"""Of a failed task's log that are shown."""

_LOST = "Whether it was done is not known. Run the same command again: it looks first."
_NEEDED_ON_ROOT: Mapping[str, frozenset[str]] = {"/": frozenset()}
_NODE_HINT = (
    "Is that node on, do pveproxy and pvedaemon run there, and does no container of it hang? See, on it: "
    "systemctl status pveproxy pvedaemon; pct list"
)
_ADVICE = (
    (r"^Permission check failed$", "{who} lacks a privilege, and Proxmox does not say which. See: provision doctor"),
    (
        r"only allowed for root@pam|user != root@pam|not available with API token",
        "Only root@pam itself may do that, none of its tokens: give its `password:`, or `ssh:`, in the host's page.",
    ),
    (r"no quorum", "Without quorum the cluster's configuration is read-only. On a node, see: pvecm status"),
    (r"hostname lookup '(?P<node>[^']+)' failed", "Is there a node {node} in this cluster? See `node:` of the host."),
    (
        r"is locked \((?P<lock>[^)]+)\)",
        "Another task ({lock}) works on it: wait for its end. If none runs any more: pct unlock <its number>",
    ),
    (r"protection mode enabled", "Lift its protection first: pct set <its number> --protection 0"),
    (r"detected modified configuration", "Somebody else changed it at the same moment. Run the same command again."),
    (_LOCK_TIMEOUT.pattern, "Somebody else works there for long. See the node's tasks, then run this again."),
    (r"[Nn]o space left|out of space|not enough free|insufficient free", "The storage is full. See: pvesm status"),
    (r"bridge '(?P<bridge>[^']+)' does not exist", "The node has no bridge {bridge}. See: ip link show type bridge"),
    (r"storage '(?P<name>[^']+)' (does not exist|is not available)", "The node's storages: pvesm status"),
    (r"pool '(?P<name>[^']+)' does not exist", "Make it: pvesh create /pools --poolid {name}"),
)


class PveError(Exception):
    """An answer that is none of success, a task that failed, or no answer at all.

    ``status`` and ``reason`` are those of HTTP (0 for a task or no answer), ``errors`` the texts for single parameters,
    ``log`` a failed task's. ``lost``: whether it was done is not known, because the answer to a change did not come.
    ``who`` was asking, by the name that permissions are given to.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        errors: Mapping[str, str] | None = None,
        verb: str = "",
        who: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.errors = dict(errors or {})
        self.verb = verb
        self.who = who
        self.log = ""
        self.lost = False


class UnreachableError(PveError):
    """The host could not be reached, is not the one that was meant, or does not let us in; ``resolution`` says more.

    ``is_passing``: it may be over in a moment. ``unsent``: surely nothing was asked for.
    """

    def __init__(
        self, message: str, *, resolution: str = "", is_passing: bool = False, unsent: bool = True, status: int = 0
    ) -> None:
        super().__init__(message, status=status)
        self.resolution = resolution
        self.is_passing = is_passing
        self.unsent = unsent


def is_missing(error: PveError) -> bool:
    """Whether an error says that the thing that was asked about is not there: the only place that decides so."""
    if _MISSING.search(_said(error)) or error.status == HTTPStatus.NOT_FOUND:
        return True
    # Only of a question: a container that cannot be deleted because its storage is missing is there all the same.
    return error.verb == "GET" and bool(_MISSING_TO_READ.search(_said(error)))


def is_taken(error: PveError) -> bool:
    """Whether somebody else has the number of a container, or the name of a pool."""
    return bool(_TAKEN.search(_said(error)))


def is_transient(error: PveError) -> bool:
    """Whether it was not done, and may succeed when it is asked for again: somebody held a lock for too long."""
    return not error.lost and bool(_LOCK_TIMEOUT.search(_said(error)))


@contextmanager
def worded(message: str) -> Iterator[None]:
    """Turn whatever fails into a ``ProviderError`` that begins with ``message``: for verbs that change something."""
    try:
        yield
    except PveError as error:
        raise ProviderError(message, details=details(error), resolution=resolution(error)) from error


@contextmanager
def reachable(message: str) -> Iterator[None]:
    """Turn whatever fails into an ``UnavailableError``: for verbs that only look, before anything was touched."""
    try:
        yield
    except PveError as error:
        raise UnavailableError(message, details=details(error), resolution=resolution(error)) from error


def details(error: PveError) -> str:
    """What the other side said, the end of a failed task's log below it."""
    log = error.log.splitlines()
    cut = [f"({len(log) - _LOG_LINES} lines before these)"] if len(log) > _LOG_LINES else []
    return Foreign("\n".join([error.message, *cut, *log[-_LOG_LINES:]]), MOST_OF_AN_OUTPUT)


def resolution(error: PveError) -> str:
    """What to do about it; nothing when its own words must do."""
    if isinstance(error, UnreachableError):
        return " ".join(filter(None, (_LOST if error.lost else "", error.resolution)))
    if error.status in NODE_DOWN:
        return " ".join(filter(None, (_LOST if error.lost else "", _NODE_HINT)))
    who = error.who or "This user"
    denied = _DENIED.search(_said(error))
    if denied:
        names, path = denied["privileges"], denied["path"]
        grant = how_to_grant(who, path, [names.partition("|")[0]])
        return f"{who} needs {names.replace('|', ' or ')} on {path}.\n{grant}"
    found = ((words, re.search(pattern, _said(error), re.MULTILINE)) for pattern, words in _ADVICE)
    return next((words.format(who=who, **match.groupdict()) for words, match in found if match), "")


def how_to_grant(who: str, path: str, privileges: Iterable[str]) -> str:
    """The commands that give ``who`` (USER or USER!TOKEN) privileges on a path: a line for the role, one for the grant.

    A grant on a path replaces those above it, so below ``/`` the role has all that is needed anywhere.
    A token has its user's rights, or with privilege separation what both were given; the token itself is not told
    which of them it is, and a grant to a token without that separation changes nothing. So both get it, and it always
    works. Root@pam itself has every right already.
    """
    user, _, token = who.partition("!")
    users = [] if token and user == ROOT else [f"--users {user}"]
    tokens = [f"--tokens '{who}'"] if token else []
    usual = _NEEDED_ON_ROOT.get(path, ROLE_PRIVILEGES)
    role = "".join([ROLE, *sorted(set(privileges) - usual)]).replace(".", "")
    names = " ".join(sorted({*usual, *privileges}))
    made = f'pveum role add {role} --privs "$needed" || pveum role modify {role} --append 1 --privs "$needed"'
    grant = " ".join(["pveum acl modify", path, *users, *tokens, "--roles", role])
    return f'On the node, the role: needed="{names}"; {made}\nOn the node, the grant: {grant}'


def _said(error: PveError) -> str:
    return "\n".join((error.reason, error.message, *error.errors.values()))
