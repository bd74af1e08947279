"""``provision --version``: the versions that somebody who helps asks for first. It is imported when it is asked."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from provisioner.cli.console import Console

NOT_INSTALLED = "not installed"


def versions() -> dict[str, str]:
    """The versions of this program, of ansible-core beside it, of their Python, and of the schema of a lab's file."""
    from provisioner import __version__
    from provisioner.labfile import SCHEMA_VERSION

    return {
        "provision": __version__,
        "ansible_core": _ansible_core(),
        "python": platform.python_version(),
        "schema": SCHEMA_VERSION,
    }


def versions_text(said: Mapping[str, str]) -> str:
    """Four lines for people; programs take the second word of the first, so its form stays."""
    lines = (
        f"provision {said['provision']}",
        f"ansible-core {said['ansible_core']}",
        f"Python {said['python']}",
        f"schema of homelab.yml {said['schema']}",
    )
    return "\n".join(lines)


def say_versions(console: Console) -> None:
    """Print the versions; with ``--json`` as a stream that ends as every other one does."""
    if console.json:  # without a verb there would be no last line
        console.configure(verb="version", json=True, no_color=False, verbose=False)
    said = versions()
    console.result(versions_text(said), **said)


def _ansible_core() -> str:
    # What is installed says its version without being imported: `import ansible` takes longer than all the rest.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ansible-core")
    except PackageNotFoundError:
        return NOT_INSTALLED
