"""Keep a service from every address but those that its lab's file connects it to, by a table of nftables.

``load NAME`` reads ``/etc/egress-NAME.json``, resolves the names in it, and replaces table ``inet egress_NAME`` in one
transaction where it is not as it should be.
``prove NAME [ADDRESS:PORT ...]`` asks, as the service, for places that nobody allows it, and prints as JSON what became
of that.

The page: ``user`` or ``container`` (of Podman), ``reaches`` ("internet" or "HOST:PORT"), ``urls``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

INTERNET = "internet"
# What is nobody's on the internet (RFC 6890): the host, its other networks, link-local addresses, multicast.
PRIVATE = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/3",
)
PUBLIC_6 = "2000::/3"
RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
PORTS = {"http": 80, "https": 443}
LARGEST_PORT = 65535
NFT_S, CONNECT_S, RESOLVE_S = 20, 1.0, 5.0
KEPT_S = 600.0
ASKED_PORTS = (22, 8006, 8443)
"""Of the host: ssh, and the APIs of Proxmox VE and of Incus."""
DYNAMIC_USERS = "61184-65519"
"""As systemd numbers them (``DynamicUser=``)."""
LINK_LOCAL = ("169.254.169.254", "fd00:ec2::254")
"""Addresses at which clouds tell machines their secrets."""
REFUSED = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM)
"""The errors of a connection that is refused; that this machine did it is known by what the table has counted."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Place = tuple[str, int]
Seen = dict[str, float]


def places(page: Mapping[str, Any]) -> list[Place]:
    """Return host and port of all that the page allows beside the internet, each once."""
    found: dict[Place, None] = {}
    for written in page["reaches"]:
        if written != INTERNET:
            host, port = written.rsplit(":", 1)
            found[host.strip("[]"), int(port)] = None
    for url in page["urls"]:
        parts = urlsplit(url)
        if parts.hostname:
            found[parts.hostname, parts.port or PORTS[parts.scheme]] = None
    wrong = [port for host, port in found if not 1 <= port <= LARGEST_PORT]
    if wrong:
        raise SystemExit(f"Unable to keep it in: {wrong[0]} is no port")
    return list(found)


def table_of(name: str) -> str:
    """Return the name of the service's table."""
    return f"egress_{name.replace('-', '_')}"


def ruleset(
    name: str,
    page: Mapping[str, Any],
    addresses: Mapping[str, Iterable[str]],
    servers: Sequence[str],
    near: Sequence[str],
) -> str:
    """Return the script for nft; ``near``: the networks that this machine is in."""
    allowed = places(page)
    has_internet = INTERNET in page["reaches"]
    # Answers to its clients. What it began itself is judged packet by packet: one that was allowed once may not be now.
    rules = ["ct direction reply ct state established accept"]
    needs_names = has_internet or any(_address(host) is None for host, port in allowed)
    if not needs_names:
        rules.append('oif "lo" meta l4proto { tcp, udp } th dport 53 goto refused')  # a resolver here asks others
    rules.append('oif "lo" accept')
    if needs_names:
        for family, those in _by_family(servers).items():
            rules.append(f"{family} daddr {{ {', '.join(those)} }} meta l4proto {{ tcp, udp }} th dport 53 accept")
    ends: dict[str, list[str]] = {}
    for host, port in allowed:
        for family, those in _by_family(addresses.get(host, ())).items():
            ends.setdefault(family, []).extend(f"{one} . {port}" for one in those)
    rules += [f"{family} daddr . tcp dport {{ {', '.join(those)} }} accept" for family, those in ends.items()]
    if has_internet:
        for network in near:
            rules.append(f"{'ip6' if ':' in network else 'ip'} daddr {network} goto refused")
        rules.append(f"ip daddr != {{ {', '.join(PRIVATE)} }} accept")
        rules.append(f"ip6 daddr {PUBLIC_6} accept")
    rules.append("goto refused")
    table = f"table inet {table_of(name)}"
    hooks = _of_user(page["user"]) if page["user"] else _of_podman()
    lines = [table, f"delete {table}", f"{table} {{"]
    # A reset first: the kernel sends few messages of ICMP a second, and who gets none waits until its time is over.
    resets = "meta l4proto tcp counter reject with tcp reset"
    lines += _chain("refused", [resets, "counter reject with icmpx admin-prohibited"])
    lines += _chain("kept", rules)
    for chain, content in hooks.items():
        lines += _chain(chain, content)
    return "\n".join([*lines, "}", ""])


def _chain(name: str, rules: Iterable[str]) -> list[str]:
    return [f"\tchain {name} {{", *("\t\t" + rule for rule in rules), "\t}"]


def _of_user(user: str) -> dict[str, list[str]]:
    # What the kernel sends by itself is nobody's, and "skuid !=" does not match it: so the jump names the user.
    # systemd's users for a while serve the proofs; one of them is a browser that does what it is told at loopback.
    users = [f'meta skuid "{user}" jump kept', f"meta skuid {DYNAMIC_USERS} jump kept"]
    return {"output": ["type filter hook output priority filter; policy accept;", *users]}


