"""Looks at the image that runs: whether it is the file's, what it may do, where it listens, and where its secrets show.

Its standard input says in JSON what is expected (``container``, ``image``, ``unit``, ``published``, ``image_port``,
``volumes``, ``files``, ``secrets``, ``health_command``, ``within_s``). It prints in JSON what it ``saw``, and a list
``wrong`` of what should be otherwise, in words without secrets.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

PODMAN = "podman"
SHORT_S = 60
LISTENS = "0A"
ENVIRONMENT = {**os.environ, "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}


class UnableError(Exception):
    """What nobody could look at."""


def podman(*arguments: str, within_s: float = SHORT_S) -> subprocess.CompletedProcess[str]:
    """What Podman says to these arguments."""
    try:
        return subprocess.run(
            [PODMAN, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within_s,
            check=False,
            env=ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnableError(f"podman {arguments[0]}: {error}") from None


def described(*arguments: str) -> tuple[dict[str, Any], str]:
    """What ``podman inspect`` says of one thing, and all of it as a text."""
    done = podman(*arguments)
    if done.returncode != 0:
        raise UnableError(f"podman {arguments[0]} says: {' '.join(done.stderr.split())[-300:]}")
    return json.loads(done.stdout)[0], done.stdout


def image_problems(running: dict[str, Any], image: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """Where the running container is not of the file's image."""
    if running.get("ImageName") != wanted["image"] or running.get("Image") != image.get("Id"):
        yield f"the container runs {running.get('ImageName')}, and not {wanted['image']}"
    digests = [one.rpartition("@")[2] for one in image.get("RepoDigests", [])] + [image.get("Digest")]
    if wanted["image"].rpartition("@")[2] not in digests:
        yield f"the image has the digest {image.get('Digest')}, and not {wanted['image'].rpartition('@')[2]}"


def power_problems(running: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """What the container may do that no image of ours may."""
    host = running.get("HostConfig", {})
    if host.get("Privileged"):
        yield "the container is privileged"
    for name in ("NetworkMode", "PidMode", "IpcMode", "UTSMode"):
        if str(host.get(name, "")).startswith(("host", "container", "ns:")):
            yield f"the container shares {name.removesuffix('Mode')} with others ({host[name]})"
    if host.get("Devices"):
        yield "the container has devices"
    for mount in running.get("Mounts", []):
        source = mount.get("Source", "")
        inside = source.startswith(wanted["volumes"] + "/") and ".." not in source.split("/")
        is_own = mount.get("Type") == "volume"  # one that the image itself asks for lies in Podman's own folder
        if not (inside or is_own):
            yield f"{source} of the machine is mounted at {mount.get('Destination')}"


def published(running: dict[str, Any]) -> dict[str, str]:
    """The addresses at which the container's ports are reached, each with the port inside."""
    found = {}
    for inside, places in (running.get("NetworkSettings", {}).get("Ports") or {}).items():
        for place in places or ():
            address = place.get("HostIp") or "0.0.0.0"  # noqa: S104  # what Podman means by none
            found[f"{address}:{place.get('HostPort')}"] = inside
    return found


def port_problems(running: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """Published ports beside the one of the service."""
    expected = {wanted["published"]: f"{wanted['image_port']}/tcp"}
    found = published(running)
    if found != expected:
        yield f"it is published at {', '.join(sorted(found)) or 'no address'}, and not at {wanted['published']} alone"


def listening(process: int) -> list[int]:
    """The TCP ports at which something listens in the network of a process."""
    ports = set()
    for table in ("tcp", "tcp6"):
        path = pathlib.Path(f"/proc/{process}/net/{table}")
        if not path.exists():
            continue
        for line in path.read_text(encoding="ascii").splitlines()[1:]:
            row = line.split()
            if row[3] == LISTENS:
                ports.add(int(row[1].rpartition(":")[2], 16))
    return sorted(ports)


def leaks(secrets: list[str], texts: dict[str, str]) -> list[str]:
    """Where one of the secrets stands that should not."""
    return [place for place, text in texts.items() if any(secret and secret in text for secret in secrets)]


def arguments_of_all() -> str:
    """The arguments of every process of the machine, as one text."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it ended meanwhile
    return "\n".join(found)


def unit_text(unit: str) -> str:
    """The unit as systemd has it."""
    command = ["systemctl", "cat", "--no-pager", "--", unit]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SHORT_S, check=False)
    return done.stdout


def health_problems(wanted: dict[str, Any]) -> Iterator[str]:
    """That the command which says whether the image is well did not end well."""
    if not wanted["health_command"]:
        return
    done = podman("exec", wanted["container"], *wanted["health_command"], within_s=wanted["within_s"])
    if done.returncode != 0:
        yield f"`health_command` ended with {done.returncode}"


def seen(wanted: dict[str, Any]) -> dict[str, Any]:
    """All that was seen, and all that should be otherwise."""
    running, said = described("container", "inspect", wanted["container"])
    image, image_said = described("image", "inspect", wanted["image"])
    process = int(running.get("State", {}).get("Pid") or 0)
    texts = {
        "`podman inspect`": said + image_said,
        "the arguments of a process": arguments_of_all(),
        "the unit": unit_text(wanted["unit"]),
    }
    wrong = [*image_problems(running, image, wanted), *power_problems(running, wanted), *port_problems(running, wanted)]
    wrong += [f"a secret stands in {place}" for place in leaks(wanted["secrets"], texts)]
    wrong += health_problems(wanted)
    saw = {
        "digest": wanted["image"].rpartition("@")[2],
        "process": process,
        "published": published(running),
        "inside": listening(process) if process else [],
        "user": running.get("Config", {}).get("User", "") or "the image's own",
        "root": "is nobody in this container"
        if running.get("HostConfig", {}).get("IDMappings")
        else "is this container's",
    }
    return {"wrong": wrong, "saw": saw}


def main() -> None:
    """Print what was seen."""
    wanted = json.load(sys.stdin)
    try:
        sys.stdout.write(json.dumps(seen(wanted)))
    except UnableError as error:
        sys.stdout.write(json.dumps({"wrong": [str(error)], "saw": {}}))


if __name__ == "__main__":
    main()
