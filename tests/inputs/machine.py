"""What a test depends on outside of the checkout: the kernel, devices, versions of packages, the environment."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.inputs.recorder.sitecustomize import FILE, ROOT

STATUS = Path("/var/lib/dpkg/status")
EVERY_LAB_USES = ("incus", "incus-base", "incus-client", "lxcfs", "systemd", "util-linux", "iproute2", "nftables")
"""Packages of Debian that count although no file may name them."""
DEVICES = ("nvidia*", "dri/*", "kfd")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
OF_ONE_RUN = frozenset({"PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PROVISION_TEST_STARTED", "CI", "OLDPWD", "PWD"})
"""Variables that are different each time and change nothing that a test proves."""
OF_THE_RECORDER = frozenset({ROOT, FILE})
LISTS_OF_FOLDERS = ("PATH", "PYTHONPATH")


@dataclass(frozen=True)
class Machine:
    """This machine as far as tests can notice."""

    about: tuple[str, ...] = ()
    """A line for each thing that counts for all."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of installed packages, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def seen_by(self, words: Iterable[str]) -> list[str]:
        """A line for each thing on which files with these words depend; values of variables may be secrets."""
        named = set(words)
        packages = sorted(self.packages.keys() & (named | set(EVERY_LAB_USES)))
        variables = sorted(self.environment.keys() & named)
        return [
            *self.about,
            *(f"package {package} {self.packages[package]}" for package in packages),
            *(f"variable {variable}={self.environment[variable]}" for variable in variables),
        ]


def this_machine(root: Path) -> Machine:
    """The machine that runs this, for a checkout in ``root``."""
    devices = sorted(str(device) for pattern in DEVICES for device in Path("/dev").glob(pattern))
    capabilities = Path("/proc/self/status").read_text(encoding="ascii").partition("CapEff:")[2].split()[0]
    about = (
        f"kernel {platform.release()} {platform.machine()}",
        f"python {sys.version}",
        f"user {os.geteuid()} {capabilities}",
        f"devices {' '.join(devices)}",
    )
    return Machine(about, installed_packages(STATUS), environment_of(os.environ, root))


def installed_packages(status: Path) -> dict[str, str]:
    """The versions of Debian's packages that are installed; nothing where there is no Debian."""
    if not status.is_file():
        return {}
    found = {}
    for block in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and line[0] != " ")
        if lines.get("Status") == "install ok installed":
            found[lines["Package"]] = lines["Version"]
    return found


def environment_of(environment: Mapping[str, str], root: Path) -> dict[str, str]:
    """The variables that can be an input.

    Folders of the checkout do not count in lists of folders: programs of its own venv are found either way, and the
    recorder puts itself before what Python imports.
    """
    names = {name for name in environment if VARIABLE.fullmatch(name)} - OF_ONE_RUN - OF_THE_RECORDER
    kept = {name: environment[name] for name in names}
    for name in LISTS_OF_FOLDERS:
        folders = kept.pop(name, "").split(os.pathsep)
        elsewhere = os.pathsep.join(folder for folder in folders if folder and not Path(folder).is_relative_to(root))
        if elsewhere:
            kept[name] = elsewhere
    return kept
