"""Whether a node may be set back to what a repair saved of it: it is the one, and the cluster can spare it. Pure."""

from __future__ import annotations

from provisioner.repair.facts import NodeFacts
from provisioner.repair.record import Record
from provisioner.values.errors import PreflightError


def require_same(node: NodeFacts, record: Record, *, has_backup: bool) -> None:
    """Raise ``PreflightError`` unless the node is the one that was saved: a host name is no proof of that.

    A cut-off repair may have left it without a list. Then ``has_backup`` counts: it has its own copy of that run.
    """
    clusters = {conf.cluster for conf in node.files}
    if node.pmxcfs and node.pmxcfs.cluster:
        clusters.add(node.pmxcfs.cluster)
    if clusters == {record.cluster}:
        return
    if not clusters and has_backup:
        return
    if clusters:
        words = f"of the cluster {', '.join(sorted(clusters))}"
    else:
        words = "of no cluster, and has no copy of that run"
    raise PreflightError(
        f"Unable to restore {node.name}: it is not the node that was saved",
        details=f"That was {record.node} of the cluster {record.cluster}. At {node.address} is {node.name}, {words}.",
        resolution="Name the node itself as HOST, root@ADDRESS, or a node of its cluster.",
    )


def require_spare(node: NodeFacts) -> None:
    """Raise ``PreflightError`` where the node cannot be spared: HA may fence it, or the others would lose quorum."""
    if node.is_quorate:
        _require_votes(node)
        _require_ha(node)


def _require_votes(node: NodeFacts) -> None:
    """Raise ``PreflightError`` where the other nodes of its partition have too few votes without it."""
    quorum = node.quorum
    if quorum is None or len(quorum.present) < 2:  # noqa: PLR2004 - one and another
        return
    member = node.pve_conf.member(node.name) if node.pve_conf else None
    own = member.votes if member else 0
    left = quorum.total - own
    if left < quorum.needed:
        raise PreflightError(
            f"Unable to restore {node.name}: the others would lose quorum without it",
            details=f"{left} votes would be left, {quorum.needed} are needed.",
            resolution="Bring another node back first.",
        )


def _require_ha(node: NodeFacts) -> None:
    """A node with HA's services that loses quorum is fenced after a minute: it is switched off, with all its guests."""
    ha, what = node.ha, f"Unable to restore {node.name}: "
    if ha is None:
        why = node.unread.get("ha", "it was not told")
        raise PreflightError(f"{what}what HA does is not known", details=why, resolution="On it: ha-manager status")
    if not ha.is_idle:
        raise PreflightError(
            f"{what}HA is at work",
            details="\n".join(ha.lines),
            resolution="Wait until it has nothing to start, move or fence: ha-manager status",
        )
    services = ha.services.get(node.name, ())
    if services:
        raise PreflightError(
            f"{what}HA would fence it, because it runs {', '.join(services)}",
            details="\n".join(ha.lines),
            resolution=f"Move them to another node first: ha-manager migrate {services[0]} NODE",
        )
