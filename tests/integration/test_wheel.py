"""The wheel alone is enough: installed elsewhere, it runs in an empty folder with no checkout in sight."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from provisioner.generate import installed_files
from provisioner.values import paths
from tests.checkout import tracked_files

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",  # sets are printed in the same order everywhere
    "PROVISION_SECRET_LLAMA_KEY": "x" * 32,
    "PROVISION_SECRET_LITELLM_KEY": "sk-" + "x" * 32,
}
FOLDERS = ("roles", "playbooks", "inventory")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what belongs to the checkout and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in tracked_files(ROOT):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    _output(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    shutil.rmtree(source)
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv elsewhere that holds the wheel, and sees the dependencies of this one but not its editable package."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    _output(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    dependencies = sysconfig.get_path("purelib")
    target = Path(_output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A plain path: .pth files that lie in it, such as that of the editable package, are not read.
    (target / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    return folder


def _output(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_holds_every_role_playbook_and_template(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("provisioner/share/")}
    present = {f"provisioner/share/{name}" for name in tracked_files(ROOT, *FOLDERS)}
    assert present <= names
    assert "provisioner/share/playbooks/site.yml" in names
    assert "provisioner/share/playbooks/repair/ghost-node.yml" in names


def test_the_wheel_holds_our_plugins_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.startswith("provisioner/ansible/connection/") and name.endswith(".py")]
    assert "provisioner/data/catalog.json" in names
    assert "provisioner/py.typed" in names
    folders = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert folders == {"provisioner", "provisioner-0.1.0.data"}
    assert [name for name in names if "__pycache__" in name or "molecule" in name] == []


def test_the_package_and_its_folders_are_the_wheel_s(installed: Path, tmp_path: Path) -> None:
    program = "from provisioner.values import paths; print(paths.PACKAGE, paths.roles(), paths.playbooks(), sep='\\n')"
    package, roles, playbooks = _output(installed / "bin/python", "-c", program, cwd=tmp_path).splitlines()
    assert Path(package).is_relative_to(installed)
    assert Path(roles) == Path(package) / "share/roles"
    assert (Path(playbooks) / "site.yml").is_file()


def test_the_manual_page_and_the_files_of_shells_are_installed_below_the_prefix(wheel: Path, installed: Path) -> None:
    data = "provisioner-0.1.0.data/data/"
    inside = {name.removeprefix(data) for name in zipfile.ZipFile(wheel).namelist() if name.startswith(data)}
    assert inside == {str(path) for path in installed_files()}
    for path, text in installed_files().items():
        assert (installed / path).read_text(encoding="utf-8") == text


def test_it_runs_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    provision = installed / "bin/provision"
    assert "0.1.0" in _output(provision, "--version", cwd=tmp_path)
    schema = json.loads(_output(provision, "schema", cwd=tmp_path))
    assert schema["type"] == "object"
    assert "llama_cpp" in json.dumps(schema)
    shutil.copy(ROOT / "examples/quickstart.yml", tmp_path)
    _output(provision, "validate", "quickstart.yml", cwd=tmp_path)
    listed = json.loads(_output(provision, "runbook", "list", "--json", cwd=tmp_path).splitlines()[1])
    assert {one["id"] for one in listed["runbooks"]} == {one.stem for one in (paths.data() / "runbooks").glob("*.yml")}


def test_the_catalog_of_the_wheel_is_that_of_the_checkout(installed: Path, tmp_path: Path) -> None:
    program = "from provisioner.catalog import load_catalog; print(load_catalog())"
    elsewhere = _output(installed / "bin/python", "-c", program, cwd=tmp_path)
    assert elsewhere == _output(sys.executable, "-c", program, cwd=tmp_path)
