"""NVIDIA's wheels, pinned: fetched by pip when a test wants them, kept in the cache, never stored in the project."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.processes import completed

PLATFORM = "manylinux2014_x86_64"
TIMEOUT_S = 600


@dataclass(frozen=True)
class Wheel:
    """One wheel on PyPI, by name, version and sha256."""

    name: str
    version: str
    sha256: str


def crt(version: str, sha256: str) -> Wheel:
    return Wheel("nvidia-cuda-crt", version, sha256)


def runtime(version: str, sha256: str) -> Wheel:
    return Wheel("nvidia-cuda-runtime", version, sha256)


CRT_13_0 = crt("13.0.88", "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4")
RUNTIME_13_0 = runtime("13.0.96", "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548")
HEADERS: dict[str, tuple[Wheel, ...]] = {
    "12.4": (
        Wheel("nvidia-cuda-nvcc-cu12", "12.4.131", "e4c9a35435c3b0e36c6397c5696334c9ea6650e524736cbd1c5d345ea099bb04"),
        Wheel(
            "nvidia-cuda-runtime-cu12", "12.4.127", "64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5"
        ),
    ),
    "12.9": (
        Wheel("nvidia-cuda-nvcc-cu12", "12.9.86", "5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0"),
        Wheel(
            "nvidia-cuda-runtime-cu12", "12.9.79", "25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3"
        ),
    ),
    "13.0": (CRT_13_0, RUNTIME_13_0),
    "13.1": (
        crt("13.1.115", "53c9b03f804dc7e539dd11914ec3d3fd0849791d8cd6a73f0d4df984bb339916"),
        runtime("13.1.80", "dac25b52e69050e5a7a84957e6df470a85b185f8f648a99a1ab1dfce027576cf"),
    ),
    "13.2": (
        crt("13.2.86", "e3ab08801bf9b1e6dc979275d25e816bb5000521b648e19c324d5eef0c79f1da"),
        runtime("13.2.75", "72bf454902da594e0b833cadeddc8b7100ce1c7cf7ed9023943931be1aa913b7"),
    ),
    "13.5": (
        crt("13.5.37", "e898b7f73d3035fa89915a3f7bf3b54a73e90249746111aed295822c4729bb29"),
        runtime("13.5.37", "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d"),
    ),
}
"""By the toolkit's version, what holds its headers."""

COMPILER_13_0 = (
    CRT_13_0,
    RUNTIME_13_0,
    Wheel("nvidia-cuda-nvcc", "13.0.88", "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03"),
    Wheel("nvidia-nvvm", "13.0.88", "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0"),
    Wheel("nvidia-cuda-cccl", "13.0.85", "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649"),
)
"""A whole toolkit that compiles."""

CUBLAS_13_0 = Wheel("nvidia-cublas", "13.1.1.3", "37936a16db8fe4ac1f065c2139360608a543a09275cb1a1af612e08cfa065436")
"""The library that belongs to it; 423 MB, so nothing but slow tests asks for it."""


def unpack(wheels: Sequence[Wheel], folder: Path, part: str = "") -> Path:
    """The wheels' files (or those in ``part``), merged into a toolkit; skips the test when a wheel cannot be had."""
    for wheel in wheels:
        with zipfile.ZipFile(cached(wheel)) as archive:
            for member in archive.infolist():
                vendor, _, rest = member.filename.partition("/")
                name = rest.partition("/")[2]  # nvidia/<part of the toolkit>/<name>
                if vendor != "nvidia" or not name.startswith(part) or not name or member.is_dir():
                    continue
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(member))
                if path.parent.name == "bin":
                    path.chmod(0o755)
    return folder


def cached(wheel: Wheel) -> Path:
    """The wheel in the cache, downloaded when it is not there; skips the test when it cannot be had."""
    folder = paths.cache() / "cuda-wheels" / f"{wheel.name}-{wheel.version}"
    found = [one for one in folder.glob("*.whl") if hashlib.sha256(one.read_bytes()).hexdigest() == wheel.sha256]
    if not found:
        _download(wheel, folder)
        found = list(folder.glob("*.whl"))
    return found[0]


def _download(wheel: Wheel, folder: Path) -> None:
    wanted = ["--dest", str(folder), "--platform", PLATFORM, "--only-binary", ":all:", "--no-deps"]
    patience = ["--quiet", "--disable-pip-version-check", "--retries", "1"]
    done = completed(
        [sys.executable, "-m", "pip", "download", *wanted, *patience, "--require-hashes", "-r", "/dev/stdin"],
        given=f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n",
        timeout_s=TIMEOUT_S,
    )
    assert "DO NOT MATCH THE HASHES" not in done.stderr, done.stderr
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"{wheel.name} {wheel.version} cannot be had: {said[-1]}")
