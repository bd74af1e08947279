"""OCI images: the systems whose Podman runs them, and who may ask them."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.services import base
from provisioner.services.base import ResolvedService
from provisioner.values.state import Problem

IMAGE = "debian/13"
TOO_OLD = ("debian/11", "debian/12")
"""Releases whose Podman knows no quadlets, by which systemd runs an image; an image of one may say more behind that."""
KEY_OPTION = "api_key"
PAGES, ANSWERS, LOOKS = "pages", "answers", "looks"


class Knowledge(base.OnCpu):
    """Knowledge of OCI images."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A system that is too old, no list of paths or two kinds of them, and half a login."""
        if service.image.startswith(TOO_OLD):
            path = ("containers", service.container, "image")
            message = f"{service.page.title} cannot run on {service.image}: its Podman knows no quadlets"
            yield Problem(path, message, f"Write image: {IMAGE}.")
        yield from _paths(service)
        yield from _login(service)


def _paths(service: ResolvedService) -> Iterator[Problem]:
    """What may be asked is listed in one of two ways, of which one knows no key."""
    written = service.written
    listed = [option for option in (ANSWERS, LOOKS) if written.get(option)]
    if not written.get(PAGES):
        if not listed:
            hint = f"Add {PAGES}: [/], or {ANSWERS} (POST) and {LOOKS} (GET)."
            yield Problem(service.path, "nothing of it may be asked: it has no list of paths", hint)
        return
    if listed:
        message = f"{PAGES} and {listed[0]} are both written, and a path is asked in one way"
        yield service.problem(listed[0], message, f"Leave {PAGES} or {listed[0]} out.")
    if written.get(KEY_OPTION) is not None:
        message = f"no browser sends a key, so that {PAGES} cannot ask for one"
        yield service.problem(KEY_OPTION, message, f"Leave it out, or write {ANSWERS} and {LOOKS}.")


def _login(service: ResolvedService) -> Iterator[Problem]:
    """The account at a registry has two parts."""
    for option, other in (("registry_user", "registry_password"), ("registry_password", "registry_user")):
        if service.written.get(option) and not service.written.get(other):
            yield service.problem(option, f"needs {other}: they belong together", f"Add {other}.")
