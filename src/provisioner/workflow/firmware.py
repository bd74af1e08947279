"""A copy of a host's firmware chip: read twice there, compared there, kept here."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from provisioner.cluster import runs
from provisioner.cluster.reaching import Reach
from provisioner.repair.flash import Region, regions, why_not_an_image
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.workflow.repairing import Hands, Where, begin, carry_out

RUNBOOK = "bios-backup"
CLUSTER = "firmware"
"""Where copies are kept among the clusters' records: a host need not be in one."""
IMAGE = "image.bin"
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Copy:
    """What was kept: the image's file (0600; its sum is beside it), its size in bytes, sha256, and regions."""

    host: str
    file: Path
    size: int
    sha256: str
    regions: tuple[Region, ...]
    record: Path


def copy_chip(host: Reach, programmer: str, chip: str, output: Path | None, hands: Hands) -> Copy:
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
    where = Where(CLUSTER, name, name, shell)
    run = begin(RUNBOOK, where)
    image = run.folder / IMAGE
    run = carry_out(run, where, {"programmer": programmer, "chip": chip, "image": str(image)}, hands)
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


def _kept(data: bytes, image: Path, output: Path | None, run: runs.Run) -> Path:
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
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
