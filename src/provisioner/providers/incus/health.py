"""Facts about an Incus host for ``doctor``: what runs there, what room, images and bridge it has. Only looks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from provisioner.errors import ProviderError, UnavailableError
from provisioner.gpus.health import SCRIPT, UNIT, HostDriver, driver_in
from provisioner.providers.incus import failures
from provisioner.providers.incus.cards import look_here
from provisioner.providers.incus.client import Client
from provisioner.state import Fact

MODPROBE = ("nvidia-modprobe", "-u", "-c", "0")
"""Makes the nodes of unified memory, and no others: those of the cards are asked for without -u."""
CONTROL_MINOR = "255"
_CARD_NODE = re.compile(r"/dev/nvidia(\d+)")
_PREPARE = "Run: sudo provision host prepare"
_PATIENCE_S = 60
"""A driver that is not kept loaded takes a few seconds for each card before nvidia-smi answers."""


def examine(
    host: str, client: Client, profile: str, pool: Callable[[], str], images: Collection[str]
) -> tuple[Fact, ...]:
    """What was seen; a host that does not answer, or does not let us in, is a fact, too."""
    try:
        with failures.reachable(client.endpoint):
            seen = list(_seen(client, profile, pool(), images))
    except UnavailableError as error:
        said = {"problem": error.message, "details": error.details, "hint": error.resolution}
        return (Fact(host, "answers", said),)
    return tuple(Fact(host, name, value) for name, value in [("answers", {"problem": ""}), *seen])


def _seen(client: Client, profile: str, pool: str, images: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    version = client.get()["environment"]["server_version"]
    yield "version", {"program": "Incus", "version": version}
    space = client.get("storage-pools", pool, "resources").get("space", {})
    total = int(space.get("total", 0))
    if total:  # not every kind of pool says
        room = {"free": total - int(space.get("used", 0)), "total": total}
        yield "storage", {"name": pool, "use": "disks", **room, "problem": ""}
    there = {one["name"] for one in client.get("images", "aliases", recursion="1")}
    for image in sorted(images):
        hint = f"Run: sudo provision host prepare --image {image}"
        yield "image", {"name": image, "state": "there" if image in there else "missing", "hint": hint}
    yield "bridge", _bridge(client, profile)


def _bridge(client: Client, profile: str) -> Mapping[str, Any]:
    """The network that the profile's network card is on, made by Incus or by somebody else."""
    devices = client.get("profiles", profile)["devices"].values()
    card = next((one for one in devices if one.get("type") == "nic"), None)
    if card is None:
        return {"name": "", "problem": f"profile {profile} has no network card", "hint": _PREPARE}
    name = card.get("network") or card.get("parent") or ""
    is_there = client.find("networks", name) is not None
    return {"name": name, "problem": "" if is_there else f"there is no bridge {name}", "hint": _PREPARE}


def host_driver() -> HostDriver:
    """What this machine does for its cards; ``UnavailableError`` when looking fails."""
    done = _run(["sh", "-c", SCRIPT])
    if done.returncode:
        raise UnavailableError("Unable to look at the drivers of this machine", details=done.stderr.strip())
    return driver_in(done.stdout)


def mend_cards() -> str:
    """Have the nodes of NVIDIA's cards made, by the unit of role ``gpu_host`` where it is; what was done, in words."""
    missing = [path for card in look_here() if card.driver == "nvidia" for path in card.missing]
    if not missing:
        return ""
    if _run(["systemctl", "cat", UNIT]).returncode == 0:
        return _done(["systemctl", "restart", UNIT])
    minors = sorted({found[1] for path in missing if (found := _CARD_NODE.fullmatch(path))})
    options = [word for minor in (*minors, CONTROL_MINOR) for word in ("-c", minor)]
    return " and ".join(_done(command) for command in ([MODPROBE[0], *options], list(MODPROBE)))


def _done(command: Sequence[str]) -> str:
    done = _run(command)
    if done.returncode:
        raise ProviderError(
            f"Unable to make the nodes of the cards: {command[0]} ended with {done.returncode}",
            details=(done.stderr or done.stdout).strip(),
            resolution="Run it as root (sudo provision doctor --fix); dmesg on this machine says more.",
        )
    return f"ran {' '.join(command)}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a program of this machine gave; 127 where there is none of that name."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"there is no {command[0]}")
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"Unable to wait for {command[0]}: it has not ended after {_PATIENCE_S} s", resolution="See: dmesg"
        ) from error
