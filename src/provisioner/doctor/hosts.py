"""``diagnoses``: what was seen of the lab's hosts, and what is wrong with it. Pure.

Facts of a host, by their names; ``problem`` is empty when all is well, ``hint`` says what to do:

``answers``      ``{problem, details, hint}``
``version``      ``{program, version}``
``node``         ``{problem, hint}``: whether it is one of its cluster, up, and may be written to
``members``      ``{off, is_quorate, check}``: which nodes of its cluster are not there, and what tells why
``storage``      ``{name, use, free, total, problem}``; ``use`` is "disks" or "templates"
``image``        ``{name, state, hint}``; ``state`` is "there", "downloadable" or "missing"
``bridge``       ``{name, problem, hint}``
``rights``       ``{holder, lacking, hint}``
``tags``         ``{problem, hint}``: whether the tags by which containers are found may be set
``ssh``          ``{to, problem, details, hint}``
``clock``        the seconds that it is ahead of ours, as far as that is certain
``certificate``  ``{file, days}``: for how long it is still good
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.state import Fact

GIB = 2**30
OLDEST: Mapping[str, tuple[int, ...]] = {"Proxmox VE": (8, 2)}
LOW_SHARE = 0.1
"""A thin pool that runs full damages what is on it."""
LEAST_ROOM: Mapping[str, int] = {"disks": 8 * GIB, "templates": GIB}
CLOCK_S = 5.0
CERTIFICATE_DAYS = 7.0
"""Proxmox renews its own two weeks before its end."""


def diagnoses(facts: Iterable[Fact]) -> tuple[Diagnosis, ...]:
    """One for each fact, in the same order."""
    return tuple(diagnosed(fact.subject, fact.name, _JUDGES[fact.name](fact.value)) for fact in facts)


def _stated(seen: str) -> Callable[[Mapping[str, Any]], Verdict]:
    """The judge of what says itself whether it is well."""

    def judge(value: Mapping[str, Any]) -> Verdict:
        return Verdict(seen.format(**value), value["problem"], value.get("hint", ""), value.get("details", ""))

    return judge


def _version(value: Mapping[str, Any]) -> Verdict:
    program, version = value["program"], value["version"]
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


def _members(value: Mapping[str, Any]) -> Verdict:
    off, check = ", ".join(value["off"]), value["check"]
    if value["is_quorate"]:
        return Verdict(f"its cluster is quorate without {off}; before you power that on: {check}")
    return Verdict("", f"its cluster is not quorate without {off}", f"What is wrong there: {check}")


def _storage(value: Mapping[str, Any]) -> Verdict:
    name, use, free, total = (value[key] for key in ("name", "use", "free", "total"))
    if value["problem"]:
        return Verdict("", value["problem"], value.get("hint", ""))
    seen = f"{name} for {use}: {free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= max(LEAST_ROOM[use], LOW_SHARE * total):
        return Verdict(seen)
    return Verdict("", f"{seen}: that is little", "Delete what is not needed (old snapshots, backups), or enlarge it.")


def _image(value: Mapping[str, Any]) -> Verdict:
    seen = {"there": "is there", "downloadable": "is downloaded by the first container that needs it"}
    name, state = value["name"], value["state"]
    if state in seen:
        return Verdict(f"{name} {seen[state]}")
    return Verdict("", f"there is no image {name}", value.get("hint", ""))


def _rights(value: Mapping[str, Any]) -> Verdict:
    holder, lacking = value["holder"], value["lacking"]
    if not lacking:
        return Verdict(f"{holder} has all that is needed")
    return Verdict("", f"{holder} lacks {'; '.join(lacking)}", value.get("hint", ""))


def _ssh(value: Mapping[str, Any]) -> Verdict:
    seen = f"{value['to']} lets us in, and pct is there" if value["to"] else "not given, and not needed"
    return Verdict(seen, value["problem"], value.get("hint", ""), value.get("details", ""))


def _clock(ahead_s: float) -> Verdict:
    if abs(ahead_s) <= CLOCK_S:
        return Verdict("agrees with ours")
    problem = f"its clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} ours"
    return Verdict("", problem, "See on both which one is wrong: timedatectl; on a node: systemctl restart chrony")


def _certificate(value: Mapping[str, Any]) -> Verdict:
    days, file = value["days"], value["file"]
    if days > CERTIFICATE_DAYS:
        return Verdict(f"{file} is good for {days:.0f} days")
    problem = f"certificate {file} " + ("has expired" if days <= 0 else f"expires in {days:.1f} days")
    return Verdict(
        "", problem, "On the node: pvecm updatecerts --force && systemctl restart pveproxy; or renew your own."
    )


_JUDGES: Mapping[str, Callable[[Any], Verdict]] = {
    "answers": _stated("it answers"),
    "version": _version,
    "node": _stated("{name} is up and can be written to"),
    "members": _members,
    "storage": _storage,
    "image": _image,
    "bridge": _stated("{name} is there"),
    "rights": _rights,
    "tags": _stated("our tags may be set"),
    "ssh": _ssh,
    "clock": _clock,
    "certificate": _certificate,
}