def _of_podman() -> dict[str, list[str]]:
    """Return the chains for an image, which has a network of its own behind this machine."""
    return {
        "forward": ["type filter hook forward priority filter; policy accept;", 'iifname "podman*" jump kept'],
        "input": [
            "type filter hook input priority filter; policy accept;",
            'iifname "podman*" ct direction reply ct state established accept',
            'iifname "podman*" goto refused',
        ],
    }


def _address(text: str) -> Address | None:
    """Return the address without its zone, of which nft knows nothing; None for a name."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _by_family(addresses: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in sorted(set(addresses)):
        address = _address(text)
        if address is not None:
            found.setdefault("ip" if address.version == 4 else "ip6", []).append(str(address))
    return found


def resolved(hosts: Iterable[str], known: Mapping[str, Seen], now: float) -> dict[str, Seen]:
    """Return the addresses of each host, with when they were heard of last, in seconds.

    A name that nobody resolves within ``RESOLVE_S`` keeps its addresses, and a public one each for ``KEPT_S``: such
    names lead to one of many in turn. No name leads to an address of this link or machine.
    """
    answers: dict[str, list[str]] = {}

    def asked(host: str) -> None:
        with contextlib.suppress(OSError):
            answers[host] = [str(one[4][0]) for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]

    threads = {host: threading.Thread(target=asked, args=(host,), daemon=True) for host in hosts}
    until = time.monotonic() + RESOLVE_S
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    found: dict[str, Seen] = {}
    for host in threads:
        before = known.get(host, {})
        if host not in answers:
            found[host] = dict(before)
            continue
        kept = {one: at for one, at in before.items() if _is_public(one) and now - at < KEPT_S}
        found[host] = kept | {one: now for one in answers[host] if _address(host) or _is_elsewhere(one)}
    return found


def _is_public(text: str) -> bool:
    address = _address(text)
    return address is not None and address.is_global


def _is_elsewhere(text: str) -> bool:
    address = _address(text)
    own = address is None or address.is_loopback or address.is_unspecified
    return not own and not address.is_link_local and not address.is_multicast


def name_servers(files: Iterable[Path]) -> list[str]:
    """Return the servers elsewhere that these files (``resolv.conf``) name; one of this machine is reached anyway."""
    found: dict[str, None] = {}
    for file in files:
        if file.is_file():
            for server in re.findall(r"^nameserver\s+(\S+)", file.read_text(encoding="utf-8"), re.MULTILINE):
                address = _address(server)
                if address is not None and not address.is_loopback:
                    found[server] = None
    return list(found)


def near_networks(table: str, table_6: str) -> list[str]:
    """Return the networks of ``/proc/net/route``, and the public ones of ``ipv6_route``, that need no gateway."""
    found: list[str] = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if int(fields[2], 16) == 0 and int(fields[7], 16):
            found.append(f"{_dotted(fields[1])}/{int(fields[7], 16).bit_count()}")
    near = set()
    for line in table_6.splitlines():
        fields = line.split()
        network = ipaddress.IPv6Network((bytes.fromhex(fields[0]), int(fields[1], 16)))
        if int(fields[4], 16) == 0 and network.subnet_of(ipaddress.IPv6Network(PUBLIC_6)):
            near.add(network)
    return found + [str(network) for network in ipaddress.collapse_addresses(near)]


def gateways(table: str) -> list[str]:
    """Return the gateways of ``/proc/net/route``."""
    fields = [line.split() for line in table.splitlines()[1:]]
    return list(dict.fromkeys(_dotted(one[2]) for one in fields if int(one[1], 16) == 0 and int(one[2], 16)))


def _dotted(number: str) -> str:
    return socket.inet_ntoa(bytes.fromhex(number)[::-1])


def nft(*arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run nft to its end."""
    command = ["/usr/sbin/nft", *arguments]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=NFT_S, check=False)


def listed(name: str) -> str:
    """Return the table as the kernel has it, without counts; empty where there is none."""
    return nft("--stateless", "list", "table", "inet", table_of(name)).stdout


@contextlib.contextmanager
def locked(name: str) -> Iterator[Path]:
    """Be the only one that works with the service's table; give the file of what was loaded."""
    folder = Path(f"/run/egress-{name}")
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield folder / "state.json"


def page_of(name: str) -> dict[str, Any]:
    """Return what the role wrote of the service."""
    content: dict[str, Any] = json.loads(Path(f"/etc/egress-{name}.json").read_text(encoding="utf-8"))
    return content


