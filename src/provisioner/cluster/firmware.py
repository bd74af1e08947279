"""Runbook ``bios-backup``: a copy of a host's firmware chip, read twice there, compared there, stored here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.cluster.gather import Reach
from provisioner.cluster.record import Run
from provisioner.cluster.run import Effects, RepairTarget, begin_run, run_runbook
from provisioner.report.style import safe_line
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.quantities import size_text

RUNBOOK = "bios-backup"
CLUSTER = "firmware"
"""Where copies are kept among the clusters' records: a host need not be in one."""
IMAGE = "image.bin"
TIMEOUT_S = 20.0
SIGNATURE = b"\x5a\xa5\xf0\x0f"
PLACES = (0x10, 0x0)
"""Where the signature is; the second in the oldest chipsets."""
NAMES = ("descriptor", "bios", "me", "gbe", "platform", "devexp", "bios2", "microcode", "ec", "devexp2", "ie", "10gbe0")
"""Regions by their number, as coreboot's ifdtool calls them."""
BLOCK = 0x1000
NO_REGIONS = "No Intel flash descriptor is in it, so its regions are not known."


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the chip: its first byte and the one behind its last."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy: the image's file (0600; its sum is beside it), its size in bytes, sha256, and regions."""

    host: str
    file: Path
    size: int
    sha256: str
    regions: tuple[Region, ...]
    record: Path


def copy_chip(host: Reach, programmer: str, chip: str, output: Path | None, effects: Effects) -> Copy:
    """Keep a copy of the chip in ``output``, else in the run's folder.

    ``PreflightError``: flashrom is not there. ``ProviderError``: it could not be read, or two reads differ; nothing is
    kept then.
    """
    shell = host.shell
    name = shell.run(["uname", "-n"], timeout_s=TIMEOUT_S).stdout.decode(errors="replace").strip()
    if shell.run(["sh", "-c", "command -v flashrom"], timeout_s=TIMEOUT_S).returncode:
        raise PreflightError(
            f"Unable to read the firmware chip of {name}: flashrom is not installed there",
            resolution=f"Install it yourself: ssh {shell.destination.login} apt install flashrom",
        )
    target = RepairTarget(CLUSTER, name, name, shell)
    run = begin_run(RUNBOOK, target)
    image = run.folder / IMAGE
    run = run_runbook(run, target, {"programmer": programmer, "chip": chip, "image": str(image)}, effects)
    data = image.read_bytes()
    if why := why_not_an_image(data):
        image.unlink()
        raise ProviderError(
            f"Unable to keep what was read from the firmware chip of {name}",
            details=f"It is no image: {why}.",
            resolution="Is this the right programmer? flashrom -p internal works on supported boards only.",
        )
    file = _kept(data, image, output, run)
    return Copy(name, file, len(data), hashlib.sha256(data).hexdigest(), regions(data), run.folder)


def _kept(data: bytes, image: Path, output: Path | None, run: Run) -> Path:
    """The image where it is wanted, readable by us alone, its sum beside it."""
    folder = output or run.folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = folder / (f"{run.name}.bin" if output else IMAGE)
    if output:
        _write(target, data)
        image.unlink()
    else:
        image.chmod(0o600)
    digest = hashlib.sha256(data).hexdigest()
    _write(target.with_name(f"{target.name}.sha256"), f"{digest}  {target.name}\n".encode())
    return target


def _write(file: Path, data: bytes) -> None:
    """Write a new file (0600), on disk when this returns."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def regions(image: bytes) -> tuple[Region, ...]:
    """The regions in the order of their places; none where the image does not begin with an Intel flash descriptor."""
    for place in PLACES:
        if image[place : place + len(SIGNATURE)] == SIGNATURE:
            table = (_word(image, place + 4) >> 16 & 0xFF) << 4
            return tuple(sorted(_regions(image, table), key=lambda region: region.start))
    return ()


def why_not_an_image(image: bytes) -> str:
    """Return why the bytes cannot be what is on a chip, or nothing."""
    if not image:
        return "it is empty"
    if image.count(image[:1]) == len(image):
        return f"every byte is 0x{image[0]:02x}, which is what a programmer reads when it reaches no chip"
    return ""


def _regions(image: bytes, table: int) -> Iterator[Region]:
    """The regions that are used, by the descriptor's table of their first and last blocks."""
    for number, name in enumerate(NAMES):
        word = _word(image, table + 4 * number)
        start, end = (word & 0x7FFF) * BLOCK, ((word >> 16 & 0x7FFF) + 1) * BLOCK
        if start < end <= len(image):  # an unused region begins behind its end
            yield Region(name, start, end)


def _word(image: bytes, place: int) -> int:
    return int.from_bytes(image[place : place + 4], "little")


def copy_text(host: str, file: Path, size: int, sha256: str, regions: Sequence[Region]) -> str:
    """Return what was kept, and what is in it."""
    lines = [
        f"Two reads of the firmware chip of {safe_line(host)} are equal.",
        f"image   {safe_line(file)} ({size_text(size)})",
        f"sha256  {sha256}",
    ]
    lines += [f"region  {region.start:#010x}-{region.end - 1:#010x}  {region.name}" for region in regions] or [
        NO_REGIONS
    ]
    return "\n".join([*lines, "Keep it like a password: serial numbers, addresses and keys are in it."])
