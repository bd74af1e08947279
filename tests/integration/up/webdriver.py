"""A real Chromium in a container, driven by the program with which the proof of Open WebUI drives one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.integration.up.quickstart_lab import Lab

PROGRAM = Path(__file__).resolve().parents[3] / "roles/open_webui/programs/webdriver.py"
PORT = 9515


def load() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("webdriver", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver = load()
ENTER: str = driver.ENTER


def browser_in(lab: Lab, container: str) -> Any:
    """A browser in a container that has one for its proof, with one window."""
    words = [f"--port={PORT}", "--allowed-ips=", "--allowed-origins=*"]
    unit = ["systemd-run", "--quiet", "--unit=webdriver", "--collect", "--setenv=HOME=/root"]
    lab.incus("exec", container, "--", *unit, "chromedriver", *words)
    return driver.Browser(f"http://{lab.address(container)}:{PORT}")
