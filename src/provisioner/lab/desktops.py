"""Desktops: what a file may ask of one, how much memory that takes, what the role is told of its container. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from provisioner.catalog import Catalog, ServiceType
from provisioner.lab.engines import services_of
from provisioner.lab.hosts import image_of
from provisioner.sizes import size_text
from provisioner.spec import Spec
from provisioner.state import Problem

PROTOCOL = "rdp"
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
SOUND_IMAGE = "debian/13"

Path = tuple[str | int, ...]


def told(page: ServiceType, image: str) -> dict[str, Any]:
    """What follows for a service from its container's image."""
    return {"image": image} if page.protocol == PROTOCOL else {}


def desktop_problems(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Accounts, browser, image and memory of every desktop."""
    for name, service, page in services_of(spec, catalog):
        if page.protocol != PROTOCOL:
            continue
        path: Path = ("containers", name, "services", service.role)
        options = {option: one.default for option, one in page.options.items()} | dict(service.options)
        image = image_of(spec.containers[name], catalog)
        yield from _accounts(options, path)
        yield from _timezone(options["timezone"], path)
        yield from _extras(options, image, path)
        choices = page.options["image"].choices
        if image not in choices:
            hint = f"Write one of: {', '.join(choices)}"
            yield Problem(("containers", name, "image"), f"a desktop cannot be made of {image}", hint)
        yield from _memory(spec, catalog, name, options)


def _memory(spec: Spec, catalog: Catalog, name: str, options: Mapping[str, Any]) -> Iterator[Problem]:
    container = spec.containers[name]
    memory = container.memory or sum(catalog.services[role].defaults.memory or 0 for role in container.services)
    need = needed_bytes(options)
    if memory < need:
        lacking = f"{size_text(memory)} is too little: {size_text(need - memory)} are missing"
        path = ("containers", name, *(("memory",) if container.memory else ()))
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
