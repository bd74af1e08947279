"""``cluster restore``: bring a node back to what a repair saved of it: choose, prove, save what is there, put back."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.cluster import backup
from provisioner.cluster.backup import SUMS, require_whole, sums_of
from provisioner.cluster.facts import ClusterFacts, NodeFacts
from provisioner.cluster.gather import Reach, gather, progress_of
from provisioner.cluster.record import (
    REMOTE_FOLDER,
    Record,
    Run,
    StepRecord,
    StepStatus,
    all_runs,
    create_run,
    now,
    write_record,
)
from provisioner.cluster.rejoin_plan import Kind
from provisioner.cluster.run import Effects, cluster_lock, finish_run
from provisioner.cluster.text import numbered
from provisioner.cluster.votes import votes_without
from provisioner.hosts.proxmox.ssh import Shell
from provisioner.report.style import PLAIN, Style, indent, safe_line
from provisioner.values.errors import InputError, PreflightError, ProviderError, UnavailableError
from provisioner.values.events import ApplyComplete, ApplyProgress, ApplyStart, Event
from provisioner.values.plain_data import Foreign

RESTORE = "restore"
STEP = StepRecord("put-back", "Put config.db, corosync.conf and authkey back.", StepStatus.NOT_REACHED)
FILES_PUT_BACK = ("config.db", "config.db-wal", "corosync.conf", "authkey")
TIMEOUT_S = 180.0
_PUT_BACK = r"""
set -eu
umask 077
trap '' HUP PIPE  # once it has begun it comes to its end, also when nobody listens any more
folder=$1
rm -rf -- "$folder"; mkdir -p -- "$folder"; cd -- "$folder"
tar -xf -
sha256sum --quiet -c SHA256SUMS >&2
keys=/root/.ssh/authorized_keys; also=${keys}2; now=$also.new
others() { [ ! -e "$also" ] || sed '/^# BEGIN of a repair by provision$/,/^# END of a repair by provision$/d' "$also"; }
if [ -s "$keys" ]; then  # they are a link into /etc/pve: a connection that breaks now could not come back
    { others; echo '# BEGIN of a repair by provision'; awk 1 "$keys"; echo '# END of a repair by provision'; } >"$now"
    mv -- "$now" "$also"
