"""Ansible's own tests of a collection, `ansible-test sanity`: all of them, by the oldest ansible-core that we name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.processes import completed

pytestmark = [pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1800
# What ansible-test would fetch from a server of its own, to have pip in its venvs: Python carries one.
BOOTSTRAP = "import ensurepip\nensurepip.bootstrap()\n"
PIP = "get_pip_24_2.py"


class Tried:
    """The collection below a folder, and an ansible-test in a venv that has nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "ansible_collections/provisioner/inference"
        venv.create(folder / "venv", with_pip=True)
        self.program = folder / "venv/bin/ansible-test"
        self._run(folder / "venv/bin/pip", "install", "--quiet", f"ansible-core=={version('ansible-core')}")
        cache = folder / ".ansible/test/cache"
        cache.mkdir(parents=True)
        (cache / PIP).write_text(BOOTSTRAP)
        self._run(sys.executable, ROOT / ".ci/collection.py", folder)
        (file,) = folder.glob("*.tar.gz")
        galaxy = folder / "venv/bin/ansible-galaxy"
        self._run(galaxy, "collection", "install", "--offline", file, "-p", folder / "ansible_collections")

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S, env=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        """What is said besides: its caches and venvs lie below the folder."""
        beside = Path(sys.executable).parent  # shellcheck
        return {**os.environ, "HOME": str(self.folder), "PATH": f"{os.environ['PATH']}:{beside}"}

    def sanity(self, *tests: str) -> str:
        """What the tests say; the last line is the exit code."""
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        named = [word for test in tests for word in ("--test", test)]
        command: list[str | Path] = [
            self.program,
            "sanity",
            "--local",
            "--requirements",
            "--python",
            python,
            "--color",
            "no",
            *named,
        ]
        done = completed(command, cwd=self.tree, env=self.environment, timeout_s=TIMEOUT_S)
        return f"{done.stdout}{done.stderr}\nrc={done.returncode}"


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """The collection as users get it."""
    return Tried(tmp_path_factory.mktemp("sanity"))


def passed(said: str) -> None:
    """Hold what the tests say against what has to have run, and passed."""
    assert said.endswith("rc=0"), said
    ran = set(re.findall(r'Running sanity test "([a-z-]+)"', said))
    assert ran >= {"ansible-doc", "import", "pylint", "shellcheck", "validate-modules", "yamllint"}
    assert re.findall(r'Required program "(\w+)" not found', said) == []


def test_every_test_of_ansible_s_own_passes(tried: Tried) -> None:
    passed(tried.sanity())


def test_a_page_that_lacks_something_is_found(tried: Tried) -> None:
    module = tried.tree / "plugins/modules/provision_paths.py"
    whole = module.read_text()
    module.write_text(whole.replace("short_description: ", "short_words: "))
    try:
        said = tried.sanity("validate-modules")
    finally:
        module.write_text(whole)
    assert not said.endswith("rc=0")
    assert "provision_paths.py" in said
