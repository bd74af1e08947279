"""``ansible-playbook site.yml`` as somebody would run it by hand: our roles, connection and inventory, tuned."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass

from benchmarks.labs import BenchLab
from benchmarks.measuring import BIN, Cost, cost
from provisioner.hosts.incus.observe import flags_here
from provisioner.inside.module_server.handing import SWITCH
from provisioner.lab import desired_fleet
from provisioner.lab.opening import find_files
from provisioner.reconcile.inventory import render_inventory
from provisioner.reconcile.runner import ansible_environment
from provisioner.values import paths
from provisioner.values.state import HostState, Instance, secrets_of

UNCHANGED = "changed=0 "
RECAP = "PLAY RECAP"


@dataclass
class ByHand:
    """The lab's file, as an inventory and a file of secrets that Ansible reads."""

    lab: BenchLab

    def render(self) -> None:
        """Write down what the lab's file says now."""
        instances = self.instances()
        connections = {one.name: self.lab.provider.connection_variables(one.name) for one in instances}
        inventory = render_inventory(instances, connections, paths.inventory_templates())
        (self.lab.folder / "hosts.yml").write_text(inventory, encoding="utf-8")
        found = secrets_of([service.variables for one in instances for service in one.services])
        secrets = self.lab.folder / "secrets.json"
        secrets.touch(0o600)
        secrets.write_text(json.dumps({one.key: one.reveal() for one in found.values()}), encoding="utf-8")
        (self.lab.folder / "ansible.cfg").touch()

    def instances(self) -> tuple[Instance, ...]:
        """What the file asks for on this machine."""
        here = HostState("local", platform.machine(), flags_here())
        lab = self.lab.opened()
        return desired_fleet(lab.resolved, find_files(lab).hashed(print).files, {"local": here}).instances

    def play(self, *arguments: str) -> Cost:
        """What a run took; the settings are those of our own runner, with a fork for each container."""
        environment = ansible_environment(self.lab.folder / "secrets.json") | {
            "ANSIBLE_CONFIG": str(self.lab.folder / "ansible.cfg"),
            "ANSIBLE_FORKS": str(max(10, self.lab.size)),
            # Ansible as it is: each module by a Python of its own, nothing loaded or packed beforehand
            SWITCH: "off",
            "ANSIBLE_CALLBACK_PLUGINS": "",
        }
        command = [str(BIN / "ansible-playbook"), "-i", str(self.lab.folder / "hosts.yml")]
        site = str(paths.playbooks() / "site.yml")
        return self.lab.watched(lambda: cost([*command, site, *arguments], environment, self.lab.folder))

    def play_unchanged(self) -> Cost:
        """What a run took that must have changed nothing."""
        done = self.play()
        recap = done.output.partition(RECAP)[2].strip().splitlines()[1:]
        if not recap or not all(UNCHANGED in line for line in recap if "=" in line):
            raise RuntimeError(f"Unable to measure a no-op: Ansible has changed something\n{done.output[-3000:]}")
        return done
