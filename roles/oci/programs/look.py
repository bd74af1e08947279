"""Looks at the image that runs: whether it is the file's, what it may do, where it listens, and where its secrets show.

Its standard input says in JSON what is expected (``container``, ``image``, ``unit``, ``published``, ``image_port``,
``further``, ``volumes``, ``card``, ``capabilities``, ``secrets``, ``secret_files``, ``health_command``, ``within_s``).
It prints in JSON what it ``saw``, and a list ``wrong`` of what should be otherwise, in words without secrets. ``card``
is the CDI file by which the image gets the container's card, empty where it has none; ``further`` are the places of
further ports, each with the port inside.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

PODMAN = "podman"
SHORT_S = 60
LISTENS_WITHIN_S, POLL_S = 20.0, 0.2
"""So long an image that answers at its main port may take until it listens at its further ones."""
ASKED_EACH_S, SHORTEST_S = 1.0, 5.0
"""How often an image without a page is asked whether it is ready, and so long it may take to say so in any case."""
SECCOMP_FILTER = "2"
"""The kernel's number for a process whose system calls go through filters."""
LISTENS = {"tcp": "0A", "udp": "07"}
"""How the kernel's tables call the state of a socket that waits for clients, by protocols."""
SECRETS = "/run/secrets"
USUAL_DEVICES = frozenset({"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"})
"""What every container has in its /dev; its own terminals are in a folder."""
TERMINALS = "pts"
LIBRARIES_VARIABLE = "LD_LIBRARY_PATH"
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
    if running.get("ImageName") != wanted["image"]:
        yield f"the container runs {running.get('ImageName')}, and not {wanted['image']}"
    file_digest = wanted["image"].rpartition("@")[2]
    if digest_of(image, wanted) != file_digest:
        yield f"the image has the digest {image.get('Digest')}, and not {file_digest}"


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


def status_of(process: int) -> dict[str, str]:
    """Return what the kernel says of a process, by its words."""
    lines = pathlib.Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return {word: value.strip() for word, value in (line.partition(":")[::2] for line in lines)}


def confinement_problems(status: dict[str, str], wanted: dict[str, Any]) -> Iterator[str]:
    """Yield what does not hold the image's process although Podman was told that it should."""
    if int(status["CapBnd"], 16).bit_count() > len(wanted["capabilities"]):
        yield f"the image may gain powers that nobody gave it (CapBnd {status['CapBnd']})"
    if status["NoNewPrivs"] != "1":
        yield "the image may gain powers by programs that have some (NoNewPrivs)"
    if status["Seccomp"] != SECCOMP_FILTER:
        yield "no filter keeps system calls from the image (Seccomp)"


def devices_in(root: pathlib.Path) -> dict[str, int]:
    """The device files below ``root`` that not every container has, each with its number."""
    found = {}
    for folder, folders, names in os.walk(root / "dev"):
        at = pathlib.Path(folder)
        is_top = at == root / "dev"
        if is_top:
            folders[:] = [name for name in folders if name != TERMINALS]
        for name in names:
            seen = (at / name).lstat()
            if is_top and name in USUAL_DEVICES:
                continue
            if stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode):
                found[f"/{(at / name).relative_to(root)}"] = seen.st_rdev
    return found


def given_card(file: str) -> dict[str, Any]:
    """What Podman was told of the card: its device files and what is mounted; nothing where there is none."""
    if not file:
        return {}
    try:
        spec = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnableError(f"what Podman is told of the card cannot be read: {error}") from None
    return dict(spec["devices"][0]["containerEdits"])


def groups_of(process: int) -> set[int]:
    """The groups that a process is in, by the numbers that this container has for them."""
    return {int(number) for number in status_of(process).get("Groups", "").split()}


def device_problems(process: int, card: dict[str, Any]) -> Iterator[str]:
    """Device files that the image has without being given them, and those of its card that it lacks or cannot open."""
    found = devices_in(pathlib.Path(f"/proc/{process}/root"))
    nodes = [node["path"] for node in card.get("deviceNodes", ())]
    for path in sorted(found.keys() - set(nodes)):
        yield f"the image has the device {path}, and nobody gave it that"
    groups = groups_of(process)
    for path in nodes:
        node = pathlib.Path(path)
        if not node.exists():
            yield f"{path} of the card is gone from this container"
            continue
        seen = node.stat()
        if found.get(path) != seen.st_rdev:
            yield f"the image has no {path} of the card"
        elif seen.st_mode & 0o006 != 0o006 and seen.st_gid not in groups:
            yield f"{path} of the card belongs to group {seen.st_gid}, in which the image's program is not"


def library_problems(process: int, card: dict[str, Any]) -> Iterator[str]:
    """Files of the card's driver that the image does not have, or would not find."""
    mounts = card.get("mounts", ())
    for mount in mounts:
        inside = pathlib.Path(f"/proc/{process}/root{mount['containerPath']}")
        try:
            is_same = inside.samefile(mount["hostPath"])
        except OSError:
            is_same = False
        if not is_same:
            yield f"{mount['containerPath']} in the image is not the driver's {mount['hostPath']}"
    libraries = [pathlib.PurePosixPath(mount["containerPath"]) for mount in mounts]
    folders = {str(path.parent) for path in libraries if ".so" in path.name}
    variables = pathlib.Path(f"/proc/{process}/environ").read_text(encoding="utf-8", errors="replace").split("\0")
    path = dict(variable.partition("=")[::2] for variable in variables).get(LIBRARIES_VARIABLE, "")
    for folder in sorted(folders - set(path.split(":"))):
        yield f"{LIBRARIES_VARIABLE} of the image ({path or 'empty'}) does not name {folder}"


