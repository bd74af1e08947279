"""Voices that a service cannot speak with, told before there is a container; the role asks the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.catalog import Catalog
from provisioner.lab.engines import services_of
from provisioner.lab.speech import ROLE
from provisioner.spec import ServiceSpec, Spec
from provisioner.state import Problem

NAME = "[a-z]{2}_[a-z0-9]+"
"""One voice of a mix: language, sex, an underline and the rest. How mixes are written is a limit of the role's page."""
MUTE = ("j", "z")
"""The languages, Japanese and Chinese, whose sounds are made by what the role does not install."""


def speech_options(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """Voices whose languages cannot be spoken; which voices there are only the commit knows."""
    for container, service, _ in services_of(spec, catalog):
        if service.role != ROLE:
            continue
        for place, voice in _voices(service):
            mute = [name for name in re.findall(NAME, voice) if name.startswith(MUTE)]
            if mute:
                message = f"{', '.join(mute)}: what Japanese and Chinese need is not installed"
                hint = "Take one whose name begins with another letter than j and z."
                yield Problem(("containers", container, "services", ROLE, *place), message, hint)


def _voices(service: ServiceSpec) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if "default_voice" in service.options:
        yield ("default_voice",), service.options["default_voice"]
    for number, voice in enumerate(service.options.get("voices") or ()):
        yield ("voices", number), voice
