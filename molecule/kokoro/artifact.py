"""Builds role kokoro's venv in a throwaway container, with real wheels and weights of ours: ``artifact.py FOLDER``.

What is not on PyPI is made here once and kept in the cache: random weights of the real size, and a model of spaCy's.
FOLDER gets the voices. Prints what ``python -m provisioner.cli.artifacts`` does; a second time everything is there.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from provisioner.values import paths

HERE = Path(__file__).resolve().parent
ROLE = HERE.parents[1] / "roles/kokoro"
PYTHON = (3, 11)
"""That of debian/12: wheels are downloaded for the Python that runs this."""
PORT = 18880
"""The same each time: the address is part of what the artifact is known by."""
SPACY = "en_core_web_sm-3.8.0-py3-none-any.whl"
SOURCES = (
    ROLE / "files/requirements.txt",
    ROLE / "vars/build.yml",
    HERE / "model.py",
    HERE / "files/en_core_web_sm/__init__.py",
)
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def main(folder: Path) -> int:
    """Have it, and say where."""
    with offered(folder) as options:
        lab = folder / "lab.yml"
        containers = {"molecule-kokoro": {"image": "debian/12", "services": {"kokoro": options}}}
        lab.write_text(yaml.safe_dump({"name": "molecule", "containers": containers}), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "provisioner.cli.artifacts", str(lab)], check=False, timeout=3600
        ).returncode


@contextmanager
def offered(folder: Path) -> Iterator[dict[str, str]]:
    """The role's options that have everything taken from here, while it is served; ``folder`` gets the voices."""
    if sys.version_info[:2] != PYTHON:
        sys.exit(f"Unable to download wheels for Python {PYTHON[0]}.{PYTHON[1]} with {sys.version}")
    mirror = mirrored()
    shutil.copytree(mirror / "voices", folder / "voices", dirs_exist_ok=True)
    hashes = {
        name: hashlib.sha256((mirror / name).read_bytes()).hexdigest()
        for name in ("kokoro-v1_0.pth", "config.json", SPACY)
    }
    with serving(mirror) as address:
        yield {
            "mirror": address,
            "model_sha256": hashes["kokoro-v1_0.pth"],
            "model_config_sha256": hashes["config.json"],
            "spacy_model_sha256": hashes[SPACY],
        }


def mirrored() -> Path:
    """A folder with all that the build wants."""
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in SOURCES)).hexdigest()[:16]
    folder = paths.cache() / "kokoro" / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            made = Path(temporary, "made")
            made.mkdir(mode=0o755)
            fill(made, Path(temporary))
            made.rename(folder)
    return folder


def fill(made: Path, temporary: Path) -> None:
    """Download the wheels, make the rest with them."""
    torch = yaml.safe_load((ROLE / "vars/build.yml").read_text(encoding="utf-8"))["__kokoro_torch_wheels"]
    wheel = torch[f"cp{PYTHON[0]}{PYTHON[1]}"]
    version = wheel["source"].rpartition("/")[2].split("-")[1].replace("%2B", "+")
    single = temporary / "torch.txt"
    single.write_text(f"torch=={version} --hash=sha256:{wheel['sha256']}\n", encoding="utf-8")
    more = ["--retries=0", "--extra-index-url", wheel["source"].rpartition("/")[0]]
    for requirements, words in ((ROLE / "files/requirements.txt", []), (single, more)):
        download = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(made)]
        run(sys.executable, *PIP, *download, *words, "--requirement", str(requirements))
    spacy_wheel(made)
    run(sys.executable, "-m", "venv", str(temporary / "venv"))
    python = str(temporary / "venv/bin/python")
    run(python, *PIP, "install", "--no-deps", "--no-index", *map(str, made.glob("*.whl")))
    run(python, str(HERE / "model.py"), str(made))


def run(*command: str) -> None:
    """Run it, its words for those who look on; what it prints does not mix with the answer."""
    subprocess.run(command, check=True, stdout=sys.stderr, timeout=1800)


def spacy_wheel(folder: Path) -> None:
    """A wheel of the stand-in for spaCy's model; its bytes are the same each time."""
    info = "en_core_web_sm-3.8.0.dist-info"
    files = {
        "en_core_web_sm/__init__.py": (HERE / "files/en_core_web_sm/__init__.py").read_bytes(),
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: en-core-web-sm\nVersion: 3.8.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},sha256={digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / SPACY, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), content)


def digest(content: bytes) -> str:
    """A hash as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Where containers reach the folder: on the host's end of their bridge."""
    shown = subprocess.run(
        ["incus", "network", "list", "--format=json"], capture_output=True, text=True, check=True, timeout=120
    )
    bridge = next(one for one in json.loads(shown.stdout) if one["managed"] and one["type"] == "bridge")
    address = bridge["config"]["ipv4.address"].partition("/")[0]
    server = ThreadingHTTPServer((address, PORT), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{address}:{PORT}"
    finally:
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that keeps no log."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
