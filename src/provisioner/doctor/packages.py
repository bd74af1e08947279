"""Whether newer versions of a container's packages stand in the lists that it has; nothing is refreshed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed

NAME = "packages"
SCRIPT = r"""
command -v apt-get > /dev/null || exit 0
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
"""What a container is asked: a line for its lists and their age in seconds, and one for each newer package."""

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
    names = [f"{package.name} {package.there} → {package.version}" for package in _first(packages.newer)]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    said = f"{count} of its packages have newer versions, {security} of them for security; {age}"
    how = f"To refresh the lists and upgrade: provision exec {container} -- sh -c 'apt-get update && apt-get upgrade'"
    return diagnosed(container, NAME, Verdict(said, warning=how, details=", ".join(names) + more))


def unread_diagnosis(container: str, why: str) -> Diagnosis:
    """The line of a container whose packages could not be asked for."""
    return diagnosed(container, NAME, Verdict("not known", warning="Run: provision status", details=why))


def _first(newer: tuple[Newer, ...]) -> list[Newer]:
    return sorted(newer, key=lambda package: (not package.is_security, package.name))[:_SHOWN]


def _age(seconds: int) -> str:
    days, hours = seconds // _DAY_S, seconds // _HOUR_S
    if days:
        return f"{days} day{'s' * (days != 1)}"
    return f"{hours} hour{'s' * (hours != 1)}"
