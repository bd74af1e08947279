"""Small wheels with the names and metadata of real ones."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from provisioner.wheels.known import COLUMNS


def write_wheel(
    folder: Path, file: str, *requires: str, version: str = "", files: Mapping[str, bytes] | None = None
) -> Path:
    """A wheel of that name, with these files, that asks for these.

    Its metadata says ``version``, else what the name does.
    """
    name, named, *_ = file.split("-")
    info = f"{name}-{named}.dist-info"
    tag = file.removesuffix(".whl").split("-", 2)[2]
    about = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n"
    content = {
        f"{name}/__init__.py": b"",
        **(files or {}),
        f"{info}/METADATA": _metadata(name, version or named, requires).encode(),
        f"{info}/WHEEL": about.encode(),
    }
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / file, "w") as archive:
        for path, data in content.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data)
    return folder / file


def sha256_of(file: Path) -> str:
    """What the file hashes to."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_stack(folder: Path, wheels: Path, python: str, files: Iterable[str]) -> None:
    """A page ``mine.yml`` of a stack of these wheels for that Python, each at an address that nobody answers."""
    packages = {}
    for file in files:
        name, version, *_ = file.split("-")
        wheel = {"url": f"https://wheels.invalid/{file.replace('+', '%2B')}", "sha256": sha256_of(wheels / file)}
        packages[name] = {"version": version, "wheels": [wheel]}
    page = {
        "title": "mine",
        "source": "here",
        "tabbyapi": {"commit": "1" * 40, "backend": "exllamav3"},
        "cuda": "12.8",
        "driver": "525.60.13",
        "python": [python],
        "packages": packages,
        "missing": {name: "not wanted" for name in COLUMNS if name not in packages},
    }
    folder.mkdir()
    (folder / "mine.yml").write_text(yaml.safe_dump(page))


def _metadata(name: str, version: str, requires: Iterable[str]) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