fi
put() { [ ! -e "$1" ] || install -o root -g root -m "$3" -- "$1" "$2"; }
(
    systemctl stop corosync
    systemctl stop pve-cluster
    trap 'systemctl start pve-cluster' EXIT
    database=/var/lib/pve-cluster/config.db
    if [ -e config.db ]; then
        rm -f -- "$database-wal" "$database-shm"
        put config.db "$database" 600
        put config.db-wal "$database-wal" 600
    fi
    put corosync.conf /etc/corosync/corosync.conf 644
    put authkey /etc/corosync/authkey 400
    sync
    trap - EXIT
    systemctl reset-failed corosync pve-cluster || :
    systemctl start pve-cluster
    systemctl start corosync || :  # a node that is behind has a corosync that ends again
    if [ -s "$keys" ]; then
        others >"$now"
        if [ -s "$now" ]; then mv -- "$now" "$also"; else rm -f -- "$now" "$also"; fi
    fi
) >log 2>&1 &
wait "$!" || { cat log >&2; exit 1; }
cat log
for one in pve-cluster corosync; do printf '%s is %s\n' "$one" "$(systemctl is-active "$one" || :)"; done
cd /; rm -rf -- "$folder"
"""


@dataclass(frozen=True, slots=True)
class Observed:
    """The run whose backup is brought back, its node, and how that is reached; ``asked``: the node that was asked."""

    run: Run
    facts: ClusterFacts
    node: NodeFacts
    reach: Reach
    asked: Reach


def saved_runs() -> tuple[tuple[str, Record, tuple[str, ...]], ...]:
    """Each run that has saved anything, the newest first: its name, its record, the files."""
    found = [(run.name, run.record, saved_files(run)) for run in all_runs() if run.backup.is_dir()]
    return tuple(reversed(found))


def saved_files(run: Run) -> tuple[str, ...]:
    """Return what its backup has."""
    return tuple(sorted(sums_of(run.backup)))


def chosen_run(name: str) -> Run:
    """The run of that name; ``InputError`` lists those there are; ``PreflightError``: its backup is not for a node."""
    found = [run for run in all_runs() if run.name == name and run.backup.is_dir()]
    if not found:
        known = "\n".join(run_name for run_name, _, _ in saved_runs()) or "There is none."
        raise InputError(
            f"Unable to find a backup of {name}", details=known, resolution="See: provision cluster restore"
        )
    run = found[-1]
    if run.record.runbook not in (Kind.LIGHT, Kind.FORCED, RESTORE):
        raise PreflightError(
            f"Unable to bring back all that {name} has saved",
            details=f"{run.record.runbook} works on a cluster with quorum: the others would not take an old database.",
            resolution=f"Take single files out of {run.backup / backup.TREE}, and copy them to /etc/pve on a node.",
        )
    return run


def observe(asked: Reach, run: Run, emit: Callable[[Event], None]) -> Observed:
    """Return what there is to know; ``UnavailableError``: the node does not answer."""
    facts = gather(asked, emit)
    name = run.record.node
    node = facts.node(name)
    if node is None:
        raise UnavailableError(
            f"Unable to restore {name}: no node of that name answers",
            details=f"Seen from {facts.asked}: {', '.join(other.name for other in facts.nodes)}",
            resolution=f"Name {name} itself as HOST: root@ADDRESS.",
        )
    return Observed(run, facts, node, asked.of(node, facts), asked)


def require_preconditions(observed: Observed) -> None:
    """Raise ``PreflightError`` where it is another node than the one that was saved, or cannot be spared."""
    has_backup = observed.node.local_conf is None and backup.has_copy(observed.reach.shell, observed.run)
    require_same(observed.node, observed.run.record, has_backup=has_backup)
    require_spare(observed.node)


def restore_node(first: Observed, effects: Effects) -> str:
    """Do it, by facts gathered while nobody else repairs the cluster; what the node said of its services.

    What is there now is saved before. ``first``: what was observed before, which says on which nodes the lock is held.
    """
    name, began = first.node.name, time.monotonic()
    effects.emit(ApplyStart(name, RESTORE))
    with cluster_lock(first.asked, first.facts, f"restore {name}, since {now()}", without=name):
        observed = observe(first.asked, first.run, progress_of(name, effects.emit))
        require_preconditions(observed)
        run, said = _save_and_put_back(observed, effects)
    effects.emit(ApplyComplete(name, RESTORE, time.monotonic() - began))
    return f"{said}\nWhat was there before is in {run.folder}: provision cluster restore {run.name}"


def _save_and_put_back(observed: Observed, effects: Effects) -> tuple[Run, str]:
    """Save what is there now, and put the backup back; the run, and what the node said."""
    name, shell = observed.node.name, observed.reach.shell
    run = create_run(Record(RESTORE, observed.run.record.cluster, name, "", now(), steps=(STEP,)))
    effects.emit(ApplyProgress(name, "save the node's cluster files as they are now, there and here"))
    run = write_record(run, replace(run.record, backup=str(backup.save(shell, run)), begun=(STEP.id,)))
    effects.emit(ApplyProgress(name, "put the saved files back"))
    said = put_back(shell, observed.run.backup, f"{run.name}-put")
    return finish_run(
        write_record(run, replace(run.record, steps=(replace(STEP, status=StepStatus.DONE, message=said),)))
    ), said


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
    if member is None:
        return
    left = votes_without(quorum, (member.nodeid,))
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
            resolution=ha.advice,
        )
    services = ha.services.get(node.name, ())
    if services:
        raise PreflightError(
            f"{what}HA would fence it, because it runs {', '.join(services)}",
            details="\n".join(ha.lines),
            resolution=f"Move them to another node first: ha-manager migrate {services[0]} NODE",
        )


def put_back(shell: Shell, folder: Path, name: str) -> str:
    """Replace the node's files by those of the backup; what it said of its services. ``ProviderError``: it failed."""
    require_whole(folder)
    archive = _archive(folder)
    done = shell.run(["sh", "-c", _PUT_BACK, "sh", f"{REMOTE_FOLDER}/{name}"], stdin=archive, timeout_s=TIMEOUT_S)
    if done.returncode:
        raise ProviderError(
            f"Unable to bring back the cluster files of {shell.destination}",
            details=Foreign.of_output(done.stderr),
            resolution="The same command may be run again; the backup is as it was.",
        )
    return done.stdout.decode(errors="replace").strip()


def _archive(folder: Path) -> bytes:
    """Return what goes to the node: never more than it gets back, and the sums of just that."""
    contents = dict[str, bytes]()
    sums = ""
    for name, known in sums_of(folder).items():
        if name in FILES_PUT_BACK:
            contents[name] = (folder / name).read_bytes()
            sums += f"{known}  {name}\n"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, SUMS, sums.encode())
        for name, content in contents.items():
            _add(tar, name, content)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o600
    tar.addfile(info, io.BytesIO(content))


def restore_text(record: Record, name: str, saved: Sequence[str], style: Style = PLAIN) -> str:
    """Return what bringing a backup back would do, and what it means."""
    head = style.paint(f"{safe_line(record.node)}: bring back what {name} saved: {', '.join(saved)}", "bold")
    steps = (
        "Save the node's cluster files as they are now, there and here.",
        "Stop pve-cluster and corosync on the node.",
        "Put config.db, corosync.conf and authkey back, 0600, 0644 and 0400.",
        "Start pve-cluster and corosync.",
    )
    meaning = (
        "The node has its own /etc/pve of that time again, and is as stale as it was: it takes no part in the cluster "
        "until it is repaired again. What was changed in the cluster since stays, and no other node is touched. "
        "While /etc/pve is empty, root's keys are, too: they are copied to authorized_keys2 for that time."
    )
    lines = [head, "", style.paint("To be done:", "bold"), *numbered(steps)]
    lines += ["", style.paint("Danger:", "bold"), indent(meaning)]
    return "\n".join(lines)
