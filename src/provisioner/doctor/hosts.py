"""The checks of a host itself: its version, its room, packages of its containers, slots of its cards. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.gpus.cards import Link
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
    MachineState,
    NodeState,
    SshState,
    StorageRoom,
    TagRules,
)
from provisioner.values.plain_data import Foreign

# Facts that a host has told of itself.

GIB = 2**30
LOW_SHARE = 0.1
"""A thin pool that runs full damages what is on it."""
LEAST_ROOM: Mapping[str, int] = {"disks": 8 * GIB, "templates": GIB}
CLOCK_S = 5.0
CERTIFICATE_DAYS = 7.0
"""A host that renews its own does so two weeks before its end."""


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
    seen = f"{fact.program} {fact.version}"
    if _numbers(fact.version) >= _numbers(fact.oldest):
        return Verdict(seen)
    problem = f"{seen} is older than {fact.oldest}: it cannot pass devices such as GPUs to containers"
    return Verdict("", problem, fact.upgrade)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdecimal())


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
    return Verdict("", f"{seen}: that is little", fact.enlarge)


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


def _machine(fact: MachineState) -> Verdict:
    return Verdict(fact.seen, fact.problem, fact.hint, fact.details, fact.warning)


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
    MachineState: _machine,
}


# Packages of a container: newer versions that stand in the lists which it has; nothing is refreshed.

NAME = "packages"
WAY = "PROVISION_WAY_OUT"
"""The variable that has a container say how far it gets on the way to its packages."""
SCRIPT = r"""
way_out() {
  address=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null | grep -v '^ *#' |
    grep -oE 'https?://[A-Za-z0-9.-]+(:[0-9]+)?' | head -n 1)
  if [ -z "$address" ] || apt-config dump | grep -qiE '^Acquire::https?::Proxy "'; then return; fi
  if [ -n "${http_proxy-}${https_proxy-}" ]; then return; fi
  case $address in https*) port=443 ;; *) port=80 ;; esac
  server=${address#*//}
  name=${server%:*}
  [ "$name" = "$server" ] || port=${server#*:}
  state=unknown
  if timeout 10 getent ahostsv4 "$name" > /dev/null; then
    state=cut
    if timeout 10 bash -c 'exec 3<> "/dev/tcp/$0/$1"' "$name" "$port" 2> /dev/null; then state=reached; fi
  fi
  echo "way $state $name"
}
command -v apt-get > /dev/null || exit 0
[ -z "${PROVISION_WAY_OUT-}" ] || way_out
lists=/var/lib/apt/lists
if [ -z "$(find "$lists" -maxdepth 1 -name '*_Packages*' 2> /dev/null | head -n 1)" ]; then
  echo 'lists none'
  exit 0
fi
stamp=/var/lib/apt/periodic/update-success-stamp
[ "$stamp" -nt "$lists" ] || stamp=$lists
echo "lists $(( $(date +%s) - $(stat -c %Y "$stamp") ))"
# Neither the network nor a file of apt's own: the caches that it would write are named empty, and it takes no lock.
writes_nothing='-o Debug::NoLocking=true -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache='
said=$(LC_ALL=C apt-get -s $writes_nothing dist-upgrade) || exit
printf '%s\n' "$said" | sed -n 's/^Inst /newer /p'
"""
"""What a container is asked: a line for its lists and their age in seconds, and one for each newer package.

Where it is told to, a line on its way out comes first.
"""

_NEWER = re.compile(r"newer (?P<name>[a-z0-9][a-z0-9+.-]*) \[(?P<there>[^\]\s]+)\] \((?P<newer>\S+) (?P<suite>[^)]*)\)")
_LISTS = re.compile(r"lists (none|-?[0-9]{1,12})")
_SHOWN = 6
_HOUR_S, _DAY_S = 3600, 86_400


@dataclass(frozen=True, slots=True)
class Newer:
    """A package of which a newer version is listed, ``is_security`` where it comes from the list for that."""

    name: str
    there: str
    version: str
    is_security: bool


@dataclass(frozen=True, slots=True)
class Packages:
    """What a container says of its packages; ``age_s`` is None where it has no lists of them."""

    age_s: int | None = None
    newer: tuple[Newer, ...] = ()


def packages_in(answer: str) -> Packages | None:
    """What the container said that gave this answer to ``SCRIPT``; None for one without apt."""
    age, newer = None, []
    has_apt = False
    for line in answer.splitlines():
        lists = _LISTS.match(line)
        if lists is not None:
            has_apt = True
            age = None if lists[1] == "none" else max(0, int(lists[1]))
        package = _NEWER.match(line)
        if package is not None:
            is_security = "security" in package["suite"].lower()
            newer.append(Newer(package["name"], package["there"], package["newer"], is_security))
    return Packages(age, tuple(newer)) if has_apt else None


def packages_diagnosis(container: str, packages: Packages) -> Diagnosis:
    """The line of a container, with a warning where newer versions are listed; it stands in the way of nothing."""
    if packages.age_s is None:
        return diagnosed(container, NAME, Verdict("it has no lists of packages, so nothing is known of newer versions"))
    age = f"its lists are {_age(packages.age_s)} old"
    if not packages.newer:
        return diagnosed(container, NAME, Verdict(f"none is known to have a newer version; {age}"))
    count = len(packages.newer)
    security = sum(package.is_security for package in packages.newer)
    shown = sorted(packages.newer, key=lambda package: (not package.is_security, package.name))[:_SHOWN]
    names = [f"{package.name} {package.there} → {package.version}" for package in shown]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    said = f"{count} of its packages have newer versions, {security} of them for security; {age}"
    how = f"To refresh the lists and upgrade: provision exec {container} -- sh -c 'apt-get update && apt-get upgrade'"
    return diagnosed(container, NAME, Verdict(said, warning=how, details=", ".join(names) + more))


def unread_diagnosis(container: str, why: str) -> Diagnosis:
    """The line of a container whose packages could not be asked for."""
    return diagnosed(container, NAME, Verdict("not known", warning="Run: provision status", details=why))


def _age(seconds: int) -> str:
    days, hours = seconds // _DAY_S, seconds // _HOUR_S
    if days:
        return f"{days} day{'s' * (days != 1)}"
    return f"{hours} hour{'s' * (hours != 1)}"


# The network of a container: whether it finds the server of its packages, and gets there.

WAY_OUT = "way out"
_FIREWALL = (
    "On the host: sudo provision doctor, which may read its firewall. A firewall there has to let containers through "
    "their bridge: with ufw, run: sudo ufw allow in on BRIDGE && sudo ufw route allow in on BRIDGE"
)
_WAY_PROBLEMS: Mapping[str, str] = {
    "unknown": "cannot look up {name}, from where its packages come",
    "cut": "knows {name}, from where its packages come, and gets no connection to it",
}


def way_diagnoses(container: str, answer: str) -> tuple[Diagnosis, ...]:
    """Yield the diagnosis of the way out, by a container's answer to ``SCRIPT``; nothing of one that was not asked."""
    word, _, said = answer.partition("\n")[0].partition(" ")
    state, _, name = said.partition(" ")
    if word != "way":
        return ()
    place = Foreign(name)
    problem = _WAY_PROBLEMS.get(state, "").format(name=place)
    return (diagnosed(container, WAY_OUT, Verdict(f"it reaches {place}", problem, _FIREWALL)),)


# The slot of a card: its lanes beside those that it could have, and how much slower data gets there.

X16_GB_S: Mapping[float, tuple[str, float]] = {
    2.5: ("1.0", 4),
    5.0: ("2.0", 8),
    8.0: ("3.0", 16),
    16.0: ("4.0", 32),
    32.0: ("5.0", 63),
    64.0: ("6.0", 121),
}
"""GT/s of a lane → the generation of PCIe, and about how many GB/s sixteen lanes carry one way."""
LANES = 16
MODEL_GB = 8
"""A model whose loading shows the difference: what is usual on the cards of homes."""
OFFLOAD_GB_S = 16.0
"""Below about this what stays in the machine's memory waits for the slot with every token."""


def slot_verdict(title: str, link: Link) -> Verdict:
    """Whether the card has all its lanes. Its speed is not judged: an idle card slows its link down by itself."""
    generation, _ = X16_GB_S.get(link.best_speed, ("", 0.0))
    name = f"PCIe {generation}" if generation else f"{link.best_speed:g} GT/s"
    now, best = _gb_s(link.best_speed, link.width), _gb_s(link.best_speed, link.best_width)
    if link.width >= link.best_width:
        slow = "; slow for experts or a KV cache in the machine's memory" if 0 < now < OFFLOAD_GB_S else ""
        rate = f", about {now:.0f} GB/s{slow}" if now else ""
        return Verdict(f"{title}: {name} x{link.width}{rate}")
    problem = f"{title} has x{link.width} of its x{link.best_width} lanes ({name})"
    if now:
        problem += (
            f": about {now:.0f} of {best:.0f} GB/s; {MODEL_GB} GB of model take {MODEL_GB / now:.1f} s to load, not "
            f"{MODEL_GB / best:.1f}, and what stays in the machine's memory is that much slower with every token"
        )
    return Verdict(
        "",
        problem,
        "Put it into a slot with all lanes (the board's manual says which, and which M.2 places take lanes away), or "
        "seat it anew. Where the maker wired fewer (laptops, adapters) keep everything in the card's own memory.",
    )


def _gb_s(speed: float, width: int) -> float:
    return X16_GB_S[speed][1] * width / LANES if speed in X16_GB_S else 0.0
