"""Says how an image is given the card of its container: a CDI file for Podman, and what else its start has to name.

Its standard input says in JSON the ``vendor`` of the card, the ``nodes`` that lead to it (empty: those that are there),
the ``image``, and the ``libraries`` path that the file sets for the image, which may be empty. It prints in JSON

* ``spec``, the text of the CDI file: the card's device files, and of an NVIDIA card the driver's libraries that this
  container has, each read-only at a place of its own inside the image;
* ``groups``, numbers of the groups without which a device file cannot be opened;
* ``libraries``, the path by which programs of the image find the driver's, empty where they need none;
* ``error``, which is empty where the card can be given.

NVIDIA's own tool runs hooks in the image for its cache of libraries. Ours needs none: the folder of the libraries is
the one that NVIDIA's images name in ``LD_LIBRARY_PATH``, and it is added to the path of others.
"""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

KIND = "provision.local/gpu"
VERSION = "0.5.0"
"""The oldest of the format that says all of ours."""
LIBRARIES = "/usr/local/nvidia/lib64"
PROGRAM, PROGRAM_INSIDE = "/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"
FOLDER_VARIABLE = "LD_LIBRARY_PATH"
NEEDED = "libcuda.so.1"
COMPUTE = (
    "libcuda.so*",
    "libcudadebugger.so*",
    "libnvidia-gpucomp.so*",
    "libnvidia-ml.so*",
    "libnvidia-nvvm*.so*",
    "libnvidia-opencl.so*",
    "libnvidia-ptxjitcompiler.so*",
    "libnvidia-tileiras.so*",
)
"""The driver's libraries for computing, by their names; those for drawing are left out."""
NODES = {
    "nvidia": ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
    "amd": ("/dev/kfd", "/dev/dri/renderD*"),
    "intel": ("/dev/dri/renderD*",),
}
ALSO = {"nvidia": ("/dev/nvidia-modeset", "/dev/nvidia-caps/*")}
"""What is given where the container has it, and nothing needs."""
OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
SHORT_S = 60
ENVIRONMENT = {**os.environ, "PODMAN_IGNORE_CGROUPSV1_WARNING": "1", "LC_ALL": "C"}


class UnableError(Exception):
    """Why the card cannot be given, in words that say what to do."""


def said_by(*command: str) -> str:
    """What a program prints; nothing where it fails or is not there."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SHORT_S,
            check=False,
            env=ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def nodes_of(vendor: str, named: list[str]) -> list[str]:
    """The device files that the image gets; ``UnableError`` where one that is named is not there, or none is."""
    missing = [path for path in named if not is_device(path)]
    if missing:
        raise UnableError(
            f"{', '.join(missing)} of the card {'is' if len(missing) == 1 else 'are'} not in this container. "
            "See: provision doctor"
        )
    found = set(named)
    for pattern in ALSO.get(vendor, ()) if named else (*NODES[vendor], *ALSO.get(vendor, ())):
        there = (str(path) for path in pathlib.Path("/").glob(pattern.removeprefix("/")))
        found.update(path for path in there if is_device(path))
    if not found:
        raise UnableError(f"no device file of a card of {vendor} is in this container. Give it a card: gpu: any")
    return sorted(found)


def is_device(path: str) -> bool:
    """Whether a character device is at that path."""
    return pathlib.Path(path).is_char_device()


def groups_of(nodes: list[str]) -> list[int]:
    """The groups of device files that not everybody may open."""
    seen_nodes = [pathlib.Path(node).stat() for node in nodes]
    return sorted({seen.st_gid for seen in seen_nodes if seen.st_mode & 0o006 != 0o006})


def libraries_in(cache: str) -> dict[str, str]:
    """The driver's libraries for computing, each by its name with its file, as ``ldconfig -p`` lists them.

    The first of a name is the one that programs load; those for 32 bits are another's.
    """
    found: dict[str, str] = {}
    for line in cache.splitlines():
        described, arrow, path = line.strip().partition(" => ")
        name, _, kind = described.partition(" ")
        is_wanted = any(fnmatch.fnmatchcase(name, pattern) for pattern in COMPUTE)
        if arrow and is_wanted and ("x86-64" in kind or "AArch64" in kind):
            found.setdefault(name, path)
    return found


def mounts_of(libraries: dict[str, str]) -> list[dict[str, Any]]:
    """The driver's files as CDI has them mounted: what a link leads to, under the name of the link."""
    if NEEDED not in libraries:
        raise UnableError(
            f"the driver's {NEEDED} is not in this container. Its user space comes with the card: provision up --full"
        )
    placed = {f"{LIBRARIES}/{name}": path for name, path in libraries.items()}
    if os.access(PROGRAM, os.X_OK):
        placed[PROGRAM_INSIDE] = PROGRAM
    return [
        {"hostPath": os.path.realpath(path), "containerPath": inside, "options": OPTIONS}
        for inside, path in sorted(placed.items())
    ]


def path_with_ours(path: str) -> str:
    """A path of libraries that ends with the folder of ours, unless it names that already."""
    folders = [folder for folder in path.split(":") if folder]
    return ":".join(folders if LIBRARIES in folders else [*folders, LIBRARIES])


def path_of_image(image: str) -> str:
    """The path of libraries that an image sets for its programs; empty where it sets none."""
    said = said_by("podman", "image", "inspect", "--format", "{{json .Config.Env}}", image)
    variables = json.loads(said or "null") or []
    set_by_it = dict(variable.partition("=")[::2] for variable in variables)
    return set_by_it.get(FOLDER_VARIABLE, "")


def spec_of(nodes: list[str], mounts: list[dict[str, Any]]) -> dict[str, Any]:
    """The CDI file: one device, the card, under the name ``all``."""
    edits: dict[str, Any] = {"deviceNodes": [{"path": node} for node in nodes]}
    if mounts:
        edits["mounts"] = mounts
    return {"cdiVersion": VERSION, "kind": KIND, "devices": [{"name": "all", "containerEdits": edits}]}


def given(wanted: dict[str, Any]) -> dict[str, Any]:
    """What the image's start has to name."""
    vendor = wanted["vendor"]
    nodes = nodes_of(vendor, wanted["nodes"])
    mounts, libraries = [], ""
    if vendor == "nvidia":
        mounts = mounts_of(libraries_in(said_by("/sbin/ldconfig", "-p")))
        libraries = path_with_ours(wanted["libraries"] or path_of_image(wanted["image"]))
    spec = json.dumps(spec_of(nodes, mounts), indent=1) + "\n"
    return {"spec": spec, "groups": groups_of(nodes), "libraries": libraries, "error": ""}


def main() -> None:
    """Print it."""
    wanted = json.load(sys.stdin)
    try:
        said = given(wanted)
    except UnableError as error:
        said = {"spec": "", "groups": [], "libraries": "", "error": str(error)}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
