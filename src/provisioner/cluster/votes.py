"""The votes of a cluster as corosync's votequorum counts them: how many are needed, and who can be spared. Pure.

The sums are those of corosync 3.1 (``exec/votequorum.c``: ``calculate_quorum``, ``votequorum_readconfig``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from provisioner.cluster.facts import CorosyncConf, Member, Quorum
from provisioner.cluster.read_corosync import is_number

QDEVICE = "QDevice"
"""The name under which the external vote stands among those of nodes."""
TWO = 2
"""So many voters at most has a cluster for which ``two_node`` counts."""


def has_device(conf: CorosyncConf) -> bool:
    """Return whether the list has a QDevice."""
    return "quorum.device.model" in conf.settings


def device_votes(conf: CorosyncConf) -> int:
    """The votes that its QDevice may give: as the list says, else one less than the nodes have together.

    Proxmox VE writes ``votes: 1`` for two or an even number of nodes (algorithm ``ffsplit``), else nodes less one
    (``lms``).
    """
    if not has_device(conf):
        return 0
    told = conf.settings.get("quorum.device.votes", "")
    return int(told) if is_number(told) else _sum(conf.members) - 1


def votes_of_all(conf: CorosyncConf) -> int:
    """The votes that there are when all members and the QDevice are there."""
    return _sum(conf.members) + device_votes(conf)


def expected_votes(conf: CorosyncConf) -> int:
    """The votes that corosync expects by the list; its ``expected_votes`` counts before the sum of all."""
    told = conf.settings.get("quorum.expected_votes", "")
    return int(told) if is_number(told) and int(told) else votes_of_all(conf)


def is_two_node(conf: CorosyncConf) -> bool:
    """Return whether one of two nodes may go on alone."""
    return conf.settings.get("quorum.two_node", "0") == "1"


def needed_votes(expected: int, total: int, voters: int, *, two_node: bool) -> int:
    """The votes that a partition of ``voters`` nodes (a QDevice that votes is one) with ``total`` votes needs.

    ``expected``: the highest that any of them expects. More than half of what is expected or there, whichever is more;
    with ``two_node`` one of two nodes is enough.
    """
    if two_node and voters <= TWO:
        return 1
    return max(expected, total) // 2 + 1


def needed_by(conf: CorosyncConf, quorum: Quorum, without: Collection[int] = ()) -> int:
    """The votes that the partition needs once it has read ``conf`` anew, while the nodes of these ids are not there.

    Reading a list anew ends what ``pvecm expected`` has set.
    """
    voters = [nodeid for nodeid in quorum.present if nodeid not in without]
    has_vote = quorum.device is not None and quorum.device.votes > 0
    total = votes_without(quorum, without)
    return needed_votes(expected_votes(conf), total, len(voters) + has_vote, two_node=is_two_node(conf))


def votes_without(quorum: Quorum, without: Collection[int]) -> int:
    """The votes of the partition when the nodes of these ids are gone.

    The QDevice's stays: it votes for the part that is left, unless another one has more nodes.
    """
    gone = sum(votes for nodeid, votes in quorum.present.items() if nodeid in without)
    return quorum.total - gone


def can_lose(quorum: Quorum, members: Iterable[Member]) -> tuple[str, ...]:
    """The members of the partition, and its QDevice, that can be lost now: any one of them, and quorum stays.

    What is needed does not change by a loss: corosync never lowers it by itself.
    """
    if not quorum.is_quorate:
        return ()
    names = list[str]()
    for member in members:
        if member.nodeid in quorum.present and votes_without(quorum, (member.nodeid,)) >= quorum.needed:
            names.append(member.name)
    device = quorum.device
    if device is not None and device.votes and quorum.total - device.votes >= quorum.needed:
        names.append(QDEVICE)
    return tuple(names)


def _sum(members: Iterable[Member]) -> int:
    return sum(member.votes for member in members)
