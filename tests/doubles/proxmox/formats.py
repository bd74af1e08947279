"""The named formats of parameters, each with the text that PVE refuses a bad value with."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT](?:iB)?)?")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
NAME = r"[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?"
DEPTH_OF_POOLS = 3
NARROWEST_PREFIX = 8


class FormatError(ValueError):
    """A value that its format refuses; the text ends with a line feed, as PVE's does."""


def split_list(value: str) -> list[str]:
    """The members of a list as PVE splits it: at commas, semicolons, spaces and NULs."""
    return [part for part in re.split(r"[,;\s\0]+", value) if part]


def size_bytes(text: str) -> int | None:
    """The bytes that a size such as ``8G`` or ``8GiB`` says, or nothing when it is no size."""
    match = SIZE.fullmatch(text)
    return int(float(match[1]) * UNITS[(match[2] or "")[:1]]) if match else None


def size_text(size: int) -> str:
    """A size as PVE writes it: the largest unit without a remainder."""
    for unit in "TGMK":
        if size and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return str(size)


def check(name: str, value: str) -> None:
    """Raise ``FormatError`` when a value does not follow the named format; ``KeyError`` for a format unknown here."""
    if name.endswith("-list"):
        for part in split_list(value):
            FORMATS[name.removesuffix("-list")](part)
        return
    FORMATS[name](value)


def _pattern(pattern: str, text: str, flags: int = 0) -> Callable[[str], None]:
    compiled = re.compile(pattern, flags)

    def checked(value: str) -> None:
        if not compiled.fullmatch(value):
            raise FormatError(text.format(value) + "\n")

    return checked


def _address(version: int, text: str) -> Callable[[str], None]:
    def checked(value: str) -> None:
        try:
            known = ipaddress.ip_address(value).version
        except ValueError:
            known = 0  # type: ignore[assignment]
        if version != known:
            raise FormatError(f"{text}\n")

    return checked


def _is_network(value: str, version: int) -> bool:
    address, _, prefix = value.partition("/")
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    return known.version == version and prefix.isdecimal() and NARROWEST_PREFIX <= int(prefix) <= known.max_prefixlen


def _interface(version: int, words: tuple[str, ...]) -> Callable[[str], None]:
    def checked(value: str) -> None:
        if value not in words and not _is_network(value, version):
            raise FormatError(f"value does not look like a valid ipv{version} network configuration\n")

    return checked


def _id(kind: str) -> Callable[[str], None]:
    def checked(value: str) -> None:
        if len(value) < len("ab"):
            raise FormatError(f"{kind} ID '{value}' cannot be shorter than 2 characters\n")
        if not re.fullmatch(r"(?i)[a-z][a-z0-9\-_.]*[a-z0-9]", value):
            raise FormatError(f"{kind} ID '{value}' contains illegal characters\n")

    return checked


def _pool(value: str) -> None:
    if len(value.split("/")) > DEPTH_OF_POOLS:
        raise FormatError(f"pool name '{value}' nested too deeply (max levels = 3)\n")
    if not re.fullmatch(r"[A-Za-z0-9.\-_]+(/[A-Za-z0-9.\-_]+)*", value):
        raise FormatError(f"pool name '{value}' contains invalid characters\n")


def _path(value: str) -> None:
    if re.search(r"/\.\.?/|/\.\.?$|^\.\./", value):
        raise FormatError(f"{value} contains illegal character sequences\n")


def _device(value: str) -> None:
    if re.search(r"/\.\.?(/|$)", value) or not value.startswith("/dev/"):
        raise FormatError(f"{value} is not a valid device path\n")


def _size(value: str) -> None:
    if size_bytes(value) is None:
        raise FormatError(f"value does not look like a valid disk size: {value}\n")


def _startup(value: str) -> None:
    parts = [part for part in value.split(",") if part.strip()]
    if not parts or not all(re.fullmatch(r"(order=)?\d+|(up|down)=\d+", part) for part in parts):
        raise FormatError("unable to parse startup options\n")


def _timezone(value: str) -> None:
    if value != "host" and not re.fullmatch(r"[A-Z][A-Za-z_]+(/[A-Za-z_+\-0-9]+)*", value):
        raise FormatError(f"invalid time zone '{value}'\n")


ALIAS = re.compile(r"(dc/|guest/)?[A-Za-z][A-Za-z0-9\-_]+")


