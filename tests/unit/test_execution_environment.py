"""The folder of which ansible-builder makes an image: both files of one version, and a definition that names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from provisioner import __version__

ROOT = Path(__file__).resolve().parents[2]
WHEEL, COLLECTION = f"provisioner-{__version__}-py3-none-any.whl", f"provisioner-inference-{__version__}.tar.gz"


def written(dist: Path) -> subprocess.CompletedProcess[str]:
    """What the program says that writes the folder."""
    command = (sys.executable, ROOT / ".ci/execution_environment.py", dist)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_definition_names_the_files_that_lie_beside_it(tmp_path: Path) -> None:
    for name in (WHEEL, COLLECTION):
        (tmp_path / name).write_text(name, encoding="utf-8")
    folder = tmp_path / "execution-environment"
    folder.mkdir()
    (folder / "of-an-earlier-version.whl").touch()
    done = written(tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == {WHEEL, COLLECTION, "execution-environment.yml"}
    text = (folder / "execution-environment.yml").read_text(encoding="utf-8")
    assert "VERSION" not in text
    definition = yaml.safe_load(text)
    assert [one["src"] for one in definition["additional_build_files"]] == [WHEEL, COLLECTION]
    assert definition["dependencies"]["python"] == [f"provisioner @ file:///opt/provisioner/{WHEEL}"]
    assert [one["name"] for one in definition["dependencies"]["galaxy"]["collections"]] == [
        f"/opt/provisioner/{COLLECTION}"
    ]


def test_what_is_missing_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / WHEEL).touch()
    done = written(tmp_path)
    assert done.returncode == 1
    assert f"Unable to find {COLLECTION} in {tmp_path}: run make dist collection." in done.stderr
    assert not (tmp_path / "execution-environment").exists()
