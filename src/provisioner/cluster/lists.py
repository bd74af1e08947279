"""In what one ``corosync.conf`` differs from another of its version, and what no corosync starts with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address

from provisioner.cluster.facts import Condition, CorosyncConf, Diagnosis, Member, is_address, plain_name
from provisioner.cluster.view import View
from provisioner.cluster.votes import has_device, is_two_node

NOT_SET = "not set"
_GIVEN_ONCE: Mapping[str, Callable[[Member], tuple[str, ...]]] = {
    "id": lambda member: (str(member.nodeid),),
    "name": lambda member: () if is_address(member.name) else (plain_name(member.name),),
    "address": lambda member: member.addresses,
}
"""Values that no two members may share; names are compared as host names are, where they are no addresses."""


def setting_differences(own: CorosyncConf | None, cluster: CorosyncConf | None) -> tuple[str, ...]:
    """Return which settings of ``totem`` and ``quorum`` differ in two lists of one version, which has to mean one list.

    A cipher, a hash or a transport that differs has the others drop the node's packets ("Incorrect packet size").
    """
    if own is None or cluster is None or own.version != cluster.version:
        return ()
    words = list[str]()
    for key in sorted({*own.settings, *cluster.settings}):
        here, there = own.settings.get(key, NOT_SET), cluster.settings.get(key, NOT_SET)
        if here != there:
            words.append(f"{key}: {here}, the cluster's {there}")
    return tuple(words)


def invalid_lists(view: View) -> Iterator[Diagnosis]:
    """The faults of the nodes' lists with which corosync does not start, or does not what was meant."""
    names_by_fault = dict[str, list[str]]()
    for node in view.clustered:
        if view.member(node.name) is None:
            continue  # its list is its own matter, which is told of it
        conf = node.starting_conf
        for fault in list_faults(conf) if conf else ():
            names_by_fault.setdefault(fault, []).append(node.name)
    for fault, names in names_by_fault.items():
        yield Diagnosis(
            Condition.INVALID_LIST,
            "",
            f"corosync does not start with this list: {fault}",
            (f"corosync.conf of {', '.join(names)}", view.list_text),
            advice="Correct it in /etc/pve/corosync.conf on a node with quorum, with a higher config_version; without "
            "quorum in /etc/corosync/corosync.conf on every node. Restart corosync on no node before.",
        )


def list_faults(conf: CorosyncConf) -> Iterator[str]:
    """Yield what is given twice, links of which the members do not agree, and settings that exclude each other."""
    for what, values_of in _GIVEN_ONCE.items():
        names_by_value = dict[str, list[str]]()
        for member in conf.members:
            for value in values_of(member):
                names_by_value.setdefault(value, []).append(member.name)
        for value, names in names_by_value.items():
            if len(names) > 1:
                yield f"{what} {value} is given to {' and '.join(names)}"
    yield from _link_faults(conf)
    if has_device(conf) and is_two_node(conf):
        yield "two_node: 1 and a QDevice exclude each other"


def _link_faults(conf: CorosyncConf) -> Iterator[str]:
    """Yield links of which some members have no address, or addresses of two families.

    Two links may have a family each; names in the place of addresses say nothing of theirs.
    """
    counts = {len(member.addresses) for member in conf.members}
    if len(counts) > 1:
        words = ", ".join(f"{member.name} {len(member.addresses)}" for member in conf.members)
        yield f"the members have links of different number: {words}"
    for number in range(min(counts, default=0)):
        addresses = [member.addresses[number] for member in conf.members]
        families = {ip_address(address).version for address in filter(is_address, addresses)}
        if len(families) > 1:
            yield f"link {number} has addresses of IPv4 and of IPv6: {', '.join(addresses)}"
