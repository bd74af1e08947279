"""``python -m provisioner.cli.artifacts FILE``: make a file's artifacts on its hosts, and print their places (JSON).

Molecule's scenarios call it, so that they mount the same artifacts, from the same cache, as ``up`` does.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from time import monotonic

from provisioner.cli.effects import providers_of
from provisioner.cli.progress import Pace
from provisioner.lab import desired_fleet
from provisioner.lab.opening import find_files, open_lab, with_wheels
from provisioner.values.errors import ProvisionError
from provisioner.values.events import Event


def main(arguments: list[str]) -> int:
    """Make what is missing; the exit code is that of the error, if any."""
    from provisioner.reconcile.artifacts import ensure_artifacts
    from provisioner.reconcile.observe import cards_of
    from provisioner.reconcile.runner import run_playbook

    try:
        lab = open_lab(Path(arguments[0]))
        providers = providers_of(lab)
        seen = {name: provider.observe(lab.name).hosts[name] for name, provider in providers.items()}
        cards = cards_of(lab, providers)
        say = partial(_say, Pace(monotonic))
        resolved = with_wheels(lab, lab.on_hosts(cards), seen)
        artifacts = desired_fleet(resolved, find_files(lab).hashed(say).files, seen).artifacts
        missing = [one for one in artifacts if one.volume not in seen[one.host].volumes]
        run = partial(run_playbook, folder=lab.folder)
        ensure_artifacts(missing, providers, lab.name, run_playbook=run, emit=say)
    except ProvisionError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps({one.name: {"volume": one.volume, "path": one.path} for one in artifacts}) + "\n")
    return 0


def _say(pace: Pace, event: Event) -> None:
    if pace.is_due(event):
        sys.stderr.write(f"{event}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
