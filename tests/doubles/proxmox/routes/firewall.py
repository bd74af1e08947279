"""``/cluster/firewall/options`` and ``/nodes/{node}/lxc/{vmid}/firewall``: what is written; nothing is filtered here.

Facts: pve-firewall's ``API2/Firewall/VM.pm``, ``Rules.pm`` and ``Cluster.pm``. Rules are those of a number: nobody
looks whether there is a container of it.
"""

from __future__ import annotations

from tests.doubles.proxmox.call import Call, answers
from tests.doubles.proxmox.firewall import Firewall
from tests.doubles.proxmox.formats import split_list

AT = "/nodes/{node}/lxc/{vmid}/firewall"
NO_OPTIONS = {"node", "vmid", "digest", "delete", "pos"}


def _firewall(call: Call) -> Firewall:
    return call.world.firewalls.setdefault(call.vmid, Firewall())


@answers("GET /cluster/firewall/options")
def datacenter(call: Call) -> object:
    """What was set for the whole cluster: nothing, until somebody switches the firewall on."""
    return call.world.firewall.shown_options


@answers(f"GET {AT}/options")
def options(call: Call) -> object:
    """What was set for the container."""
    return _firewall(call).shown_options


@answers(f"PUT {AT}/options")
def set_options(call: Call) -> object:
    """Set options and forget others."""
    given = {name: call.given[name] for name in call.given if name not in NO_OPTIONS}
    plain = {name: int(str(value)) if str(value).isdecimal() else value for name, value in given.items()}
    with call.world.lock:
        _firewall(call).change(plain, split_list(call.text("delete")), call.text("digest"))
    return None


@answers(f"GET {AT}/rules")
def rules(call: Call) -> object:
    """The rules in their order."""
    return _firewall(call).shown_rules


@answers(f"POST {AT}/rules")
def add(call: Call) -> object:
    """Put a rule before all others."""
    with call.world.lock:
        _firewall(call).add({name: call.text(name) for name in call.given if name not in NO_OPTIONS})
    return None


@answers(f"DELETE {AT}/rules/{{pos}}")
def remove(call: Call) -> object:
    """Delete one rule; those after it move up."""
    with call.world.lock:
        _firewall(call).remove(call.number("pos"), call.text("digest"))
    return None
