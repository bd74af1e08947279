"""The key by which this machine is let into containers: one of the lab's own, or one that the file names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from provisioner.providers.proxmox.shell import ssh_environment
from provisioner.values.errors import PreflightError
from provisioner.values.regular_files import content_of

KEYGEN_S = 60.0


def made_key(folder: Path) -> Path:
    """A private key of this lab's own, made when there is none."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = folder / "id_ed25519"
    if not key.exists():
        with tempfile.TemporaryDirectory(dir=folder) as private:
            made = Path(private, "key")
            _keygen("-t", "ed25519", "-N", "", "-C", "provision", "-f", str(made))
            with suppress(FileExistsError):  # another run was faster
                os.link(made, key)
    return key


def public_part(key: Path) -> str:
    """The public part of a private key; that of one with a passphrase lies beside it."""
    beside = key.with_name(f"{key.name}.pub")
    if beside.is_file():
        return content_of(beside).decode(errors="replace").strip()
    return _keygen("-y", "-P", "", "-f", str(key)).strip()


def _keygen(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["ssh-keygen", "-q", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=ssh_environment(),
            timeout=KEYGEN_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise PreflightError("Unable to find ssh-keygen", resolution="apt install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise PreflightError(
            f"Unable to use the key in {arguments[-1]}: ssh-keygen has not ended after {KEYGEN_S:.0f} s"
        ) from error
    if done.returncode:
        raise PreflightError(
            f"Unable to use the key in {arguments[-1]}",
            details=done.stderr.strip(),
            resolution="Is ssh_key: the file of a private key? Of one with a passphrase, FILE.pub must lie beside it, "
            "and ssh-agent must have it.",
        )
    return done.stdout
