"""Keep a service from every address but those that its lab's file connects it to, by a table of nftables.

``load NAME`` reads ``/etc/egress-NAME.json``, resolves the names in it, and replaces table ``inet egress_NAME`` in one
transaction where it is not as it should be. A name that is not resolved now keeps the addresses that it had.
``prove NAME [ADDRESS:PORT ...]`` asks, as the service, for places that nobody allows it, and prints as JSON what became
of that.

The page: ``user`` or ``container`` (of Podman), ``reaches`` ("internet" or "HOST:PORT"), ``urls``.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
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
NFT_S, CONNECT_S = 20, 1.0
ASKED_PORTS = (22, 8006, 8443)
"""Of the host: ssh, and the APIs of Proxmox VE and of Incus."""
LINK_LOCAL = "169.254.169.254"
"""Where clouds tell machines their secrets."""
REFUSED = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EACCES, errno.EPERM, errno.ENETUNREACH)
"""The errors of a connection that is refused; that this machine did it is known by what the table has counted."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Place = tuple[str, int]


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
    return list(found)


def table_of(name: str) -> str:
    """Return the name of the service's table."""
    return f"egress_{name.replace('-', '_')}"


def ruleset(
    name: str,
    page: Mapping[str, Any],
    addresses: Mapping[str, Sequence[str]],
    servers: Sequence[str],
    near: Sequence[str],
) -> str:
    """Return the script for nft; ``near``: the networks of IPv6 that this machine is in."""
    allowed = places(page)
    has_internet = INTERNET in page["reaches"]
    rules = ["ct state established,related accept"]
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
        rules.append(f"ip daddr != {{ {', '.join(PRIVATE)} }} accept")
        if near:
            rules.append(f"ip6 daddr {{ {', '.join(near)} }} goto refused")
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
    # What the kernel sends by itself is nobody's, and "skuid !=" does not match it either: so the jump names the user.
    return {"output": ["type filter hook output priority filter; policy accept;", f'meta skuid "{user}" jump kept']}