def address_version(value: str) -> int:
    """The version of IP of addresses, networks, or one range, in a rule; 0 for an alias or a set.

    So ``parse_address_list`` in pve-firewall's ``Firewall.pm``; a network with bits beyond its prefix is none.
    """
    if value.startswith("+") or ALIAS.fullmatch(value):
        return 0
    elements = value.split(",")
    ends = [end for element in elements for end in element.split("-")]
    try:
        versions = {ipaddress.ip_network(end).version for end in ends}
    except ValueError as error:
        raise FormatError(f"invalid IP address: {error}\n") from error
    if len(versions) > 1:
        raise FormatError(f"detected mixed ipv4/ipv6 addresses in address list '{value}'\n")
    if len(elements) > 1 and "-" in value:
        raise FormatError("you can't use a range in a list\n")
    return versions.pop()


def _addresses(value: str) -> None:
    address_version(value)


FORMATS: dict[str, Callable[[str], None]] = {
    "CIDR": _pattern(r"[0-9a-fA-F:.]+/\d+", "value does not look like a valid CIDR network"),
    "disk-size": _size,
    "dns-name": _pattern(rf"({NAME}\.)*{NAME}", "value does not look like a valid DNS name"),
    "email-opt": _pattern(r"|[^\s@]+@[^\s@]+", "value does not look like a valid email address"),
    "ipv4": _address(4, "value does not look like a valid IPv4 address"),
    "ipv6": _address(6, "value does not look like a valid IPv6 address"),
    "lxc-ip-with-ll-iface": _pattern(r"[0-9a-fA-F:.]+(%\w+)?|host", "value does not look like a valid IP address"),
    "mac-addr": _pattern(
        r"[a-f0-9][02468ace](:[a-f0-9]{2}){5}", "value does not look like a valid unicast MAC address", re.IGNORECASE
    ),
    "mac-prefix": _pattern(r"[a-f0-9][02468ace](:[a-f0-9]{2}){0,2}:?", "invalid MAC prefix", re.IGNORECASE),
    "pve-configid": _pattern(r"(?i)[a-z][a-z0-9_-]+", "invalid configuration ID '{}'"),
    "pve-ct-timezone": _timezone,
    "pve-fw-addr-spec": _addresses,
    "pve-fw-dport-spec": _pattern(r"\d+(:\d+)?(,\d+(:\d+)?)*", "invalid port '{}'"),
    "pve-fw-icmp-type-spec": _pattern(r"[a-z-]*", "invalid icmp-type value '{}'"),
    "pve-fw-protocol-spec": _pattern("tcp|udp|icmp|icmpv6|ipv6-icmp|sctp", "unknown protocol '{}'"),
    "pve-fw-sport-spec": _pattern(r"\d+(:\d+)?(,\d+(:\d+)?)*", "invalid port '{}'"),
    "pve-groupid": _pattern(r"[A-Za-z0-9.\-_]+", "group name '{}' contains invalid characters"),
    "pve-ipv4-config": _interface(4, ("dhcp", "manual")),
    "pve-ipv6-config": _interface(6, ("auto", "dhcp", "manual")),
    "pve-iface": _pattern(r"[A-Za-z][A-Za-z0-9_.:]+", "invalid network interface name '{}'"),
    "pve-lxc-dev-string": _device,
    "pve-lxc-mp-string": _path,
    "pve-node": _pattern(NAME, "value does not look like a valid node name"),
    "pve-node-location": _pattern(r".+", "value does not look like a location"),
    "pve-poolid": _pool,
    "pve-priv": _pattern(r"[A-Za-z.]+", "invalid privilege '{}'"),
    "pve-realm": _pattern(r"[A-Za-z][A-Za-z0-9.\-_]+", "value does not look like a valid realm"),
    "pve-roleid": _pattern(r"[A-Za-z0-9.\-_]+", "role name '{}' contains invalid characters"),
    "pve-startup-order": _startup,
    "pve-storage-content": _pattern(
        "images|rootdir|vztmpl|iso|backup|snippets|import|none", "invalid content type '{}'"
    ),
    "pve-storage-id": _id("storage"),
    "pve-tag": _pattern(r"(?i)[a-z0-9_][a-z0-9_\-+.]*", "invalid characters in tag"),
    "pve-task-status-type": _pattern("ok|error|warning|unknown", "invalid status '{}'"),
    "pve-tokenid": _pattern(
        r"[^\s:/]+@[A-Za-z][\w.\-]+![A-Za-z][\w.\-]+", "value '{}' does not look like a valid token ID"
    ),
    "pve-userid": _pattern(r"[^\s:/]+@[A-Za-z][\w.\-]+", "value '{}' does not look like a valid user name"),
    "pve-vmid": _pattern(r"[1-9][0-9]{2,8}", "value does not look like a valid VM ID"),
    "pve-volume-id": _pattern(r"(?i)[a-z][a-z0-9\-_.]*[a-z0-9]:.+", "unable to parse volume ID '{}'"),
    "string": lambda _: None,
}
