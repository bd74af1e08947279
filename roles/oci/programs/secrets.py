"""Has Podman keep the secrets of an image, each as ``oci-NAME``, and forget those that nobody names any more.

Its standard input is a mapping in JSON of names and values. It prints in JSON the names that ``changed`` and an
``error``, which is empty where all went well. With ``--look`` it says what would change. Values are told by standard
input alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

PODMAN = "podman"
PREFIX = "oci-"
WITHIN_S = 60
ENVIRONMENT = {**os.environ, "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}


class UnableError(Exception):
    """What Podman did not do."""


def podman(*arguments: str, told: str = "") -> str:
    """What Podman prints, told a secret by its standard input; ``UnableError`` with its words where it fails."""
    try:
        done = subprocess.run(
            [PODMAN, "secret", *arguments],
            input=told,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
            env=ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnableError(f"podman secret {arguments[0]}: {error}") from None
    if done.returncode != 0:
        raise UnableError(f"podman secret {arguments[0]}: {' '.join(done.stderr.split())[-500:]}")
    return done.stdout


def kept() -> dict[str, str]:
    """The values that Podman keeps, by their names without the prefix."""
    names = [name for name in podman("ls", "--format", "{{.Name}}").split() if name.startswith(PREFIX)]
    return {name.removeprefix(PREFIX): value_of(name) for name in names}


def value_of(name: str) -> str:
    """The value of one that is kept."""
    described = json.loads(podman("inspect", "--showsecret", name))
    return str(described[0].get("SecretData", ""))


def changes(wanted: dict[str, str], before: dict[str, str]) -> tuple[list[str], list[str]]:
    """The names whose values differ, and those that nobody names any more."""
    new = sorted(name for name, value in wanted.items() if before.get(name) != value)
    return new, sorted(before.keys() - wanted.keys())


def main() -> None:
    """Have them kept."""
    wanted = json.load(sys.stdin)
    only_looks = "--look" in sys.argv[1:]
    said: dict[str, Any] = {"changed": [], "error": ""}
    try:
        new, gone = changes(wanted, kept())
        said["changed"] = [*new, *gone]
        if not only_looks:
            for name in new:
                podman("create", "--replace", PREFIX + name, "-", told=wanted[name])
            for name in gone:
                podman("rm", PREFIX + name)
    except UnableError as error:
        if only_looks:
            said["changed"] = sorted(wanted)  # before the first run there is no Podman yet
        else:
            said["error"] = str(error)
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
