# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible inventory plugin: a lab's file is the inventory, as its hosts have it at this moment.

Imports of ours stand inside functions, so that where the package is missing that is what is said.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: lab
short_description: The containers of a lab, by the file that provision reads
description:
  - Reads a lab's file (C(homelab.yml)) and asks its hosts for what is there. Groups are C(containers), C(lab_NAME),
    C(host_NAME), C(service_ROLE), and C(card_VENDOR) of those that have one. Variables are how each container is
    reached, C(provision_address) where it has an address in the LAN, and those of its services' roles.
  - A container that is not there is told, and in group C(not_there) alone. Secrets are lookups.
  - The package C(provisioner) has to be installed beside ansible-core on the controller.
  - Ansible itself cannot read a file with C(!secret) in it, whatever its keys. Then name the lab's file in one of two
    lines, or this plugin in E(ANSIBLE_INVENTORY_ENABLED) or C(enable_plugins).
author: [provisioner (!UNKNOWN)]
options:
  plugin:
    description: By this key Ansible knows whose file it is.
    choices: [provisioner.inference.lab]
  file:
    description: The lab's file, relative to this one, which then has these two keys alone; else this is the lab's file.
    type: path
"""
EXAMPLES = r"""
# inventory.yml, beside the lab's file
plugin: provisioner.inference.lab
file: homelab.yml
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import yaml
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.template import trust_as_template

if TYPE_CHECKING:
    from provisioner.eject.inventory import Listing

SUFFIXES = (".yml", ".yaml")
COLLECTION = "provisioner.inference"
OURS = "provision_"
"""How the names of our connection plugins begin."""


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]  # ansible-core ships no types
    """Lists a lab's containers; a file with errors fails with the words of ``provision validate``."""

    NAME = f"{COLLECTION}.lab"

    def verify_file(self, path: str) -> bool:
        """Whether it may be a lab's file."""
        return bool(super().verify_file(path)) and path.endswith(SUFFIXES)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        _refuse_another_version()
        file = _lab_file(Path(path))
        found = _listed(file, lambda text: self.display.display(text, stderr=True))
        for name in found.missing:
            self.display.warning(f"Container {name} of {file} is not there, and has no address: run provision up.")
        for group, names in found.groups.items():
            self.inventory.add_group(group)
            for name in names:
                self.inventory.add_host(name, group=group)
        for name, variables in found.variables.items():
            for variable, value in variables.items():
                self.inventory.set_variable(name, variable, _value(value, str(file.absolute())))
            connection = variables["ansible_connection"]
            if connection.startswith(OURS):
                self.inventory.set_variable(name, "ansible_connection", f"{COLLECTION}.{connection}")


def _refuse_another_version() -> None:
    from provisioner.values.one_version import refusal

    refused = refusal("lab")
    if refused:
        raise AnsibleParserError(refused)


def _lab_file(path: Path) -> Path:
    """The lab's file: the one that this one names, where it does nothing else, or this one."""
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):  # what is wrong with a lab's file is said in our words
        return path
    if isinstance(told, dict) and isinstance(told.get("file"), str) and set(told) <= {"plugin", "file"}:
        named: str = told["file"]
        return path.parent / named
    return path


def _listed(file: Path, say: Callable[[str], None]) -> Listing:
    try:
        from provisioner.cli.effects import providers_of
        from provisioner.cli.progress import Pace
        from provisioner.eject.inventory import listing
        from provisioner.lab.opening import open_lab
        from provisioner.values.errors import ProvisionError
        from provisioner.values.events import ApplyProgress, Event
    except ImportError as error:
        raise AnsibleParserError(
            f"Unable to read {file}: the Python package provisioner is not installed beside ansible-core ({error}). "
            "Install it into the same virtual environment."
        ) from None
    pace = Pace(monotonic)

    def emit(event: Event) -> None:
        """Say how far a large model is read, in a line now and then."""
        if isinstance(event, ApplyProgress) and pace.is_due(event):
            say(f"{event.target}: {event.message}")

    try:
        lab = open_lab(file, needs="hosts", run_secret_command=True)
        return listing(lab, providers_of(lab), emit)
    except ProvisionError as error:
        raise AnsibleParserError(str(error)) from None


def _value(value: Any, file: str) -> Any:
    """The value as Ansible may have it: what others wrote is never a template, and a secret is looked up when used."""
    from provisioner.values.state import Secret

    if isinstance(value, Secret):
        # The file's path is quoted for a text of Jinja's; a secret's key holds nothing that means something there.
        return trust_as_template(f"{{{{ lookup('{COLLECTION}.provision_secret', '{value.key}', lab_file={file!r}) }}}}")
    if isinstance(value, Mapping):
        return {str(key): _value(inner, file) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_value(inner, file) for inner in value]
    return value
