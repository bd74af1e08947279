"""The machine of a local Incus: why its socket does not answer, and what cuts containers off, as ``doctor`` tells it.

Nothing here needs root or changes anything; what only root may read is said to be unknown.
"""

from __future__ import annotations

import grp
import os
import platform
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from provisioner.values.host_facts import MachineState
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of

# Why nobody answers at the socket.

PREPARE = "Run: sudo provision host prepare"
DAEMONS = ("/usr/libexec/incus/incusd", "/opt/incus/bin/incusd")
"""Where Debian and the packages of Incus' own maintainers have the daemon."""
OWN_PAGES = "https://linuxcontainers.org/incus/docs/main/installing/"
RELEASES = {
    "12": " Debian 12 has it in its backports alone, which host prepare adds for Incus and nothing else.",
    "13": "",
}
"""The releases of Debian on which `host prepare` installs Incus, and what is special about one."""


def reason_unreached(path: Path, error: Exception) -> tuple[str, str]:
    """Return why the socket does not answer this user, and what to do."""
    is_visible = os.access(path.parent, os.X_OK)
    if not path.parent.is_dir() or (is_visible and not path.exists()):
        return _absent()
    if not os.access(path, os.W_OK):
        return _forbidden(path)
    return str(error).strip() or type(error).__name__, f"Is incusd running? {PREPARE}"


def _absent() -> tuple[str, str]:
    """Return why there is no socket: no daemon runs, or none is installed, which is not done on every system."""
    if any(Path(daemon).exists() for daemon in DAEMONS):
        return "There is no such socket: Incus is installed here, and its daemon does not run.", PREPARE
    absent, release = "There is no such socket: Incus is not installed here.", _os_release()
    number = release.get("VERSION_ID", "")
    if release.get("ID") == "debian" and number in RELEASES:
        return absent + RELEASES[number], PREPARE
    name = release.get("PRETTY_NAME", "an unknown system")
    details = f"{absent} This is {name}; only on Debian {' and '.join(RELEASES)} is it installed by provision."
    return details, f"Install and start Incus as its own pages say ({OWN_PAGES}). Then run: sudo provision host prepare"


def _os_release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:  # a system that does not say what it is
        return {}


def _forbidden(path: Path) -> tuple[str, str]:
    """Return why this user may not use the socket: not in its group, or not yet in this session."""
    group = grp.getgrgid(path.stat().st_gid)
    user = pwd.getpwuid(os.geteuid()).pw_name
    if user in group.gr_mem:
        return (
            f"User {user} is in group {group.gr_name}, and this session began before that.",
            f"Log out and in again; for this shell alone, run: newgrp {group.gr_name}",
        )
    return (
        f"This user is not in group {group.gr_name}.",
        f"Run: sudo usermod -aG {group.gr_name} $USER, then log in again",
    )


# What cuts containers off, or keeps them from being made, on this machine.

SUBIDS = (Path("/etc/subuid"), Path("/etc/subgid"))
FEWEST_IDS = 65536
"""Each container without privileges maps so many."""
_RANGE = re.compile(r"^(?:root|0):\d+:(\d+)$", re.MULTILINE)


def without_incus(host: str, folder: Path) -> Iterator[MachineState]:
    """Yield what can be told of the machine before Incus answers; ``folder``: that of the daemon's state."""
    yield ids(host)
    yield disk(host, folder)


def ids(host: str) -> MachineState:
    """Return whether root has user and group IDs to give to containers."""
    without = []
    for file in SUBIDS:
        text = (
            text_of(file) if file.exists() else f"root:0:{FEWEST_IDS}"
        )  # without the files Incus has a range of its own
        if not any(int(count) >= FEWEST_IDS for count in _RANGE.findall(text)):
            without.append(str(file))
    problem = f"root has no {FEWEST_IDS} subordinate IDs in {' and '.join(without)}: no container can start"
    return MachineState(
        host,
        "ids",
        "root has user and group IDs for containers",
        problem if without else "",
        f"Run: echo root:1000000:1000000000 | sudo tee -a {' '.join(without)} && sudo systemctl restart incus",
    )


