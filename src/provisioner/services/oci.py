"""OCI images: the systems whose Podman runs them, and who may ask them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.gpus.cards import Card, described
from provisioner.services import base
from provisioner.services.base import Processor, ResolvedService, WebPage
from provisioner.values.declared import Problem

IMAGE = "debian/13"
TOO_OLD = ("debian/11", "debian/12")
"""Releases whose Podman knows no quadlets, by which systemd runs an image; an image of one may say more behind that."""
KEY_OPTION = "api_key"
PAGES, ANSWERS, LOOKS = "pages", "answers", "looks"
HEALTH, HEALTH_COMMAND, IMAGE_PORT = "health", "health_command", "image_port"
HTTPS = 443
LEAST_PORT, MOST_PORT = 1024, 65535
"""The ports of clients; a lower one needs a reason."""
VOLUME = re.compile("[A-Za-z0-9_]+")
FOLDER = re.compile(r"(/[A-Za-z0-9_@+-][A-Za-z0-9._@+-]*)+")
TAKEN_FOLDERS = re.compile(r"/(proc|sys|dev|run/secrets|etc/hosts|etc/resolv[.]conf|etc/hostname)(/.*)?")
"""What of an image's file system is the machine's, or Podman's. The role has these forms as well: a test holds both."""
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
FILE = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]*")


ENVIRONMENT = "environment"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Knowledge(base.Knowledge):
    """Knowledge of OCI images."""

    def options_of_card(self, said: Mapping[str, Any], card: Card) -> Mapping[str, Any]:  # noqa: ARG002
        """The card, and the device files that lead to it: the image of a container with a card gets it."""
        return {"card": {**described(card), "nodes": [node.path for node in card.needed]}}

    def processor(self, variables: Mapping[str, Any], *, has_card: bool) -> Processor:  # noqa: ARG002
        """The CPU without a card; with one nobody knows, as only the image itself does."""
        if not has_card:
            return Processor(is_device=False, why="its container has no card")
        return Processor(is_device=None, why="its proof shows that the image has the card, not that it uses it")

    def registry(self, service: ResolvedService) -> str:
        """The registry of the image."""
        host = str(service.option("image")).partition("/")[0]
        return host if ":" in host else f"{host}:{HTTPS}"

    def web_page(self, service: ResolvedService) -> WebPage | None:
        """The first page of the file's list, without the stars that stand for what is below."""
        pages = service.option(PAGES) or ()
        return WebPage(str(pages[0]).rstrip("*")) if pages else None

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """A system that is too old, no list of paths or two of them, nothing that says how it is, and half a login."""
        if service.image.startswith(TOO_OLD):
            path = ("containers", service.container, "image")
            message = f"{service.page.title} cannot run on {service.image}: its Podman knows no quadlets"
            yield Problem(path, message, f"Write image: {IMAGE}.")
        yield from _paths(service) if service.health else _without_http(service)
        yield from _login(service)
        yield from _ports(service)
        yield from _volumes(service)
        yield from _names(service)
        yield from _texts(service)


def _without_http(service: ResolvedService) -> Iterator[Problem]:
    """What says whether such an image is well, and options that mean its pages."""
    if not service.written.get(HEALTH_COMMAND):
        message = "nothing says whether the image is well: it has no page, and no command"
        hint = f"Add {HEALTH_COMMAND}: [PROGRAM, ARGUMENT], which ends well inside the image; or the path of its page."
        yield service.problem(HEALTH, message, hint)
    for option in (IMAGE_PORT, KEY_OPTION, PAGES, ANSWERS, LOOKS):
        if service.written.get(option):
            message = "an image that speaks no HTTP has none: it is reached by `ports` alone"
            yield service.problem(option, message, f"Leave {option} out, or write the path of its page in {HEALTH}.")


def _paths(service: ResolvedService) -> Iterator[Problem]:
    """What may be asked is listed in one of two ways, of which one knows no key."""
    written = service.written
    if not service.option(IMAGE_PORT):
        hint = f'Add {IMAGE_PORT}: NUMBER, on which it listens for HTTP; or {HEALTH}: "", where it speaks none.'
        yield Problem(service.path, f"it has no {IMAGE_PORT}", hint)
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


def _texts(service: ResolvedService) -> Iterator[Problem]:
    """Words of the image's start that hold what ends a line of its unit."""
    written = service.written
    texts = [(f"{ENVIRONMENT}.{name}", value) for name, value in (written.get(ENVIRONMENT) or {}).items()]
    for option in ("command", "arguments", "health_command"):
        texts += [(f"{option}.{place}", word) for place, word in enumerate(written.get(option) or ())]
    for where, text in texts:
        if CONTROL.search(str(text)):
            yield service.problem(where, "it holds a control character", "Write one line, without tabs.")


def _login(service: ResolvedService) -> Iterator[Problem]:
    """The account at a registry has two parts."""
    for option, other in (("registry_user", "registry_password"), ("registry_password", "registry_user")):
        if service.written.get(option) and not service.written.get(other):
            yield service.problem(option, f"needs {other}: they belong together", f"Add {other}.")


def _ports(service: ResolvedService) -> Iterator[Problem]:
    """Further ports that are no ports or need a reason, and those by which somebody would go past the switch."""
    inside = {(service.option(IMAGE_PORT), "tcp")}
    for place, entry in enumerate(service.written.get("ports") or ()):
        port, protocol = entry["port"], entry.get("protocol") or "tcp"
        behind = entry.get(IMAGE_PORT) or port
        for name, number in (("port", port), (IMAGE_PORT, behind)):
            if not 1 <= number <= MOST_PORT:
                yield service.problem(f"ports.{place}.{name}", f"{number} is no port", f"Write 1 to {MOST_PORT}.")
        if port < LEAST_PORT and not entry.get("need"):
            hint = f"Write {LEAST_PORT} or more, or say in `need` why clients cannot use another one."
            yield service.problem(f"ports.{place}.port", f"{port} is below {LEAST_PORT} without need", hint)
        if (behind, protocol) in inside:
            message = f"the image's port {behind} ({protocol}) is reached already"
            hint = "Leave it out. What image_port names is reached through the switch alone."
            yield service.problem(f"ports.{place}", message, hint)
        inside.add((behind, protocol))


def _volumes(service: ResolvedService) -> Iterator[Problem]:
    """Volumes that would be something else than folders of the image's own."""
    folders = list[str]()
    for name, folder in (service.written.get("volumes") or {}).items():
        is_folder = isinstance(folder, str) and FOLDER.fullmatch(folder) and not TAKEN_FOLDERS.fullmatch(folder)
        if not VOLUME.fullmatch(name) or not is_folder or folder in folders:
            message = (
                f"{name}: {folder} is no name of letters, digits and _, with a folder of the image that no other has"
            )
            hint = "A folder of the machine or of the container cannot be given to an image."
            yield service.problem(f"volumes.{name}", message, hint)
        folders.append(str(folder))


def _names(service: ResolvedService) -> Iterator[Problem]:
    """Names of variables and secrets that cannot be, or are there twice."""
    taken = set(service.written.get(ENVIRONMENT) or {})
    for place, secret in enumerate(service.written.get("secrets") or ()):
        name = secret["name"]
        form = FILE if secret.get("as") == "file" else VARIABLE
        if not form.fullmatch(name):
            yield service.problem(
                f"secrets.{place}.name", f"{name} is no name of such a secret", "Take letters, digits and _."
            )
        if name in taken:
            yield service.problem(f"secrets.{place}.name", f"{name} is there already", "Give each its own name.")
        taken.add(name)
