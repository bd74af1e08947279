"""What Python files say, kept in the cache by their content: to parse them all takes two seconds."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.inputs import pages
from tests.inputs.pages import PythonPage, read_python

MOST_PAGES = 5000
"""A checkout has about 1,000 that tests reach."""


class KeptPages:
    """Reads pages and remembers them; nothing is written before ``save``."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._reader = hashlib.sha256(Path(pages.__file__).read_bytes()).hexdigest()
        self._kept = self._read()
        self._used: dict[str, dict[str, Any]] = {}

    def page(self, digest: str, text: str, package: str) -> PythonPage:
        """What a file says whose content has the digest; ``SyntaxError`` for what is no Python."""
        key = f"{package}:{digest}"
        if key not in self._used:
            self._used[key] = self._kept.get(key) or _plain(read_python(text, package))
        return _page(self._used[key])

    def save(self) -> None:
        """Write down what was used, for the next run; what nobody asked for is forgotten when there is much of it."""
        if self._file is None or self._used.keys() <= self._kept.keys():
            return
        pages = self._kept | self._used
        if len(pages) > MOST_PAGES:
            pages = self._used
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self._file.parent, delete=False, encoding="utf-8") as file:
            json.dump({"reader": self._reader, "pages": pages}, file)
        Path(file.name).replace(self._file)

    def _read(self) -> dict[str, dict[str, Any]]:
        if self._file is None or not self._file.is_file():
            return {}
        try:
            kept = json.loads(self._file.read_bytes())
        except ValueError:
            return {}  # another version wrote it, or the disk was full: it is made again
        found: dict[str, dict[str, Any]] = kept["pages"] if kept.get("reader") == self._reader else {}
        return found


def _plain(page: PythonPage) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for one in fields(page):
        value = getattr(page, one.name)
        if isinstance(value, set):
            plain[one.name] = sorted(value)
        elif isinstance(value, dict):
            plain[one.name] = {name: _plain(part) for name, part in value.items()}
        else:
            plain[one.name] = value
    return plain


def _page(plain: dict[str, Any]) -> PythonPage:
    page = PythonPage()
    for name, value in plain.items():
        if isinstance(value, list):
            setattr(page, name, set(value))
        elif isinstance(value, dict):
            page.fixtures = {fixture: _page(part) for fixture, part in value.items()}
        else:
            setattr(page, name, value)
    return page