GIB = 2**30
LEAST_FREE = GIB
"""Below this, packages, logs and a storage pool that is a file fail in the midst of what they do."""


def disk(host: str, folder: Path) -> MachineState:
    """Return whether the disk has room on which the daemon's folder lies; a pool in a file grows there, too."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    usage = shutil.disk_usage(there)
    seen = f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB free on the disk of {there}"
    problem = f"{seen}: a storage pool that is a file there cannot grow, and what containers write is lost"
    return MachineState(
        host,
        "disk",
        seen,
        problem if usage.free < LEAST_FREE else "",
        "Delete what is not needed. What takes the room: sudo du -xh --max-depth=2 / | sort -h | tail -n 20",
    )


# The bridge: rules that drop what containers send, the daemon that gives them names, and the proxy that they lack.

PATHS = "/usr/sbin:/sbin:/usr/bin:/bin"
"""Where `nft` is, which users without root do not have in theirs."""
LOOK_TIMEOUT_S = 10
DOCKER_CHAIN = "DOCKER-USER"
DOCKER_DEVICE = Path("/sys/class/net/docker0")


def ruleset() -> str | None:
    """Return the machine's packet filter as JSON of nft; None where there is no nft, or this user may not read it."""
    nft = shutil.which("nft", path=PATHS)
    if nft is None:
        return None
    try:
        done = subprocess.run(
            [nft, "--json", "list", "ruleset"], capture_output=True, text=True, timeout=LOOK_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:  # lists of a million addresses
        return None
    return done.stdout if done.returncode == 0 else None


def forwarding(host: str, bridge: str, rules: str | None) -> MachineState:
    """Return whether what containers send through ``bridge`` is dropped, as Docker's rules do on its machine."""
    if rules is None:
        docker = "Docker is here, and its rules may cut containers off; " if DOCKER_DEVICE.exists() else ""
        return MachineState(host, "firewall", f"not known: {docker}root may read them: sudo provision doctor")
    entries = json_value(rules.encode())["nftables"]
    chains = {entry["chain"]["name"] for entry in entries if "chain" in entry}
    family, table, chain = _dropping(entries, bridge) or ("", "", "")
    whose, insert, back = "the rules of this machine drop", "nft insert rule", "ct state related,established accept"
    cure = f"{insert} {family} {table} {chain} iifname {bridge} accept && sudo {insert} {family} {table} {chain} "
    cure += f"oifname {bridge} {back}"
    if (family, chain) == ("ip", "FORWARD"):
        first = DOCKER_CHAIN if DOCKER_CHAIN in chains else chain
        whose = "Docker's rules drop" if first == DOCKER_CHAIN else whose
        cure = f"iptables -I {first} -i {bridge} -j ACCEPT && sudo iptables -I {first} -o {bridge} -m conntrack "
        cure += "--ctstate RELATED,ESTABLISHED -j ACCEPT"
    problem = (
        f"{whose} what containers send through {bridge}: chain {chain} has the policy drop, and lets nothing through"
    )
    return MachineState(
        host,
        "firewall",
        f"no policy drops what containers send through {bridge}",
        problem if chain else "",
        f"Run: sudo {cure}; have it run at each start (a unit, or netfilter-persistent)",
    )


FAMILIES = frozenset({"ip", "inet"})
"""Those of IPv4: a bridge need not have IPv6, and by IPv4 alone packages are fetched."""


def _dropping(entries: list[Mapping[str, Any]], bridge: str) -> tuple[str, str, str] | None:
    """Return the chain of forwarding that drops what it does not accept, and accepts nothing that the bridge brings."""
    dropping = list[tuple[str, str, str]]()
    rules: dict[tuple[str, str, str], list[list[Mapping[str, Any]]]] = {}
    for entry in entries:
        chain, rule = entry.get("chain", {}), entry.get("rule", {})
        if (chain.get("hook"), chain.get("policy")) == ("forward", "drop") and chain["family"] in FAMILIES:
            dropping.append((chain["family"], chain["table"], chain["name"]))
        if rule:
            rules.setdefault((rule["family"], rule["table"], rule["chain"]), []).append(rule["expr"])
    for family, table, first in dropping:
        reached, accepted = [first], False
        for name in reached:  # it grows by the chains that rules jump to
            for parts in rules.get((family, table, name), ()):
                accepted |= _accepts(parts, bridge)
                reached += [target for target in _targets(parts) if target not in reached]
        if not accepted:
            return family, table, first
    return None


def _targets(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        for verdict in ("jump", "goto"):
            if verdict in part:
                yield part[verdict]["target"]


def _accepts(parts: list[Mapping[str, Any]], bridge: str) -> bool:
    """Tell whether the rule may accept new connections of any kind that come in by the bridge."""
    for part in parts:
        if "xt" in part or ("match" in part and not _leaves_in(bridge, part["match"])):
            return False
    return any("accept" in part or "vmap" in part for part in parts)


def _leaves_in(bridge: str, match: Mapping[str, Any]) -> bool:
    """Tell whether a match leaves what the bridge brings in; those of ports and of a connection's state leave a part.

    Of addresses, and of where packets go to, it is taken for granted but for Docker's own device.
    """
    left, right = match["left"], match["right"]
    key = left.get("meta", {}).get("key", left.get("payload", {}).get("field"))
    if key in {"iif", "iifname"}:
        names = right["set"] if isinstance(right, dict) else [right]
        is_named = any(fnmatchcase(bridge, str(name)) for name in names)
        return is_named is (match["op"] != "!=")
    return key in {"saddr", "daddr"} or (key in {"oif", "oifname"} and right != DOCKER_DEVICE.name)


DNS_PORT = 53
DNS_TIMEOUT_S = 3.0
QUESTION = b"\x70\x72\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09localhost\x00\x00\x01\x00\x01"
"""One question of DNS: the IPv4 address of localhost. Any answer shows that somebody answers."""


def names(host: str, bridge: str, page: Mapping[str, Any]) -> MachineState:
    """Return whether Incus' own DNS answers on the bridge; ``page``: what Incus says of that network."""
    address = page.get("config", {}).get("ipv4.address", "none")
    if not page.get("managed") or "/" not in address or page["config"].get("dns.mode") == "none":
        return MachineState(host, "names", f"{bridge} gives containers no DNS of Incus")
    server = str(ip_interface(address).ip)
    why = _unanswered(server)
    return MachineState(
        host,
        "names",
        f"the DNS of {bridge} answers at {server}",
        f"the DNS of {bridge} (dnsmasq, at {server}) does not answer: containers can look up no names" if why else "",
        f"Run: sudo systemctl restart incus. Who else has its port: sudo ss -lunp sport = {DNS_PORT}",
        why,
    )


def _unanswered(server: str) -> str:
    """Return why there is no answer to one question of DNS, "" where there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(DNS_TIMEOUT_S)
        try:
            asked.connect((server, DNS_PORT))
            asked.send(QUESTION)
            asked.recv(512)
        except OSError as error:
            return str(error)
    return ""


PROXIES = ("https_proxy", "http_proxy")


def proxy(host: str, profile: str, config: Mapping[str, str]) -> MachineState:
    """Return whether containers are told of the proxy that this machine is told of, or of one that it has not.

    No address is shown: there may be a password in it.
    """
    here = {name for name in PROXIES if os.environ.get(name) or os.environ.get(name.upper())}
    told = {key.removeprefix("environment.").lower() for key in config}
    there = set(PROXIES) & told
    seen, warning = "this machine and its containers are told of the same", ""
    if not here | there:
        seen = "neither this machine nor its containers are told of one"
    if here - there:
        name = min(here - there)
        seen = f"this machine uses a proxy ({name}), and containers are told of none: they may reach no package server"
        warning = (
            f'Run: incus profile set {profile} environment.{name} "${name}", then start the containers anew. '
            "An address of this machine alone (127.0.0.1) is not the containers': write that of the bridge"
        )
    elif there - here:
        name = min(there - here)
        seen = f"containers are told of a proxy ({name} in profile {profile}), and this machine is told of none"
        warning = f"If there is none any more, run: incus profile unset {profile} environment.{name}"
    return MachineState(host, "proxy", seen, warning=warning)
