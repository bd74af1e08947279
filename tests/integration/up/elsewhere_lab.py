"""A lab on an Incus elsewhere, from a controller that has none: its file, and the client certificate in its home."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.up.quickstart_lab import Lab
from tests.lab.far import FarIncus
from tests.lab_files import lab_text

NAME = "far"
FILE = lab_text("elsewhere")


def elsewhere_lab(far: FarIncus, folder: Path) -> Lab:
    """The lab's folder with its file, in whose configuration the trusted certificate lies."""
    config = folder / "config"
    (config / "provisioner").mkdir(parents=True)
    for name, source in (("client.crt", far.endpoint.cert), ("client.key", far.endpoint.key)):
        shutil.copy(source, config / "provisioner" / name)
    (folder / "lab").mkdir()
    environment = {**far.environment, "XDG_CONFIG_HOME": str(config)}
    lab = Lab(folder / "lab", environment, "debian/12", "debian/12-bare", NAME, far.lab.environment)
    lab.write(text_for(far))
    return lab


def text_for(far: FarIncus, text: str = FILE) -> str:
    """The file with where that Incus is."""
    return text.replace("ADDRESS", far.endpoint.address).replace("FINGERPRINT", far.endpoint.fingerprint)