def card_words(card: dict[str, Any]) -> str:
    """What of the card the image has."""
    nodes = [node["path"] for node in card.get("deviceNodes", ())]
    files = len(card.get("mounts", ()))
    return f"{', '.join(nodes)}; {files} files of its driver" if card else ""


def published(running: dict[str, Any]) -> dict[str, str]:
    """The addresses and protocols by which the container's ports are reached, each with the port inside."""
    found = {}
    for inside, places in (running.get("NetworkSettings", {}).get("Ports") or {}).items():
        for place in places or ():
            address = place.get("HostIp") or "0.0.0.0"  # noqa: S104  # what Podman means by none
            host = f"[{address}]" if ":" in address else address
            found[f"{host}:{place.get('HostPort')}/{inside.rpartition('/')[2]}"] = inside
    return found


def port_problems(running: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """Published ports beside those of the service."""
    expected = dict(wanted["further"])
    if wanted["published"]:
        expected[f"{wanted['published']}/tcp"] = f"{wanted['image_port']}/tcp"
    found = published(running)
    if found != expected:
        places, right_ones = (", ".join(sorted(one)) or "no address" for one in (found, expected))
        yield f"it is published at {places}, and not at {right_ones} alone"


def listening(process: int) -> list[str]:
    """The ports at which something listens in the network of a process, each with its protocol."""
    ports = set()
    for protocol, state in LISTENS.items():
        for table in (protocol, f"{protocol}6"):
            path = pathlib.Path(f"/proc/{process}/net/{table}")
            if not path.exists():
                continue
            for line in path.read_text(encoding="ascii").splitlines()[1:]:
                row = line.split()
                if row[3] == state:
                    ports.add((int(row[1].rpartition(":")[2], 16), protocol))
    return [f"{port}/{protocol}" for port, protocol in sorted(ports)]


def deaf_ports(process: int, wanted: dict[str, Any]) -> Iterator[str]:
    """Further ports that the file opens, and at which nothing listens inside."""
    further = wanted["further"]
    end = time.monotonic() + min(float(wanted["within_s"]), LISTENS_WITHIN_S)
    while not (heard := set(listening(process))) >= set(further.values()) and time.monotonic() < end:
        time.sleep(POLL_S)
    for place, inside in sorted(further.items()):
        if inside not in heard:
            yield f"{place} leads to port {inside} of the image, and nothing listens there"


def file_problems(process: int, wanted: dict[str, Any]) -> Iterator[str]:
    """Secrets that should be files of the image, and are none with their value."""
    for name, value in sorted(wanted["secret_files"].items()):
        try:
            text = pathlib.Path(f"/proc/{process}/root{SECRETS}/{name}").read_bytes()
        except OSError:
            text = b""
        if text != value.encode():
            yield f"{SECRETS}/{name} of the image is not the secret of the file"


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
    """That the command which says whether the image is well did not end well.

    Of an image that has no page nobody has seen yet whether it is ready: it is asked until it is.
    """
    if not wanted["health_command"]:
        return
    end = time.monotonic() + float(wanted["within_s"])
    while True:
        left_s = max(end - time.monotonic(), SHORTEST_S)
        done = podman("exec", wanted["container"], *wanted["health_command"], within_s=left_s)
        if done.returncode == 0 or wanted["published"] or time.monotonic() > end:
            break
        time.sleep(ASKED_EACH_S)
    if done.returncode != 0:
        yield f"`health_command` ended with {done.returncode}"


def digest_of(image: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The digest of an image: of those by which registries have it the file's, where that is one of them."""
    digests = [known.rpartition("@")[2] for known in image.get("RepoDigests") or ()]
    file_digest = wanted["image"].rpartition("@")[2]
    return file_digest if file_digest in digests else str(image.get("Digest"))


def seen(wanted: dict[str, Any]) -> dict[str, Any]:
    """All that was seen, and all that should be otherwise."""
    running, said = described("container", "inspect", wanted["container"])
    # Asked for by its own number: its name says what the file says.
    image, image_said = described("image", "inspect", str(running.get("Image")))
    card = given_card(wanted["card"])
    process = int(running.get("State", {}).get("Pid") or 0)
    texts = {
        "`podman inspect`": said + image_said,
        "the arguments of a process": arguments_of_all(),
        "the unit": unit_text(wanted["unit"]),
    }
    wrong = [*image_problems(running, image, wanted), *power_problems(running, wanted), *port_problems(running, wanted)]
    wrong += [f"a secret stands in {place}" for place in leaks(wanted["secrets"], texts)]
    if process:
        wrong += [*confinement_problems(status_of(process), wanted)]
        wrong += [*device_problems(process, card), *library_problems(process, card)]
        wrong += [*deaf_ports(process, wanted), *file_problems(process, wanted)]
    unwell = list(health_problems(wanted))
    wrong += unwell
    saw = {
        "digest": digest_of(image, wanted),
        "card": card_words(card),
        "health": "`health_command` ended well" if wanted["health_command"] and not unwell else "",
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
