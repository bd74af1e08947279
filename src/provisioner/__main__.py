"""``python -m provisioner`` is the command ``provision``."""

from __future__ import annotations

from provisioner.cli import main

main()
