"""What the options of a service that speaks may say, told before there is a container; the role asks the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from provisioner.catalog import Catalog
from provisioner.lab.engines import services_of
from provisioner.lab.speech import ROLE
from provisioner.spec import Spec
from provisioner.state import Problem

NAME = "[a-z]{2}_[a-z0-9]+"
"""Language, sex, an underline and the rest."""
_WEIGHED = NAME + "([(](?=[0-9.]*[1-9])[0-9]+([.][0-9]+)?[)])?"
VOICE = rf"^{_WEIGHED}([+-]{_WEIGHED})*\Z"
COMMIT = r"^[0-9a-f]{40}\Z"
MUTE = ("j", "z")
"""The languages, Japanese and Chinese, whose sounds are made by what the role does not install."""
LARGEST_PORT = 65535
ABOVE_0 = ("port", "max_input", "start_timeout_s")

Found = Iterator[tuple[tuple[str | int, ...], str, str]]
"""Where it is written, what is wrong, and what to write instead."""


def speech_options(spec: Spec, catalog: Catalog) -> Iterator[Problem]:
    """How voices are written, a whole commit, and numbers; which voices there are only the commit knows."""
    for container, service, _ in services_of(spec, catalog):
        for where, message, hint in _found(service.options) if service.role == ROLE else ():
            yield Problem(("containers", container, "services", ROLE, *where), message, hint)


def _found(options: Any) -> Found:
    if "default_voice" in options:
        yield from _voice_problems(("default_voice",), options["default_voice"])
    for place, voice in enumerate(options.get("voices") or ()):
        yield from _voice_problems(("voices", place), voice)
    commit = options.get("commit")
    if commit is not None and not re.match(COMMIT, commit):
        yield ("commit",), f'"{commit}" is no whole commit', "Write all 40 digits of it."
    for option in ABOVE_0:
        value = options.get(option)
        if value is not None and value < 1:
            yield (option,), f"{value} is too small", "Write 1 or more."
        elif value is not None and option == "port" and value > LARGEST_PORT:
            yield (option,), f"{value} is no port", f"Write {LARGEST_PORT} or less."


def _voice_problems(where: tuple[str | int, ...], voice: str) -> Found:
    mute = [name for name in re.findall(NAME, voice) if name.startswith(MUTE)]
    if not re.match(VOICE, voice):
        hint = "Write a name, such as af_heart, or a mix, such as af_bella(2)+af_sky(1)."
        yield where, f'"{voice}" is no voice and no mix of voices', hint
    elif mute:
        hint = "Take one whose name begins with another letter than j and z."
        yield where, f"{', '.join(mute)}: what Japanese and Chinese need is not installed", hint
