"""``make collection-pages``: the collection's pages in HTML, by antsibull-docs and Sphinx.

First ``antsibull-docs lint-collection-docs`` looks through the documentation. What either of them warns of is an error.
No network is used once the tools are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zlib
from pathlib import Path

from collection import FULL_NAME, write

TOOLS = Path(__file__).with_name("antsibull.txt")
"""Antsibull-docs, Sphinx, the theme and all that they ask for, with hashes: they live alone, as twine does."""
TREE = Path("ansible_collections", *FULL_NAME.split("."))
TIMEOUT_S = 900
ANSIBLE_PAGES = "https://docs.ansible.com/ansible-core/devel/"
REFERENCES = {
    "common_return_values std:label": "reference_appendices/common_return_values.html#common-return-values",
    "ansible_configuration_settings std:label": "reference_appendices/config.html#ansible-configuration-settings",
    "ANSIBLE_INVENTORY_ENABLED std:envvar": "reference_appendices/config.html#envvar-ANSIBLE_INVENTORY_ENABLED",
    "ANSIBLE_PIPELINING std:envvar": "reference_appendices/config.html#envvar-ANSIBLE_PIPELINING",
}
"""What our pages name of Ansible's own, and where it stands there: said here, as Sphinx would fetch a list of all."""
SETTINGS = f"""
project = "{FULL_NAME}"
extensions = ["sphinx.ext.intersphinx", "sphinx_antsibull_ext"]
intersphinx_mapping = {{"ansible": ("{ANSIBLE_PAGES}", "../ansible.inv")}}
html_theme = "sphinx_ansible_theme"
pygments_style = "ansible"
highlight_language = "YAML+Jinja"
html_copy_source = html_show_sphinx = html_use_index = False
default_role = "any"
nitpicky = True
"""


def tools(folder: Path) -> Path:
    """The folder of the tools' programs, in a virtual environment that is made in ``folder``."""
    venv.create(folder, with_pip=True)
    install = ("-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", TOOLS)
    _run(folder, dict(os.environ), folder / "bin/python", *install)
    return folder / "bin"


def lint(programs: Path, collections: Path) -> None:
    """Look through the documentation of all that the collection below ``collections`` holds."""
    _run(collections / TREE, _environment(programs, collections), *_lint(programs))


def render(programs: Path, collections: Path, output: Path) -> None:
    """Write the pages of the collection below ``collections`` into ``output``; what it held before is replaced."""
    environment = _environment(programs, collections)
    with tempfile.TemporaryDirectory(prefix="provisioner-pages-") as folder:
        site = Path(folder)
        texts = site / "rst"
        texts.mkdir(mode=0o700)  # antsibull-docs takes no folder that others may write to
        (site / "conf.py").write_text(SETTINGS, encoding="utf-8")
        (site / "ansible.inv").write_bytes(_references())
        _run(site, environment, *_collection(programs, texts))
        shutil.rmtree(output, ignore_errors=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        build = ("-b", "html", "--fail-on-warning", "--keep-going", "-q", "-d", site / "trees", "-c", site)
        _run(site, environment, programs / "sphinx-build", *build, texts, output)


def _lint(programs: Path) -> tuple[str | Path, ...]:
    return (programs / "antsibull-docs", "lint-collection-docs", "--plugin-docs", ".")


def _collection(programs: Path, texts: Path) -> tuple[str | Path, ...]:
    options = ("--use-current", "--squash-hierarchy", "--fail-on-error", "--cleanup", "everything")
    return (programs / "antsibull-docs", "collection", *options, "--dest-dir", texts, FULL_NAME)


def _environment(programs: Path, collections: Path) -> dict[str, str]:
    """Where both find each other's programs, and ``ansible-doc`` of the development set finds this collection alone."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_HOME": str(collections / ".ansible")}
    return {**others, **own, "PATH": path}


def _references() -> bytes:
    """A list of references as Sphinx reads them."""
    head = "# Sphinx inventory version 2\n# Project: Ansible\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    lines = "".join(f"{name} -1 {place} {name.split()[0]}\n" for name, place in REFERENCES.items())
    return head.encode() + zlib.compress(lines.encode())


def _run(folder: Path, environment: dict[str, str], *command: str | Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        said = " ".join(map(str, command))
        raise SystemExit(f"Unable to make the pages of the collection: {said} ended with {done.returncode}")


def main(output: Path) -> None:
    """Look through the documentation of this tree's collection, and write its pages into ``output``."""
    with tempfile.TemporaryDirectory(prefix="provisioner-collection-") as folder:
        collections = Path(folder)
        write(collections / TREE)
        programs = tools(collections / "venv")
        lint(programs, collections)
        render(programs, collections, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
