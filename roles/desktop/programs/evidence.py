"""What says how a login does: the picture, the logs, the session's processes, the room on the disk."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import client
import judge
import sessions
from reasons import Evidence

LOGS = (Path("/var/log/xrdp.log"), Path("/var/log/xrdp-sesman.log"))
DRIVER = Path("/usr/lib/xorg/modules/libxorgxrdp.so")


def lengths(user: str) -> dict[Path, int]:
    """How long each log is before the login: what is there already is of others."""
    return {file: file.stat().st_size if file.exists() else 0 for file in (*LOGS, errors_of(user))}


def look(screen: client.Screen, login: client.Login, user: str, since: Mapping[Path, int]) -> Evidence:
    """Everything that says how the login does."""
    home = Path(pwd.getpwnam(user).pw_dir)
    session = next((one for one in sessions.sessions() if one.user == user), None)
    log = [line for file in LOGS for line in lines_of(file, since[file])]
    errors = lines_of(errors_of(user), since[errors_of(user)])
    free = {str(place): free_bytes(place) for place in (home, Path("/tmp")) if place.exists()}  # noqa: S108
    kind = judge.kind(screen.picture())
    return Evidence(user, kind, login.code, login.words(), log, errors, session, free, DRIVER.exists())


def errors_of(user: str) -> Path:
    """Where the user's sessions write what goes wrong; they add to it."""
    return Path(pwd.getpwnam(user).pw_dir, ".xsession-errors")


def free_bytes(place: Path) -> int:
    """What an ordinary user may still write there."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def lines_of(file: Path, since: int) -> list[str]:
    """The lines from that byte on, from the first one where the file has been begun anew."""
    content = file.read_bytes() if file.exists() else b""
    return content[since if since <= len(content) else 0 :].decode(errors="replace").splitlines()