def _of_podman() -> dict[str, list[str]]:
    """Return the chains for an image, which has a network of its own behind this machine."""
    return {
        "forward": ["type filter hook forward priority filter; policy accept;", 'iifname "podman*" jump kept'],
        "input": [
            "type filter hook input priority filter; policy accept;",
            'iifname "podman*" ct state established,related accept',
            'iifname "podman*" goto refused',
        ],
    }


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _by_family(addresses: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in sorted(set(addresses)):
        address = _address(text)
        if address is not None:
            found.setdefault("ip" if address.version == 4 else "ip6", []).append(str(address))
    return found


def resolved(hosts: Iterable[str], known: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the addresses of each host; of a name that nobody resolves now, those that are known."""
    found: dict[str, list[str]] = {}
    for host in hosts:
        try:
            answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            found[host] = list(known.get(host, ()))
            continue
        found[host] = sorted({str(one[4][0]) for one in answers})
    return found


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


def near_networks(table: str) -> list[str]:
    """Return the networks of IPv6 in ``/proc/net/ipv6_route`` that are reached without a gateway."""
    found = set()
    for line in table.splitlines():
        fields = line.split()
        target, length, gateway = fields[0], fields[1], fields[4]
        network = ipaddress.ip_network((bytes.fromhex(target), int(length, 16)))
        is_public = network.subnet_of(ipaddress.ip_network(PUBLIC_6)) if network.version == 6 else False
        if int(gateway, 16) == 0 and is_public:
            found.add(network)
    return [str(network) for network in ipaddress.collapse_addresses(sorted(found))]


def gateways(table: str) -> list[str]:
    """Return the gateways of ``/proc/net/route``."""
    fields = [line.split() for line in table.splitlines()[1:]]
    found = [
        socket.inet_ntoa(bytes.fromhex(one[2])[::-1]) for one in fields if one[1] == "00000000" and int(one[2], 16)
    ]
    return list(dict.fromkeys(found))


def nft(*arguments: str, script: str = "") -> str:
    """Run nft and return its output; raise ``SystemExit`` with its words."""
    command = ["/usr/sbin/nft", *arguments]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=NFT_S, check=False)
    if done.returncode:
        raise SystemExit(f"Unable to keep it in: nft ended with {done.returncode}: {done.stderr.strip()[:500]}")
    return done.stdout


def _listed(name: str) -> str:
    """Return the table as the kernel has it, without counts; empty where there is none."""
    command = ["/usr/sbin/nft", "--stateless", "list", "table", "inet", table_of(name)]
    return subprocess.run(command, capture_output=True, text=True, timeout=NFT_S, check=False).stdout


def load(name: str, page: Mapping[str, Any]) -> None:
    """Make the table what the page says, where it is not."""
    state = Path(f"/run/egress-{name}/state.json")
    before = json.loads(state.read_text(encoding="utf-8")) if state.is_file() else {}
    hosts = list(dict.fromkeys(host for host, port in places(page)))
    addresses = resolved(hosts, before.get("addresses", {}))
    routes = Path("/proc/net/ipv6_route")
    near = near_networks(routes.read_text(encoding="utf-8")) if routes.is_file() else []
    # Podman tells an image, which does not reach a server of this machine, the servers behind it.
    servers = name_servers(RESOLVERS if page["container"] else RESOLVERS[:1])
    script = ruleset(name, page, addresses, servers, near)
    if before.get("script") == script and before.get("listed") == _listed(name) != "":
        return
    nft("--file", "-", script=script)
    state.parent.mkdir(mode=0o700, exist_ok=True)
    partial = state.with_suffix(".new")
    partial.write_text(
        json.dumps({"addresses": addresses, "script": script, "listed": _listed(name)}), encoding="utf-8"
    )
    partial.replace(state)


def refused_packets(name: str) -> int:
    """Return how many packets the table has refused; 0 where it is not there."""
    command = ["/usr/sbin/nft", "--json", "list", "table", "inet", table_of(name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=NFT_S, check=False)
    if done.returncode:
        return 0
    expressions = [
        one for entry in json.loads(done.stdout)["nftables"] for one in entry.get("rule", {}).get("expr", ())
    ]
    return sum(one["counter"]["packets"] for one in expressions if isinstance(one.get("counter"), dict))


def forbidden(page: Mapping[str, Any], further: Iterable[str]) -> list[Place]:
    """Return places that nobody allows the service: ports of its host, an address of the link, and of others those."""
    table = Path("/proc/net/route").read_text(encoding="utf-8")
    found = [(gateway, port) for gateway in gateways(table) for port in ASKED_PORTS]
    found.append((LINK_LOCAL, 80))
    for place in further:
        host, port = place.rsplit(":", 1)
        found.append((host, int(port)))
    allowed = {(address, port) for host, port in places(page) for address in resolved([host], {})[host]}
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
        raise SystemExit(f"Unable to ask as {name}: it does not run. {done.stderr.strip()[:500]}")
    return number


def prove(name: str, page: Mapping[str, Any], further: Iterable[str] = ()) -> dict[str, Any]:
    """Ask as the service for what it may not reach; return what was asked, and what this machine did not refuse."""
    asked = forbidden(page, further)
    number = process_of(name, page)
    command = [sys.executable, "-BIS", str(Path(__file__).resolve()), "ask"]
    user = None
    if page["container"]:
        command = ["nsenter", "--target", number, "--net", *command]
    else:  # as whom it runs, which is not always as whom it should
        user = Path(f"/proc/{number}").stat().st_uid
    before = refused_packets(name)
    limit = len(asked) * CONNECT_S + NFT_S
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=limit, check=True, user=user
    )
    answers = json.loads(done.stdout)
    counted = refused_packets(name) - before
    reached = [f"{host}:{port}" for host, port, code in answers if code not in REFUSED]
    return {"asked": [f"{host}:{port}" for host, port in asked], "reached": reached, "refused": counted}


def main(arguments: Sequence[str]) -> int:
    """Do what is asked; exit with 2 for what is no command."""
    if list(arguments) == ["ask"]:
        sys.stdout.write(json.dumps(ask([(host, port) for host, port in json.load(sys.stdin)])))
        return 0
    verb, name, *further = [*arguments, "", ""]
    if verb not in ("load", "prove") or not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        sys.stderr.write("usage: egress.py load|prove NAME [ADDRESS:PORT ...]\n")
        return 2
    page = json.loads(Path(f"/etc/egress-{name}.json").read_text(encoding="utf-8"))
    if verb == "load":
        load(name, page)
    else:
        sys.stdout.write(json.dumps(prove(name, page, filter(None, further))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
