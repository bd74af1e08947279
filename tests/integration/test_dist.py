"""What ``make dist`` makes: a wheel and an sdist of what git knows, that agree with each other."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

from provisioner import __version__
from tests.checkout import tracked_files

pytestmark = [pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SECRET = "playbooks/secrets.env"
TIMEOUT_S = 900
INSIDE = {".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "docs", "inventory"} | {
    "playbooks",
    "pyproject.toml",
    "roles",
    "src",
}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files, and a file of an earlier version that ``make dist`` found there."""
    folder = tmp_path_factory.mktemp("dist")
    (folder / "provisioner-0.0.1.tar.gz").touch()
    said = run(sys.executable, ROOT / ".ci/dist.py", folder)
    assert said.count("PASSED") == 2, said
    return folder


def hashes_of(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_there_are_one_wheel_and_one_sdist_of_this_version(dist: Path) -> None:
    names = sorted(path.name for path in dist.iterdir())
    assert [name.partition("-")[2].split("-")[0].removesuffix(".tar.gz") for name in names] == [
        __version__,
        __version__,
    ]


def test_the_wheel_of_the_sdist_is_that_of_the_checkout_and_holds_nothing_of_somebody_s_own(
    dist: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for name in tracked_files(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    (source / SECRET).write_text("KEY=mine\n", encoding="utf-8")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source)
    (direct,) = tmp_path.glob("*.whl")
    (of_the_sdist,) = dist.glob("*.whl")
    hashes = hashes_of(of_the_sdist)
    assert hashes == hashes_of(direct)
    assert not any(name.endswith("secrets.env") for name in hashes)
    assert not any("tests/" in name or "molecule/" in name for name in hashes)


def test_the_sdist_holds_what_the_wheel_is_made_of_and_no_more(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert {name.split("/")[1] for name in names} == INSIDE
    assert [name for name in names if "/.ci/" in name] == [f"provisioner-{__version__}/.ci/wheel_contents.py"]


def test_the_metadata_names_the_licence_and_carries_its_text(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        about = BytesParser().parsebytes(archive.read(f"provisioner-{__version__}.dist-info/METADATA"))
        licence = archive.read(f"provisioner-{__version__}.dist-info/licenses/LICENSE").decode()
    assert about["License-Expression"] == "GPL-3.0-or-later"
    assert about["Description-Content-Type"] == "text/markdown"
    assert licence == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 3, 29 June 2007" in licence
