"""Desktops: what a file may ask of one, how much memory that takes, and what the role is told of its image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.services import base
from provisioner.services.base import Path, ResolvedService, Screen
from provisioner.values.declared import Problem
from provisioner.values.quantities import size_text

NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}", re.ASCII)
MIB = 2**20
SYSTEM_BYTES = 256 * MIB
SESSION_BYTES = {"small": 192 * MIB, "core": 240 * MIB, "full": 272 * MIB}
"""What a session took (165-175, 215-235 and 247 MiB), and a little more."""
BROWSER_BYTES = 1024 * MIB
CHROMES = {"chrome": "Google's Chrome", "chromium": "Chromium"}
CHROME_REFUSED = (
    "{title} is reported to be offline in unprivileged containers. Debian's chromium was not when we measured it, "
    "with and without nesting; but it does not start where the host forbids user namespaces, unless its sandbox is "
    "switched off"
)
CERTIFICATE = "/etc/xrdp/tls/{}.crt"
"""Where the role puts the certificate that the server shows: the ``given`` one, or its ``own``."""
SOUND_IMAGE = "debian/13"


class Knowledge(base.OnCpu):
    """Knowledge of desktops."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Accounts, browser, image and memory."""
        options = service.options()
        yield from _accounts(options, service.path)
        yield from _timezone(options["timezone"], service.path)
        yield from _extras(options, service.image, service.path)
        choices = service.page.options["image"].choices
        if service.image not in choices:
            message = f"a desktop cannot be made of {service.image}"
            yield Problem(("containers", service.container, "image"), message, f"Write one of: {', '.join(choices)}")
        yield from _memory(service, options)

    def options_of_image(self, image: str) -> Mapping[str, Any]:
        """The image, which decides which packages there are."""
        return {"image": image}

    def screen(self, service: ResolvedService) -> Screen:
        """The file's account, what it lets clients share, and the certificate that is given, or the server's own."""
        options = service.options()
        shown = CERTIFICATE.format("given" if options["certificate"] else "own")
        return Screen(options["user"], bool(options["clipboard"]), bool(options["drives"]), shown)


def _memory(service: ResolvedService, options: Mapping[str, Any]) -> Iterator[Problem]:
    need = needed_bytes(options)
    if service.memory < need:
        lacking = f"{size_text(service.memory)} is too little: {size_text(need - service.memory)} are missing"
        path = ("containers", service.container, *(("memory",) if service.has_written_memory else ()))
        yield Problem(path, lacking, f"{_sum(options)}: write memory: {size_text(need)}")


def needed_bytes(options: Mapping[str, Any]) -> int:
    """The memory that a desktop takes when each of its users has a session and one of them the browser."""
    users = 1 + len(options["users"])
    return SYSTEM_BYTES + users * SESSION_BYTES[options["flavour"]] + (BROWSER_BYTES if _has_browser(options) else 0)


def _has_browser(options: Mapping[str, Any]) -> bool:
    return bool(options["browser"] != "none")


def _sum(options: Mapping[str, Any]) -> str:
    users = 1 + len(options["users"])
    browser = f", {size_text(BROWSER_BYTES)} for Firefox" if _has_browser(options) else ""
    session = size_text(SESSION_BYTES[options["flavour"]])
    return f"{size_text(SYSTEM_BYTES)} for the system, {users} x {session} for sessions ({options['flavour']}){browser}"


def _accounts(options: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    more = [((*path, "users", place, "name"), one["name"]) for place, one in enumerate(options["users"])]
    seen: set[str] = set()
    for where, user in [((*path, "user"), options["user"]), *more]:
        if user == "root":
            yield Problem(where, "root does not log in to a desktop", "Name an account of its own, such as penny.")
        elif not NAME.fullmatch(user):
            hint = 'Write lower case letters, digits, "-" and "_", at most 31, with a letter first.'
            yield Problem(where, f'"{user}" cannot be the name of an account', hint)
        elif user in seen:
            yield Problem(where, f'"{user}" is named twice', "Leave one of them out.")
        seen.add(user)


def _timezone(zone: str, path: Path) -> Iterator[Problem]:
    near = _nearest_zones(zone)
    if near is not None:
        hint = f"Did you mean {' or '.join(near)}?" if near else "Write one such as Europe/Berlin."
        yield Problem((*path, "timezone"), f'there is no timezone "{zone}"', hint)


def _nearest_zones(zone: str) -> Sequence[str] | None:
    """Names near to one that is no timezone's; None for one that is, and where this machine has no list of them."""
    from difflib import get_close_matches
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zones = available_timezones()
        return get_close_matches(zone, zones, n=3) if zones else None
    return None


def _extras(options: Mapping[str, Any], image: str, path: Path) -> Iterator[Problem]:
    if options["browser"] in CHROMES:
        title = CHROMES[options["browser"]]
        yield Problem((*path, "browser"), CHROME_REFUSED.format(title=title), "Write browser: firefox-esr, or firefox.")
    if options["sound"] and image != SOUND_IMAGE:
        yield Problem(
            (*path, "sound"), f"{image} has no package for it", f"Write image: {SOUND_IMAGE}, or leave it out."
        )
    has_certificate, has_key = bool(options["certificate"]), options.get("certificate_key") is not None
    if has_certificate != has_key:
        lacks = "certificate_key" if has_certificate else "certificate"
        yield Problem(path, f"needs {lacks}: certificate and key belong together", f"Add {lacks}, or leave both out.")
