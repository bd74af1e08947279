"""``diagnoses``: what was seen of the lab's hosts, and what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.values.host_facts import (
    ApiRights,
    BridgeState,
    CertificateAge,
    ClockSkew,
    ClusterMembers,
    HostAnswers,
    HostFact,
    HostVersion,
    ImageState,
    NodeState,
    SshState,
    StorageRoom,
    TagRules,
)

GIB = 2**30
OLDEST: Mapping[str, tuple[int, ...]] = {"Proxmox VE": (8, 2)}
LOW_SHARE = 0.1
"""A thin pool that runs full damages what is on it."""
LEAST_ROOM: Mapping[str, int] = {"disks": 8 * GIB, "templates": GIB}
CLOCK_S = 5.0
CERTIFICATE_DAYS = 7.0
"""Proxmox renews its own two weeks before its end."""


def diagnoses(facts: Iterable[HostFact]) -> tuple[Diagnosis, ...]:
    """One for each fact, in the same order."""
    found = []
    for fact in facts:
        verdict = _JUDGES[type(fact)](fact)
        found.append(diagnosed(fact.host, fact.check_name, verdict))
    return tuple(found)


def _answers(fact: HostAnswers) -> Verdict:
    return Verdict("it answers", fact.problem, fact.hint, fact.details)


def _version(fact: HostVersion) -> Verdict:
    program, version = fact.program, fact.version
    oldest = OLDEST.get(program, ())
    numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdecimal())
    if numbers >= oldest:
        return Verdict(f"{program} {version}")
    wanted = ".".join(map(str, oldest))
    problem = f"{program} {version} is older than {wanted}: it cannot pass devices such as GPUs to containers"
    return Verdict(
        "",
        problem,
        "Upgrade it: apt update && apt full-upgrade; from 7: https://pve.proxmox.com/wiki/Upgrade_from_7_to_8",
    )


def _node(fact: NodeState) -> Verdict:
    return Verdict(f"{fact.name} is up and can be written to", fact.problem, fact.hint)


def _members(fact: ClusterMembers) -> Verdict:
    off = ", ".join(fact.off)
    if fact.is_quorate:
        return Verdict(f"its cluster is quorate without {off}; before you power that on: {fact.command}")
    return Verdict("", f"its cluster is not quorate without {off}", f"What is wrong there: {fact.command}")


def _storage(fact: StorageRoom) -> Verdict:
    if fact.problem:
        return Verdict("", fact.problem, fact.hint)
    seen = f"{fact.name} for {fact.use}: {fact.free / GIB:.1f} of {fact.total / GIB:.1f} GiB free"
    if fact.free >= max(LEAST_ROOM[fact.use], LOW_SHARE * fact.total):
        return Verdict(seen)
    return Verdict("", f"{seen}: that is little", "Delete what is not needed (old snapshots, backups), or enlarge it.")


def _image(fact: ImageState) -> Verdict:
    if fact.state == "missing":
        return Verdict("", f"there is no image {fact.name}", fact.hint)
    if fact.state == "downloadable":
        return Verdict(f"{fact.name} is downloaded by the first container that needs it")
    return Verdict(f"{fact.name} is there")


def _bridge(fact: BridgeState) -> Verdict:
    return Verdict(f"{fact.name} is there", fact.problem, fact.hint)


def _rights(fact: ApiRights) -> Verdict:
    if not fact.lacking:
        return Verdict(f"{fact.holder} has all that is needed")
    return Verdict("", f"{fact.holder} lacks {'; '.join(fact.lacking)}", fact.hint)


def _tags(fact: TagRules) -> Verdict:
    return Verdict("our tags may be set", fact.problem, fact.hint)


def _ssh(fact: SshState) -> Verdict:
    seen = f"{fact.destination} lets us in, and pct is there" if fact.destination else "not given, and not needed"
    return Verdict(seen, fact.problem, fact.hint, fact.details)


def _clock(fact: ClockSkew) -> Verdict:
    ahead_s = fact.ahead_s
    if abs(ahead_s) <= CLOCK_S:
        return Verdict("agrees with ours")
    problem = f"its clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} ours"
    return Verdict("", problem, "See on both which one is wrong: timedatectl; on a node: systemctl restart chrony")


def _certificate(fact: CertificateAge) -> Verdict:
    days, file = fact.days_left, fact.file
    if days > CERTIFICATE_DAYS:
        return Verdict(f"{file} is good for {days:.0f} days")
    problem = f"certificate {file} " + ("has expired" if days <= 0 else f"expires in {days:.1f} days")
    return Verdict(
        "", problem, "On the node: pvecm updatecerts --force && systemctl restart pveproxy; or renew your own."
    )


_JUDGES: Mapping[type[HostFact], Callable[[Any], Verdict]] = {
    HostAnswers: _answers,
    HostVersion: _version,
    NodeState: _node,
    ClusterMembers: _members,
    StorageRoom: _storage,
    ImageState: _image,
    BridgeState: _bridge,
    ApiRights: _rights,
    TagRules: _tags,
    SshState: _ssh,
    ClockSkew: _clock,
    CertificateAge: _certificate,
}
