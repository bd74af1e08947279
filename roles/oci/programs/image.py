"""Brings an image by its digest with Podman; the one before it stays for a rollback, and what was before that goes.

Its standard input says in JSON which: ``image`` (NAME@sha256:...), ``user`` and ``password`` of the registry (both may
be empty), ``record``, the file that lists what it brought, and ``within_s``. It prints in JSON whether something
``changed`` and an ``error``, which is empty where the image is there. With ``--look`` it says what it would change.

The password is told to Podman by a file in memory, which is removed at once.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

PODMAN = "podman"
KEPT = 2
"""So many of the images that it brought stay: the present one, and the one before it."""
SHORT_S = 120
LAST_WORDS = 1000
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What images call the machines, by what the kernel calls them; others are called alike."""
ENVIRONMENT = {**os.environ, "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}


class UnableError(Exception):
    """What could not be done, in words that say what to do."""


def podman(*arguments: str, within_s: float = SHORT_S) -> subprocess.CompletedProcess[str]:
    """What Podman says to these arguments; it asks nobody anything."""
    command = [PODMAN, *arguments]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within_s,
            check=False,
            env=ENVIRONMENT,
        )
    except subprocess.TimeoutExpired:
        raise UnableError(f"podman {arguments[0]} did not end within {within_s} seconds") from None
    except OSError as error:
        raise UnableError(f"podman cannot be run: {error}") from None


def brought(record: str) -> list[str]:
    """The images that it brought, the present one first; a record that nobody can read lists none."""
    try:
        listed = json.loads(pathlib.Path(record).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


def is_there(image: str) -> bool:
    """Whether Podman has the image."""
    return podman("image", "exists", image).returncode == 0


@contextlib.contextmanager
def credentials(image: str, user: str, password: str) -> Iterator[list[str]]:
    """Arguments by which Podman logs in to the image's registry; none where there is no account."""
    if not user:
        yield []
        return
    registry = image.split("/", maxsplit=1)[0]
    told = base64.b64encode(f"{user}:{password}".encode()).decode()
    with tempfile.NamedTemporaryFile("w", dir="/run" if os.access("/run", os.W_OK) else None, suffix=".json") as file:
        json.dump({"auths": {registry: {"auth": told}}}, file)
        file.flush()
        yield ["--authfile", file.name]


def pull(wanted: dict[str, Any]) -> None:
    """Have Podman bring the image; it compares all that it gets with the digest."""
    image, password = wanted["image"], wanted["password"]
    with credentials(image, wanted["user"], password) as arguments:
        done = podman("pull", "--quiet", *arguments, image, within_s=wanted["within_s"])
    if done.returncode == 0:
        return
    said = " ".join(done.stderr.split())[-LAST_WORDS:]
    if password:
        said = said.replace(password, "***")
    raise UnableError(f"podman pull says: {said}. {advice(said)}")


def advice(said: str) -> str:
    """What to do where Podman said this."""
    lower = said.lower()
    if "manifest unknown" in lower or "not found" in lower:
        return (
            "The registry has no image of that name with that digest: copy both from the registry's page of the image."
        )
    if "digest" in lower or "no image found in" in lower:
        return "What the registry has is not what `image` says: copy the digest of an image for this machine."
    if "authentication required" in lower or "unauthorized" in lower or "denied" in lower:
        return "Write `registry_user` and `registry_password` of an account that may read the image."
    if "certificate" in lower:
        return "Write `registry_ca` where an authority of your own has signed the registry's certificate."
    return "See whether the registry is reached from the container."


def check_machine(image: str) -> None:
    """Refuse an image that is for another machine."""
    done = podman("image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image)
    if done.returncode != 0:
        raise UnableError(f"podman image inspect says: {done.stderr.strip()[-LAST_WORDS:]}")
    made_for = done.stdout.strip()
    here = platform.machine()
    own = f"linux/{MACHINES.get(here, here)}"
    if made_for != own:
        podman("rmi", image)
        raise UnableError(
            f"it is made for {made_for}, and this machine is {own}: take the digest of its image for {own}"
        )


def remember(record: str, listed: list[str]) -> None:
    """Write the record as a whole."""
    path = pathlib.Path(record)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(listed) + "\n", encoding="utf-8")
    new.chmod(0o644)
    new.replace(path)


def bring(wanted: dict[str, Any], *, only_looks: bool) -> bool:
    """Whether something changes: the image is fetched, or the record says another one is the present one."""
    image, record = wanted["image"], wanted["record"]
    before = brought(record)
    listed = [image, *(one for one in before if one != image)]
    missing = not is_there(image)
    changed = missing or before != listed[:KEPT]
    if only_looks or not changed:
        return changed
    if missing:
        pull(wanted)
    check_machine(image)
    remember(record, listed[:KEPT])
    for old in listed[KEPT:]:
        podman("rmi", old)  # one that is still used stays
    return changed


def main() -> None:
    """Bring it and say so."""
    wanted = json.load(sys.stdin)
    said: dict[str, Any] = {"changed": False, "error": ""}
    try:
        said["changed"] = bring(wanted, only_looks="--look" in sys.argv[1:])
    except (UnableError, OSError) as error:
        if "--look" in sys.argv[1:]:
            said["changed"] = True  # before the first run there is no Podman yet
        else:
            said["error"] = f"Unable to bring {wanted['image']}: {error}"
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