def _read(file: Path) -> dict[str, Any]:
    """Return what was loaded; nothing where that is not known."""
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def _routes(name: str) -> str:
    file = Path("/proc/net") / name
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def load(name: str) -> None:
    """Make the table what the page says, where it is not."""
    with locked(name) as state:
        page, before = page_of(name), _read(state)
        hosts = list(dict.fromkeys(host for host, port in places(page)))
        addresses = resolved(hosts, before.get("addresses", {}), time.time())
        # Podman tells an image, which does not reach a server of this machine, the servers behind it.
        servers = name_servers(RESOLVERS if page["container"] else RESOLVERS[:1])
        near = near_networks(_routes("route"), _routes("ipv6_route"))
        script = ruleset(name, page, addresses, servers, near)
        there = listed(name)
        is_loaded = there != "" and (before.get("script"), before.get("listed")) == (script, there)
        if not is_loaded:
            done = nft("--file", "-", script=script)
            if done.returncode:
                raise SystemExit(f"Unable to keep {name} in: nft says: {done.stderr.strip()[:500]}")
            there = listed(name)
        now = {"page": page, "addresses": addresses, "script": script, "listed": there}
        partial = state.with_suffix(".new")
        partial.write_text(json.dumps(now), encoding="utf-8")
        partial.replace(state)


def refused_packets(name: str) -> int:
    """Return how many packets the table has refused; 0 where it is not there."""
    done = nft("--json", "list", "table", "inet", table_of(name))
    if done.returncode:
        return 0
    expressions = [
        one for entry in json.loads(done.stdout)["nftables"] for one in entry.get("rule", {}).get("expr", ())
    ]
    return sum(one["counter"]["packets"] for one in expressions if isinstance(one.get("counter"), dict))


def forbidden(known: Mapping[str, Any], further: Iterable[str]) -> list[Place]:
    """Return places that nobody allows the service: ports of its host, addresses of the link, and of others those."""
    found = [(gateway, port) for gateway in gateways(_routes("route")) for port in ASKED_PORTS]
    found += [(address, 80) for address in LINK_LOCAL]
    for place in further:
        host, port = place.rsplit(":", 1)
        found.append((host, int(port)))
    allowed = {(one, port) for host, port in places(known["page"]) for one in known["addresses"].get(host, ())}
    return [place for place in found if place not in allowed]


def ask(asked: Iterable[Place]) -> list[list[Any]]:
    """Try to connect to each place; return it with the number of the error, 0 for none, -1 where nothing came."""
    found: list[list[Any]] = []
    for host, port in asked:
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
            code = 0
        except TimeoutError:
            code = -1
        except OSError as error:
            code = error.errno or -1
        found.append([host, port, code])
    return found


def process_of(name: str, page: Mapping[str, Any]) -> str:
    """Return the number of the service's process, in an image that of its first; raise ``SystemExit`` without one."""
    command = ["podman", "inspect", "--format", "{{.State.Pid}}", page["container"]]
    if not page["container"]:
        command = ["systemctl", "show", "--property=MainPID", "--value", f"{name}.service"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=NFT_S, check=False)
    number = done.stdout.strip()
    if not number.isdigit() or number == "0":
        raise SystemExit(f"it does not run, so that nobody can ask as {name}. {done.stderr.strip()[:500]}")
    return number


def prove(name: str, further: Iterable[str]) -> dict[str, Any]:
    """Ask as the service for what it may not reach; return what was asked, and what this machine did not refuse.

    A place to which there is no way at all was not asked. Raise ``SystemExit`` where the rules are other ones than the
    page says, or nobody can ask.
    """
    with locked(name) as state:
        known, page = _read(state), page_of(name)
        if known.get("page") != page or known["listed"] != listed(name):
            raise SystemExit(f"table inet {table_of(name)} is not what its page says")
    number = process_of(name, page)
    command = [sys.executable, "-BIS", str(Path(__file__).resolve()), "ask"]
    user = None
    if page["container"]:
        command = ["nsenter", "--target", number, "--net", *command]
    else:  # as whom it runs, which is not always as whom it should
        user = Path(f"/proc/{number}").stat().st_uid
    asked, before = forbidden(known, further), refused_packets(name)
    limit = len(asked) * CONNECT_S + NFT_S
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=limit, check=False, user=user
    )
    if done.returncode:
        raise SystemExit(f"whoever asked as {name} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    counted = refused_packets(name) - before
    answers = [(f"{host}:{port}", code) for host, port, code in json.loads(done.stdout) if code != errno.ENETUNREACH]
    reached = [place for place, code in answers if code not in REFUSED]
    return {"asked": [place for place, code in answers], "reached": reached, "refused": counted}


def main(arguments: Sequence[str]) -> int:
    """Do what is asked; exit with 2 for what is no command."""
    if list(arguments) == ["ask"]:
        sys.stdout.write(json.dumps(ask([(host, port) for host, port in json.load(sys.stdin)])))
        return 0
    verb, name, *further = [*arguments, "", ""]
    if verb not in ("load", "prove") or not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        sys.stderr.write("usage: egress.py load|prove NAME [ADDRESS:PORT ...]\n")
        return 2
    if verb == "load":
        load(name)
    else:
        sys.stdout.write(json.dumps(prove(name, filter(None, further))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
