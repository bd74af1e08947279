"""A real Chromium in a container, driven by the program with which the proof of Open WebUI drives one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from tests.integration.up.quickstart_lab import Lab

PROGRAMS = Path(__file__).resolve().parents[3] / "roles/open_webui/programs"
PORT = 9515


def program(name: str) -> Any:
    """One of the role's programs as a module: it finds others beside it, as in a container, and nobody else does."""
    sys.path.insert(0, str(PROGRAMS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(PROGRAMS))
        for file in PROGRAMS.glob("*.py"):
            sys.modules.pop(file.stem, None)


def browser_in(lab: Lab, container: str) -> Any:
    """A browser in a container that has one for its proof, with one window."""
    words = [f"--port={PORT}", "--allowed-ips=", "--allowed-origins=*"]
    unit = ["systemd-run", "--quiet", "--unit=webdriver", "--collect", "--setenv=HOME=/root"]
    lab.incus("exec", container, "--", *unit, "chromedriver", *words)
    return program("webdriver").Browser(f"http://{lab.address(container)}:{PORT}")
