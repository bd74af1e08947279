# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: what must be known of a machine before Incus is put on it; changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_host_facts
short_description: What must be known of a machine before Incus is put on it
description:
  - Reads routes, apt sources, installed packages, kernel limits and ID ranges of the machine. Changes nothing.
options:
  subnet:
    description: Address and prefix that the bridge is to have; routes that it overlaps are returned.
    type: str
    required: true
  bridge:
    description: Name of that bridge, whose own routes do not count.
    type: str
    required: true
  packages:
    description: Packages that are wanted; those not installed are returned.
    type: list
    elements: str
    default: []
  limits:
    description: Kernel settings (names with dots) and the least value that each should have.
    type: dict
    default: {}
  users:
    description: Accounts that are wanted; those that do not exist are returned.
    type: list
    elements: str
    default: []
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: preflight | Look at the machine
  provision_host_facts:
    subnet: 10.90.0.0/24
    bridge: provbr0
    packages: [incus-base]
"""

import grp
import hashlib
import ipaddress
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

FIRST_ID = 1_000_000
MOST_IDS = 1_000_000_000
FEWEST_IDS = 65_536
PROC = ("/proc/net/route", "/proc/self/mounts", "/proc/self/uid_map")
CONTAINER_MARKS = (Path("/run/systemd/container"), Path("/run/host/container-manager"))


def overlapping_routes(table: str, subnet: str, bridge: str) -> list[dict[str, str]]:
    """Routes of ``/proc/net/route`` that share an address with ``subnet`` (not the default, not the bridge's)."""
    wanted = ipaddress.ip_interface(subnet).network
    overlapping = []
    for device, network in _routes(table):
        is_default = network.prefixlen == 0
        if not is_default and device != bridge and network.overlaps(wanted):
            overlapping.append({"device": device, "network": str(network)})
    return overlapping


def default_device(table: str) -> str | None:
    """The network device of the default route, or None."""
    for device, network in _routes(table):
        if network.prefixlen == 0:
            return device
    return None


def mirrors(targets: str, codename: str, read: Callable[[str], str]) -> dict[str, Any]:
    """The Debian archives that the machine uses: ``main`` and ``security`` URIs ("" = none), ``backports`` or not.

    ``targets`` are lines ``RELEASE COMPONENT ORIGIN REPO-URI`` of ``apt-get indextargets``, then those of what
    ``apt-get update --print-uris`` would fetch: the former know who publishes an archive, but only archives whose lists
    were fetched. ``read`` gives the text of a file, for sources that name their mirrors in one (``mirror+file:/…``).
    """
    by_release: dict[str, list[str]] = {}
    for release, component, origin, uri in map(_target, targets.splitlines()):
        if component == "main" and _is_debian(origin, uri):
            by_release.setdefault(release, []).append(_plain_uri(uri, read))
    plain: list[str] = []
    updated: list[str] = []
    security: list[str] = []
    for name in (codename, "stable"):
        uris = by_release.get(name, [])
        plain += uris
        # others publish for Debian below such an address, too; but only Debian has updates beside it
        updated += [uri for uri in uris if uri in by_release.get(f"{name}-updates", [])]
        security += by_release.get(f"{name}-security", [])
    return {
        "main": next(iter(updated + plain), ""),
        "security": next(iter(security), ""),
        "backports": f"{codename}-backports" in by_release,
    }


def id_range_line(subids: str, uid_map: str) -> str | None:
    """The line that ``/etc/subuid`` should have for root, or None when the one it has can be used.

    A range can be used when it lies within ``uid_map``: inside a container that ends much earlier than on a machine.
    An empty answer means that too few IDs are left here for a container.
    """
    end = max(map(_end_of_mapping, uid_map.splitlines()))
    for start, count in _id_ranges(subids, of_root=True):
        if count >= FEWEST_IDS and start + count <= end:
            return None
    first_free = FIRST_ID
    for start, count in _id_ranges(subids, of_root=False):
        first_free = max(first_free, start + count)
    left = min(MOST_IDS, end - first_free)
    return f"root:{first_free}:{left}" if left >= FEWEST_IDS else ""


def _end_of_mapping(line: str) -> int:
    """The number after the last ID that a line of ``uid_map`` maps."""
    inside, _, count = line.split()
    return int(inside) + int(count)


def _id_ranges(subids: str, *, of_root: bool) -> Iterator[tuple[int, int]]:
    """First ID and number of IDs of each line of root's, or of each of the others'."""
    for line in subids.splitlines():
        if line.count(":") == 2:  # noqa: PLR2004
            name, start, count = line.strip().split(":")
            if (name in {"root", "0"}) == of_root:
                yield int(start), int(count)


def limits_to_raise(wanted: dict[str, int], folder: Path = Path("/proc/sys")) -> dict[str, int]:
    """Those of ``wanted`` that are lower now and that this machine lets root change (a container's host does not)."""
    raised = {}
    for name, limit in wanted.items():
        file = folder / name.replace(".", "/")
        if os.access(file, os.W_OK) and int(file.read_text(encoding="ascii")) < int(limit):
            raised[name] = int(limit)
    return raised


def _routes(table: str) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    for line in table.splitlines()[1:]:
        device, destination, *_, mask, _mtu, _window, _irtt = line.split()
        yield device, ipaddress.IPv4Network((_address(destination), str(_address(mask))))


def _address(little_endian: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(bytes.fromhex(little_endian)[::-1])


def _target(line: str) -> tuple[str, str, str, str]:
    """Release, component, origin and URI of a line of either kind; empty ones when it is no part of an archive."""
    fetched = re.match(r"'(?P<uri>[^']+)/dists/(?P<release>[^']+)/(In)?Release' ", line)
    if fetched:
        return fetched["release"], "main", "", fetched["uri"]
    release, component, origin, uri = [*line.split(" ", 3), "", "", ""][:4]
    return release.rstrip("/"), component, origin, uri


def _is_debian(origin: str, uri: str) -> bool:
    """Whether Debian itself publishes it; before the first ``apt-get update`` only the address can tell."""
    if origin:
        return origin == "Debian"
    return re.search(r"/debian(-security)?(/|\.list)?$", uri) is not None


def _plain_uri(uri: str, read: Callable[[str], str]) -> str:
    """The address, or the first one in the file of mirrors that it names; without a slash at the end."""
    if not uri.startswith("mirror+file:"):
        return uri.rstrip("/")
    file = re.sub(r"^mirror\+file:/*", "/", uri).rstrip("/")
    for line in map(str.strip, read(file).splitlines()):
        if line and not line.startswith("#"):
            return line.split()[0].rstrip("/")
    return ""


def _missing(names: Iterable[str], look_up: Callable[[str], object]) -> list[str]:
    missing = []
    for name in names:
        try:
            look_up(name)
        except KeyError:
            missing.append(name)
    return missing


def _missing_packages(module: AnsibleModule, packages: list[str]) -> list[str]:
    if not packages:
        return []
    form = "${Package} ${db:Status-Status}\n"
    # its exit status only says that one of the packages is unknown, which is what we ask
    _, out, _ = module.run_command(["dpkg-query", "--show", "--showformat", form, *packages])
    installed = {line.split()[0] for line in out.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def _apt_targets(module: AnsibleModule) -> str:
    if module.get_bin_path("apt-get") is None:
        return ""
    form = "$(RELEASE) $(COMPONENT) $(ORIGIN) $(REPO_URI)"
    fetched = _output(module, "indextargets", "--format", form, "Created-By: Packages")
    return fetched + _output(module, "update", "--print-uris")


def _output(module: AnsibleModule, *arguments: str) -> str:
    rc, out, err = module.run_command(["apt-get", *arguments])
    if rc:
        module.fail_json(msg=f"Unable to read this machine's apt sources: {err.strip()}")
    return str(out)


def _mtu(device: str | None) -> int:
    if device is None:
        return 1500
    return int(Path(f"/sys/class/net/{device}/mtu").read_text(encoding="ascii"))


def _text(path: str) -> str:
    file = Path(path)
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _codename() -> str:
    match = re.search(r"^VERSION_CODENAME=\"?(\w+)", _text("/etc/os-release"), re.MULTILINE)
    return match[1] if match else ""


def _extra_cas() -> str:
    """One digest of all certificate authorities that this machine trusts beside Debian's."""
    files = sorted(Path("/usr/local/share/ca-certificates").glob("*.crt"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _is_member(user: str, group: str) -> bool:
    try:
        return user in grp.getgrnam(group).gr_mem
    except KeyError:
        return False


def _checked_subnet(module: AnsibleModule) -> str:
    subnet = str(module.params["subnet"])
    try:
        interface = ipaddress.IPv4Interface(subnet)
    except ValueError as error:
        module.fail_json(msg=f"Unable to use the subnet {subnet}: {error}. Give an address and a prefix: 10.0.5.1/24.")
    if interface.ip == interface.network.network_address:
        module.fail_json(msg=f"Unable to use the subnet {subnet}: give the bridge an address in it: 10.0.5.1/24.")
    return subnet


def main() -> None:
    """Gather everything in one call: each task more would cost as much as all of this."""
    options: dict[str, Any] = {
        "subnet": {"type": "str", "required": True},
        "bridge": {"type": "str", "required": True},
        "packages": {"type": "list", "elements": "str", "default": []},
        "limits": {"type": "dict", "default": {}},
        "users": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    wanted, routes, mounts, uid_map = module.params, *map(_text, PROC)
    subids = {path: id_range_line(_text(path), uid_map) for path in ("/etc/subuid", "/etc/subgid")}
    module.exit_json(
        changed=False,
        codename=_codename(),
        architecture=os.uname().machine,
        is_container=any(mark.exists() for mark in CONTAINER_MARKS),
        has_python_apt=Path("/usr/lib/python3/dist-packages/apt").is_dir(),
        # a container has what its machine's lxcfs mounts over its /proc, and need not have its own
        has_lxcfs=os.path.ismount("/var/lib/lxcfs") or re.search(r" /proc/\w+ fuse\.lxcfs ", mounts) is not None,
        overlaps=overlapping_routes(routes, _checked_subnet(module), wanted["bridge"]),
        mtu=_mtu(default_device(routes)),
        mirrors=mirrors(_apt_targets(module), _codename(), _text),
        missing_packages=_missing_packages(module, wanted["packages"]),
        missing_users=_missing(wanted["users"], pwd.getpwnam),
        users_outside=[user for user in wanted["users"] if not _is_member(user, "incus-admin")],
        limits=limits_to_raise(wanted["limits"]),
        subids=[{"path": path, "line": line} for path, line in subids.items() if line is not None],
        extra_cas=_extra_cas(),
    )


if __name__ == "__main__":
    main()
