"""Why a login came to nothing: what was seen, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sessions import MANAGER, PANEL, Session

LITTLE = 2**20
"""Bytes that must be free where a session writes first."""
REFUSED = ("AUTHFAIL: user={} ",)
"""Logs tell everybody's logins; these lines name whose."""
LIMIT = ("max concurrent session limit exceeded. login for user {} ", "for user {} - Max session limit reached")
NO_DISPLAY = ("no display in range",)
NO_SERVER = ("X server failed to start", "There is no X server active", "X server could not be started")
QUICK = "exited quickly"
NO_BUS = "Failed to acquire org.gnome.SessionManager"
NO_PROVIDER = "Unable to find provider"
PARTS = {PANEL: "panel", MANAGER: "window manager"}
ENDED = 12
NO_TLS = (131, 133)
NO_ANSWER = 147


@dataclass(frozen=True)
class Evidence:
    """What was seen of one login of ``user``.

    ``code``: the client's, None while it was connected; ``kind``: ``judge.kind`` of the last picture; ``log``: what
    xrdp and sesman wrote meanwhile; ``errors``: the end of the session's own log; ``free``: bytes, by the place.
    """

    user: str
    kind: str
    code: int | None = None
    words: str = ""
    log: Sequence[str] = ()
    errors: Sequence[str] = ()
    session: Session | None = None
    free: dict[str, int] = field(default_factory=dict)
    has_driver: bool = True
    """Whether xorgxrdp's part of the X server is there."""


def reason(seen: Evidence) -> str:
    """Why there is no desktop, or an empty text where there is one."""
    return next((text for look in LOOKS if (text := look(seen))), "")


def is_sure(seen: Evidence) -> bool:
    """Whether waiting longer cannot make a desktop of it."""
    return any(look(seen) for look in SURE) or bool(seen.session and any(_unprovided(seen, one) for one in PARTS))


def _disk(seen: Evidence) -> str:
    full = sorted(place for place, free in seen.free.items() if free < LITTLE)
    if not full or seen.kind == "mate":
        return ""
    return (
        f"the disk is full: {' and '.join(full)} has less than 1 MiB left, and a session writes there before it draws "
        "anything. Make room, or give the container a larger `disk`."
    )


def _connection(seen: Evidence) -> str:
    if seen.code == NO_ANSWER:
        return 'nothing answers on the port. Look at "systemctl status xrdp".'
    if seen.code in NO_TLS:
        return (
            f"client and server agree on no TLS ({seen.words}). Look for its certificate and key in /var/log/xrdp.log."
        )
    return ""


def _password(seen: Evidence) -> str:
    if not _said(seen.log, [phrase.format(seen.user) for phrase in REFUSED]):
        return ""
    return f"the password of {seen.user} was refused: it is not the secret's any more. Run: provision up"


def _limit(seen: Evidence) -> str:
    said = _said(seen.log, [phrase.format(seen.user) for phrase in LIMIT])
    if not said:
        return ""
    return (
        f"no more sessions are allowed: {said}. End one (loginctl list-sessions, loginctl "
        "terminate-user NAME), or set a larger `max_sessions`."
    )


def _display(seen: Evidence) -> str:
    if not _said(seen.log, NO_DISPLAY):
        return ""
    return (
        f"no display is left for a session: {_said(seen.log, NO_DISPLAY)}. Servers that were killed left sockets: "
        "remove those in /tmp/.X11-unix that no Xorg has (loginctl list-sessions), or start the container again."
    )


def _server(seen: Evidence) -> str:
    if seen.has_driver and not _said(seen.log, NO_SERVER):
        return ""
    why = "its driver is missing: is xorgxrdp installed?" if not seen.has_driver else _said(seen.log, NO_SERVER)
    return f"no X server starts for {seen.user}: {why} Run: provision up, and look at ~/.xorgxrdp.*.log"


def _bus(seen: Evidence) -> str:
    if not _said(seen.errors, (NO_BUS,)) or seen.kind == "mate":
        return ""
    return (
        f"the session got no bus of its own: an older one of {seen.user} holds it, which xrdp does not know since it "
        f"was restarted. End that: loginctl terminate-user {seen.user}; and remove the package dbus-user-session."
    )


def _parts(seen: Evidence) -> str:
    if seen.session is None or seen.kind == "blank":
        return ""
    for package, what in PARTS.items():
        if not (seen.session.panel if package == PANEL else seen.session.manager):
            said = _unprovided(seen, package) or "it does not run"
            return f"the desktop has no {what} ({package}): {said}. Run: provision up"
    return ""


def _unprovided(seen: Evidence, package: str) -> str:
    """The session's own words that it cannot find this part; that it finds no dock is well."""
    return next((line.strip() for line in seen.errors if f"{NO_PROVIDER} '{package}'" in line), "")


def _ended(seen: Evidence) -> str:
    if seen.code is None:
        return ""
    last = next((line.strip() for line in reversed(seen.errors) if line.strip()), "nothing")
    quick = _said(seen.log, (QUICK,))
    told = f"{quick}; " if quick else f"client's code {seen.code}, {seen.words or 'no words'}; "
    return f"the session ended at once ({told}the last line of ~/.xsession-errors is: {last})."


def _picture(seen: Evidence) -> str:
    if seen.kind == "blank":
        return (
            "the session runs and draws nothing: look at ~/.xsession and ~/.xsession-errors of "
            f"{seen.user}; what is started there is not a desktop."
        )
    if seen.kind == "mate":
        return ""
    return f"the screen shows no desktop (judged as {seen.kind}); the picture is kept. Look at ~/.xsession-errors."


SURE = (_connection, _password, _limit, _display, _server)
LOOKS = (_disk, _connection, _password, _limit, _display, _server, _bus, _parts, _ended, _picture)


def _said(lines: Sequence[str], phrases: Sequence[str]) -> str:
    """The first line with one of the phrases, from the phrase on."""
    found = ((line, phrase) for line in lines for phrase in phrases if phrase in line)
    return next((line[line.index(phrase) :].strip() for line, phrase in found), "")
