"""A driver that nobody has heard of: the fake one, copied into another folder under another name."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner import hosts
from provisioner.hosts import fake

KIND = "copied"


@pytest.fixture
def copied_driver(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of its kind; its folder is found like those of the package, and nothing else knows of it."""
    folder = tmp_path_factory.mktemp("drivers") / KIND
    shutil.copytree(Path(fake.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for module in folder.iterdir():
        text = module.read_text(encoding="utf-8")
        module.write_text(re.sub(r"\bfake\b", KIND, text).replace("Fake", KIND.title()), encoding="utf-8")
    monkeypatch.setattr(hosts, "__path__", [*hosts.__path__, str(folder.parent)])
    yield KIND
    for name in [name for name in sys.modules if name.startswith(f"{hosts.__name__}.{KIND}")]:
        del sys.modules[name]
    vars(hosts).pop(KIND, None)
