"""The modules for CUDA do what the verbs do, and all that they import is sent along to a container."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.ansible.modules import provision_cuda_headers, provision_cuda_probe
from provisioner.values import paths
from provisioner.values.errors import PreflightError
from tests.unit.cuda.synthetic import made, texts, write_toolkit
from tests.unit.cuda.test_headers import blog_edit

CARRIED = paths.roles() / "cuda_toolkit/module_utils/provisioner"
MODULES = [paths.plugins() / "modules" / f"provision_cuda_{name}.py" for name in ("driver", "headers", "probe")]


def imported(file: Path, package: str) -> set[str]:
    """The modules of the package that the file imports, as paths below it."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {
        f"{node.module}.{alias.name}" if package != "provisioner" else node.module or ""
        for node in nodes
        for alias in node.names
        if (node.module or "").startswith(package)
    }
    return {name.removeprefix(f"{package}.").replace(".", "/") for name in names}


def needed() -> set[str]:
    """Everything of our package that the modules import, and what that imports in turn."""
    found: set[str] = set()
    rest = {name for module in MODULES for name in imported(module, "provisioner")}
    while rest:
        found |= rest
        rest = {more for name in rest for more in imported(paths.PACKAGE / f"{name}.py", "provisioner")} - found
    return found


def test_all_that_the_modules_import_is_sent_along_and_nothing_else() -> None:
    named = imported(CARRIED / "__init__.py", "ansible.module_utils.provisioner")
    there = {str(one.relative_to(CARRIED).with_suffix("")) for one in CARRIED.rglob("*.py") if one.stem != "__init__"}
    assert needed() == named == there


@pytest.mark.parametrize("name", sorted(needed()))
def test_what_is_sent_along_is_the_package_s_own_file(name: str) -> None:
    assert (CARRIED / f"{name}.py").resolve() == (paths.PACKAGE / f"{name}.py").resolve()


@pytest.mark.parametrize("module", MODULES, ids=lambda one: one.stem)
def test_a_module_runs_with_what_is_sent_along_alone(module: Path) -> None:
    program = """
import sys, types, runpy, ansible.module_utils as utils
sys.path = [one for one in sys.path if not one.endswith("/src")]
utils.__path__.append(sys.argv[1])
runpy.run_path(sys.argv[2], run_name="loaded")
assert sys.modules["provisioner"].__name__ == "ansible.module_utils.provisioner"
"""
    command = [sys.executable, "-c", program, str(CARRIED.parent), str(module)]
    subprocess.run(command, check=True, timeout=60)


def test_headers_are_mended_once_and_put_back(tmp_path: Path) -> None:
    include = write_toolkit(tmp_path, "13.0")
    both = [str(include / "crt/math_functions.h"), str(include / "crt/math_functions.hpp")]
    assert provision_cuda_headers.changed_headers(tmp_path, "mended", write=False) == both
    assert texts(include) == made("13.0"), "check mode changes nothing"
    assert provision_cuda_headers.changed_headers(tmp_path, "mended", write=True) == both
    assert provision_cuda_headers.changed_headers(tmp_path, "mended", write=True) == []
    assert provision_cuda_headers.changed_headers(tmp_path, "kept", write=True) == []
    assert sorted(provision_cuda_headers.changed_headers(tmp_path, "original", write=False)) == both
    assert sorted(provision_cuda_headers.changed_headers(tmp_path, "original", write=True)) == both
    assert texts(include) == made("13.0")
    assert provision_cuda_headers.changed_headers(tmp_path, "original", write=True) == []


def test_what_others_edited_is_left_alone_and_never_edited_on_top(tmp_path: Path) -> None:
    write_toolkit(tmp_path, headers=blog_edit(made("13.0")))
    assert provision_cuda_headers.changed_headers(tmp_path, "original", write=True) == []
    with pytest.raises(PreflightError, match="edited by hand"):
        provision_cuda_headers.changed_headers(tmp_path, "mended", write=True)


def test_the_overlay_is_written_and_removed_once(tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    file = overlay / "bits/mathcalls.h"
    for is_present in (True, False):
        assert provision_cuda_headers.changed_overlay(overlay, present=is_present, write=False) == [str(file)]
        assert file.exists() is not is_present, "check mode changes nothing"
        assert provision_cuda_headers.changed_overlay(overlay, present=is_present, write=True) == [str(file)]
        assert provision_cuda_headers.changed_overlay(overlay, present=is_present, write=True) == []
        assert overlay.exists() is is_present


def test_a_folder_with_something_else_in_it_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(PreflightError, match="there is something else"):
        provision_cuda_headers.changed_overlay(tmp_path, present=False, write=True)
    assert (tmp_path / "mine").exists()


def test_an_environment_file_of_another_toolkit_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "provision.env"
    with pytest.raises(PreflightError, match="Unable to read"):
        provision_cuda_probe.read_environment(file, "/opt/cuda-13.0")
    file.write_text("CUDA_HOME=/opt/cuda-13.1\n")
    with pytest.raises(PreflightError, match=r"it is for the toolkit /opt/cuda-13\.1"):
        provision_cuda_probe.read_environment(file, "/opt/cuda-13.0")
    assert provision_cuda_probe.read_environment(file, "/opt/cuda-13.1") == {"CUDA_HOME": "/opt/cuda-13.1"}


def test_headers_of_every_target_are_edited_and_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.confstr", lambda _name: "glibc 2.43")
    own = write_toolkit(tmp_path)
    shutil.copytree(own, tmp_path / "targets/sbsa-linux/include")
    for state in ("mended", "original"):
        changed = provision_cuda_headers.changed_headers(tmp_path, state, write=False)
        assert len(changed) == 4
        assert sorted(provision_cuda_headers.changed_headers(tmp_path, state, write=True)) == sorted(changed)
        assert provision_cuda_headers.changed_headers(tmp_path, state, write=True) == []
