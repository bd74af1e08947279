# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: what must be known of a machine's graphics cards before containers are given them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_gpu_facts
short_description: What must be known of a machine's graphics cards before containers are given them
description:
  - Reads the cards, their drivers and device files, and what makes these at every start. Changes nothing.
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: preflight | Look at the cards
  provision_gpu_facts:
"""
RETURN = r"""
cards: {type: list, returned: always, description: "The cards: pci, vendor, name and driver."}
obstacles: {type: list, returned: always, description: "Why cards cannot be given to containers, in words."}
missing: {type: list, returned: always, description: Device files that cards with their driver lack.}
makers: {type: list, returned: always, description: What makes NVIDIA's device files at every start.}
has_modprobe: {type: bool, returned: always, description: Whether nvidia-modprobe is there.}
has_persistence_unit: {type: bool, returned: always, description: Whether nvidia-persistenced is installed.}
has_tools: {type: bool, returned: always, description: Whether nvidia-container-cli is there.}
has_incus: {type: bool, returned: always, description: Whether an Incus is there.}
without_firmware: {type: list, returned: always, description: Drivers of which there is no firmware.}
"""

import subprocess
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

try:  # noqa: SIM105  # only this form may stand before imports
    import ansible.module_utils.provisioner  # noqa: F401  # in a container: sent along by the role
except ImportError:  # here is the whole package
    pass

from provisioner.gpus.cards import DRIVERS, Card
from provisioner.gpus.health import SCRIPT as ABOUT_DRIVERS
from provisioner.gpus.health import driver_in
from provisioner.gpus.look import SCRIPT as ABOUT_CARDS
from provisioner.gpus.look import cards_in

TIMEOUT_S = 120
FIRMWARE = (Path("/lib/firmware"), Path("/usr/lib/firmware"))
UNITS = tuple(Path(folder) for folder in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"))
PERSISTENCE = "nvidia-persistenced.service"
INCUS = (Path("/usr/bin/incus"), Path("/usr/libexec/incus/incusd"), Path("/opt/incus/bin/incus"))


def main() -> None:
    """Gather everything in one call."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    cards, driver = cards_in(_said(module, ABOUT_CARDS)), driver_in(_said(module, ABOUT_DRIVERS))
    usable = [card for card in cards if card.driver in DRIVERS[card.vendor]]
    module.exit_json(
        changed=False,
        cards=list(map(_described, cards)),
        obstacles=_obstacles(cards),
        missing=sorted(set(chain.from_iterable(card.missing for card in usable))),
        makers=list(driver.makers),
        has_modprobe=driver.has_modprobe,
        has_persistence_unit=any((folder / PERSISTENCE).is_file() for folder in UNITS),
        has_tools=module.get_bin_path("nvidia-container-cli") is not None,
        has_incus=any(path.exists() for path in INCUS),
        without_firmware=_without_firmware(usable),
    )


def _without_firmware(cards: Iterable[Card]) -> list[str]:
    """The drivers of the cards of which there is no firmware, each once."""
    drivers = {card.driver for card in cards}
    return sorted(name for name in drivers if not _has_firmware(name))


def _described(card: Card) -> dict[str, str]:
    return {"pci": card.pci, "vendor": card.vendor, "name": card.name, "driver": card.driver}


def _obstacles(cards: Iterable[Card]) -> list[str]:
    obstacles = []
    for card in cards:
        obstacle = card.obstacle()
        if obstacle:
            obstacles.append(f"{card.title}: {obstacle}")
    return obstacles


def _said(module: AnsibleModule, script: str) -> str:
    done = subprocess.run(
        ["sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        module.fail_json(msg=f"Unable to look at this machine's graphics cards: {done.stderr.strip()}")
    return done.stdout


def _has_firmware(driver: str) -> bool:
    for folder in FIRMWARE:
        files = folder / driver
        if files.is_dir() and any(files.iterdir()):
            return True
    return False


if __name__ == "__main__":
    main()
