"""What the file says of hosts, an Incus or a Proxmox VE: how each is reached, and what its containers can be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_interface
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema, model_validator

from provisioner.labfile.fields import (
    Address,
    Count,
    DevicePath,
    FileMode,
    Fingerprint,
    Folder,
    GroupName,
    HttpsUrl,
    Interface,
    KeyValue,
    Label,
    MacAddress,
    Part,
    ProxmoxUser,
    SecretValue,
    Size,
    SizeOrNone,
    SshDestination,
    Storage,
    Tag,
    TokenId,
    https_address,
)
from provisioner.labfile.options import SERVICE_ADDRESS
from provisioner.values.declared import Secret
from provisioner.values.quantities import written_size
from provisioner.values.refusals import refusal

LOCAL = "local"
"""What a page says in place of an address, of a host that is this machine."""

DEFAULT_BRIDGE = "vmbr0"
_LOGIN = "write token: {id: NAME, secret: !secret NAME}, or password: !secret NAME"
DEFAULT_SWAP = 512 * 2**20
"""Proxmox' own."""
Transport = Literal["pct", "ssh", "jump"]
"""How Ansible reaches a container: by its node's ``pct exec``, or its own sshd, straight or through the node."""

DHCP = "dhcp"
_OF_NOBODY = frozenset({DHCP, "auto", "none", "None"})
"""What may be said of the addresses of several cards at once."""
PCT = "pct"
"""The transport that needs nothing in a container."""
PLAIN = ("unprivileged", "onboot", "pool", "tags", "description", "protection")
"""What a file writes as the host says it."""
DEVICE_DEFAULTS: Mapping[str, Any] = {"mode": "0660", "uid": 0, "gid": 0}
MOUNT_DEFAULTS: Mapping[str, Any] = {"backup": False}
NESTING = "nesting"
"""Every container has this feature: systemd of Debian 12 and later wants it."""

SHARE = "share"
"""The key of a host that names groups of services which take turns, and the option of a service that gets its own."""
SHARE_KEY = "share_key"
"""The key of a host, and the option of a service, with the secret by which members of a group know one another."""
LEAST_OF_GROUP = 2
"""Services that can take turns."""
_MEMBER = Annotated[str, StringConstraints(pattern=SERVICE_ADDRESS)]
_GROUP = {"type": "array", "items": {"type": "string", "pattern": SERVICE_ADDRESS}, "minItems": LEAST_OF_GROUP}
Share = list[Annotated[list[_MEMBER], WithJsonSchema(_GROUP)]]
"""Groups of services, each with the addresses of its members in the file."""
_SHARE = "Groups of services that share one card and take turns on it: `[[chat/ENGINE, code/ENGINE]]`"
_SHARE_KEY = "With which services that take turns ask one another; the secret `share-HOST` when left out"


_EXAMPLES = {4: ("ip", "192.168.1.50/24"), 6: ("ip6", "fd00::50/64")}
"""By the version of the protocol: the key of the file, and an address."""


def _address(value: str, *, version: int) -> str:
    word, example = _EXAMPLES[version]
    try:
        found = ip_interface(value)
    except ValueError as error:
        raise refusal("not an address", f'write it with its prefix: "{example}"') from error
    if found.version != version:
        raise refusal(f"an address of IPv{found.version} for {word}", f'write one such as "{example}"')
    if "/" not in value:
        raise refusal("an address without a prefix", f'write how large its network is: "{value}/{example[-2:]}"')
    return value


def _ip(value: str) -> str:
    return value if value in ("dhcp", "none") else _address(value, version=4)


def _ip6(value: str) -> str:
    return value if value in ("auto", "dhcp") else _address(value, version=6)


def _gateway(value: str) -> str:
    try:
        ip_interface(value)
    except ValueError as error:
        raise refusal("not an address", 'write one such as "192.168.1.1"') from error
    if "/" in value:
        raise refusal("a gateway with a prefix", f'write "{value.partition("/")[0]}"')
    return value


_TEXT = WithJsonSchema({"type": "string"})


class Token(Part):
    """An API token of Proxmox."""

    id: TokenId = Field(description="What follows the `!` in Proxmox")
    secret: KeyValue


def _refuse_key_of_nobody(share: Share, share_key: Secret | None) -> None:
    """Refuse a key of services that take turns where there are none."""
    if share_key is not None and not share:
        raise refusal("share_key is for services that take turns, and share names none", "leave it out, or write share")


class Network(Part):
    """The container's network card ``eth0``."""

    bridge: Interface | None = Field(default=None, description="The host's `bridge` when left out")
    ip: Annotated[str, AfterValidator(_ip), _TEXT] = Field(default="dhcp", description="dhcp, none or ADDRESS/PREFIX")
    gateway: Annotated[str, AfterValidator(_gateway), _TEXT] | None = None
    ip6: Annotated[str, AfterValidator(_ip6), _TEXT] | None = Field(
        default=None, description="auto, dhcp or ADDRESS/PREFIX"
    )
    gateway6: Annotated[str, AfterValidator(_gateway), _TEXT] | None = None
    vlan: Annotated[int, Field(ge=1, le=4094)] | None = None
    firewall: bool = False
    mac: MacAddress | None = Field(default=None, description="Chosen by Proxmox when left out")

    @model_validator(mode="after")
    def _check_gateways(self) -> Network:
        for gateway, address, words in (("gateway", "ip", "dhcp none"), ("gateway6", "ip6", "auto dhcp")):
            if getattr(self, gateway) is not None and (getattr(self, address) or "none") in (*words.split(), "none"):
                raise refusal(f"{gateway} goes with a static {address}", f"leave {gateway} out, or write {address}")
        return self


class Build(Part):
    """How what is built or downloaded once for a host's containers is made there, in containers of its own."""

    network: Network = Field(description="Their network card; without it they ask DHCP where the container does")


@dataclass(frozen=True, slots=True)
class BuilderCard:
    """The network card of a container in which something is built for another container.

    ``settings``: what its kind of host calls so. ``address``: a fixed one, which only one of several can have.
    ``asks_in_vain``: whether it may ask DHCP where nobody answers, as that other container has a fixed address.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    address: str = ""
    asks_in_vain: bool = False


class KindOfHost(Part):
    """What follows for a host from its kind, so that whoever uses one need not ask of which kind it is.

    What takes the kind's driver is said there: ``hosts.base.Kind``.
    """

    kind: ClassVar[str]
    """The key by which a host's page is known to be of this kind: the address of its API stands there."""
    title: ClassVar[str]
    """Its name for people."""
    domain: ClassVar[str] = ""
    """The DNS domain in which containers of one host find one another by their names; empty where they do not."""
    gives_addresses: ClassVar[bool] = False
    """Whether each container has an address of its own in the LAN; else the host publishes ports of its own."""
    attaches_cards: ClassVar[bool] = False
    """Whether the host attaches a graphics card, and can lend the user space of NVIDIA's driver; else a container is
    passed the card's device files."""
    shows_cards: ClassVar[bool] = False
    """Whether the cards of a host that is not this machine can be looked at."""
    needs_secrets: ClassVar[bool] = False
    """Whether nobody can look at a host without the secrets of its page."""

    @property
    def url(self) -> str:
        """The address of its API, or ``LOCAL``."""
        url: str = getattr(self, self.kind)
        return url

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""
        return self.url == LOCAL

    @property
    def api_host(self) -> str:
        """Name or address of the machine with its API; empty where that is this one."""
        return urlsplit(self.url).hostname or ""

    @property
    def words(self) -> str:
        """Its kind, and where it is, for people."""
        return f"{self.title}, {'this machine' if self.is_here else self.url}"

    def settings_of(self, block: ProxmoxContainer | None) -> dict[str, Any]:  # noqa: ARG002 - for kinds that have some
        """Return what the file decides of a container beside what every container is, by the file's own words."""
        return {}

    def written_form(self, settings: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - for kinds that have some
        """Return the block of a container that gives these settings again; the inverse of ``settings_of``."""
        return {}

    def builder_card(self, block: ProxmoxContainer | None) -> BuilderCard:  # noqa: ARG002 - for kinds that have one
        """Return the card of a container in which something is built for the container of that block."""
        return BuilderCard()

    def direct_way(self, block: ProxmoxContainer | None) -> str:  # noqa: ARG002 - for kinds that have one
        """Return by which way Ansible reaches a container's own sshd; empty where it goes through the host."""
        return ""


class ProxmoxHost(KindOfHost):
    """A Proxmox VE node, by its API; ``ssh`` is needed for GPUs, keyctl and work inside containers."""

    kind: ClassVar[str] = "proxmox"
    title: ClassVar[str] = "Proxmox"
    gives_addresses: ClassVar[bool] = True
    shows_cards: ClassVar[bool] = True
    needs_secrets: ClassVar[bool] = True
    address: ClassVar[None] = None
    """Other hosts' containers reach each of its containers at its own."""

    proxmox: HttpsUrl
    user: ProxmoxUser
    token: Token | None = None
    password: SecretValue | None = Field(default=None, description="Of `user`, beside a token or instead of one")
    ssh: SshDestination | None = None
    transport: Transport = Field(default="pct", description="How Ansible reaches containers that do not say it")
    ssh_key: str | None = Field(default=None, description="File with the private key for that; made when left out")
    node: Label | None = Field(default=None, description="The node's name; the one that answers when left out")
    ca: str | None = Field(default=None, description="File with the certificate that signed the server's")
    fingerprint: Fingerprint | None = Field(default=None, description="sha256 of the server's certificate")
    storage: Storage | None = Field(default=None, description="For disks of containers; the first fit one if left out")
    templates: Storage | None = Field(default=None, description="For templates; the first fit one if left out")
    bridge: Interface = DEFAULT_BRIDGE
    pool: Label | None = Field(default=None, description="Pool of Proxmox that its containers are put into")
    build: Build | None = None
    share: Share = Field(default=[], description=_SHARE)
    share_key: KeyValue | None = Field(default=None, description=_SHARE_KEY)

    @model_validator(mode="after")
    def _check_credentials(self) -> ProxmoxHost:
        if self.token is None and self.password is None:
            raise refusal("no way to log in", _LOGIN)
        if self.ca is not None and self.fingerprint is not None:
            raise refusal("ca and fingerprint both say whom to trust", "keep one of them")
        return self

    @model_validator(mode="after")
    def _check_share_key(self) -> ProxmoxHost:
        _refuse_key_of_nobody(self.share, self.share_key)
        return self

    def settings_of(self, block: ProxmoxContainer | None) -> dict[str, Any]:
        """Return what the file decides, defaults filled in; what it leaves to the host (vmid, storage) is not in it.

        ``features``, ``tags``: sorted tuples. ``devices``, ``mounts``: tuples of mappings, sorted by path. ``network``:
        a mapping without what was left out. ``order`` 0 and ``pool`` "" stand for none. Sizes are bytes.
        """
        options = block or ProxmoxContainer()
        mounts = sorted(options.mounts, key=lambda one: one.path)
        settings: dict[str, Any] = {
            "swap": options.swap,
            "network": self._card(options.network),
            "features": tuple(sorted({NESTING, *options.features})),
            "devices": tuple(one.model_dump() for one in sorted(options.devices, key=lambda one: one.path)),
            "mounts": tuple(one.model_dump(exclude_none=True) for one in mounts),
            "unprivileged": options.unprivileged,
            "onboot": options.onboot,
            "order": options.order or 0,
            "pool": options.pool or self.pool or "",
            "tags": tuple(sorted(set(options.tags))),
            "description": options.description.strip(),
            "protection": options.protection,
        }
        chosen = {"vmid": options.vmid, "storage": options.storage or self.storage}
        return settings | {name: value for name, value in chosen.items() if value is not None}

    def written_form(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the block that gives these settings again, as a file writes it: only what differs from the defaults.

        What no file can say (a foreign feature) is in it as the host says it: whoever reads the block has to see
        whether the file takes it.
        """
        default = self.settings_of(None)
        seen = {**default, **settings}
        block: dict[str, Any] = {}
        for name in PLAIN:
            if seen[name] != default[name]:
                block[name] = list(seen[name]) if name == "tags" else seen[name]
        block["vmid"] = settings.get("vmid")
        if seen.get("storage") != default.get("storage"):
            block["storage"] = seen["storage"]
        if seen["order"]:
            block["order"] = seen["order"]
        block["network"] = _differing(seen["network"], default["network"])
        block["features"] = [feature for feature in seen["features"] if feature != NESTING]
        block["devices"] = [_differing(device, DEVICE_DEFAULTS) for device in seen["devices"]]
        block["mounts"] = [_mount(mount) for mount in seen["mounts"]]
        said = {name: value for name, value in block.items() if value not in (None, [], {})}
        # 0 is a wish of its own: no swap
        return said if seen["swap"] == default["swap"] else {**said, "swap": _swap(seen["swap"])}

    def builder_card(self, block: ProxmoxContainer | None) -> BuilderCard:
        """Return that of ``build:``, else one that asks DHCP where the container's is."""
        if self.build is not None:
            network = self.build.network
            fixed = {network.ip, str(network.ip6), str(network.mac)} - _OF_NOBODY
            return BuilderCard({"network": self._card(network)}, " ".join(sorted(fixed)))
        own = (block or ProxmoxContainer()).network
        card = self._card(Network(bridge=own.bridge, vlan=own.vlan))
        return BuilderCard({"network": card}, asks_in_vain=own.ip != DHCP)

    def _card(self, network: Network) -> dict[str, Any]:
        return {"bridge": self.bridge, **network.model_dump(exclude_none=True)}

    def direct_way(self, block: ProxmoxContainer | None) -> str:
        """Return the container's transport, or the host's, where that is no ``pct``."""
        way = (block.transport if block else None) or self.transport
        return "" if way == PCT else way


def behind_firewall(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a container that its node holds to what it reaches: no rule counts without its card's firewall.

    Those of another kind of host, in which no card is decided, stay as they are.
    """
    if "network" not in settings:
        return dict(settings)
    return {**settings, "network": {**settings["network"], "firewall": True}}


def _swap(size: int) -> str | int:
    return written_size(size) if size else 0


def _mount(options: Mapping[str, Any]) -> dict[str, Any]:
    written = _differing(options, MOUNT_DEFAULTS)
    if "size" in written:
        written["size"] = written_size(written["size"])
    return written


def _differing(options: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """What is not said by default."""
    return {name: value for name, value in options.items() if name not in default or default[name] != value}


class PassedDevice(Part):
    """A device file of the host that the container gets; ids are those inside the container, a group may be a name."""

    path: DevicePath
    mode: FileMode = "0660"
    uid: Annotated[int, Field(ge=0)] = 0
    gid: Annotated[int, Field(ge=0)] | GroupName = 0


class MountPoint(Part):
    """One more disk of the container's own, that snapshots keep, too."""

    path: Folder
    size: Size
    storage: Storage | None = None
    backup: bool = False


class ProxmoxContainer(Part):
    """What a container on Proxmox is beside what every container is."""

    kind: ClassVar[str] = ProxmoxHost.kind
    """The container's key for it, and the kind of host that understands it."""
    title: ClassVar[str] = ProxmoxHost.title

    vmid: Annotated[int, Field(ge=100, le=999_999_999)] | None = Field(
        default=None, description="The next free one when left out"
    )
    storage: Storage | None = Field(default=None, description="The host's `storage` when left out")
    swap: SizeOrNone = Field(default=DEFAULT_SWAP, description="0 for none")
    network: Network = Network.model_construct()  # checked, it would have its validator built for each verb
    transport: Transport | None = Field(
        default=None, description="pct: through its node; ssh, or jump through it: its own sshd; else as its host says"
    )
    features: list[Literal["keyctl", "fuse", "mknod"]] = Field(
        default=[], description="Beside nesting, which every container has; only root@pam itself may set them"
    )
    devices: list[PassedDevice] = Field(default=[], description="Only root@pam itself may set them")
    mounts: list[MountPoint] = Field(default=[])
    unprivileged: bool = True
    onboot: bool = Field(default=True, description="Started with the host")
    order: Count | None = Field(default=None, description="Its place among those that are started with the host")
    pool: Label | None = Field(default=None, description="The host's `pool` when left out")
    tags: list[Tag] = Field(default=[], description="Beside those that mark it as ours")
    description: str = ""
    protection: bool = Field(default=False, description="Refuse to delete it, or a disk of it")

    @property
    def lacks_address(self) -> bool:
        """Whether it is to have no address of IPv4, and none of IPv6 is asked for."""
        return self.network.ip == "none" and self.network.ip6 is None

    def given_up(self) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """Yield what only one of two containers can have: its key, what a copy has instead as YAML, and in words."""
        if self.vmid is not None:
            yield ("vmid",), "null", "the next free number"
        for address, gateway, instead in (("ip", "gateway", "dhcp"), ("ip6", "gateway6", "auto")):
            if "/" in (getattr(self.network, address) or ""):
                words = f"{address}: {instead} (or: --set proxmox.network.{address}=ADDRESS/PREFIX)"
                yield ("network", address), instead, words
            if getattr(self.network, gateway) is not None:
                yield ("network", gateway), "null", ""
        if self.network.mac is not None:
            yield ("network", "mac"), "null", "another mac"


def _incus(value: str) -> str:
    if value == LOCAL:
        return value
    if value.startswith(("http://", "https://")):
        return https_address(value)
    raise refusal("not an Incus", 'write "local" for the one on this machine, or an address: "https://box:8443"')


class IncusHost(KindOfHost):
    """An Incus: the one on this machine, or one elsewhere with our client certificate."""

    kind: ClassVar[str] = "incus"
    title: ClassVar[str] = "Incus"
    domain: ClassVar[str] = "incus"
    """In which its bridge serves names (``dns.domain``'s default)."""
    attaches_cards: ClassVar[bool] = True

    build: ClassVar[None] = None
    """It gives an address to whatever is built on it."""

    incus: Annotated[str, AfterValidator(_incus), WithJsonSchema({"anyOf": [{"const": "local"}, {"type": "string"}]})]
    cert: str | None = Field(default=None, description="File of the client certificate; this user's own when left out")
    key: str | None = Field(default=None, description="File of its key, which only you can read")
    fingerprint: Fingerprint | None = Field(
        default=None, description="sha256 of the server's certificate; without it an authority must have signed that"
    )
    address: Address | None = Field(default=None, description="Where other hosts' containers reach it in the LAN")
    share: Share = Field(default=[], description=_SHARE)
    share_key: KeyValue | None = Field(default=None, description=_SHARE_KEY)

    @model_validator(mode="after")
    def _check_credentials(self) -> IncusHost:
        credentials = {"cert": self.cert, "key": self.key, "fingerprint": self.fingerprint}
        given = [name for name, value in credentials.items() if value is not None]
        if given and self.is_here:
            raise refusal(f'{given[0]} is for an Incus elsewhere; this host is "local"', "leave it out")
        if (self.cert is None) != (self.key is None):
            raise refusal("cert and key belong together", "write both")
        return self

    @model_validator(mode="after")
    def _check_share_key(self) -> IncusHost:
        _refuse_key_of_nobody(self.share, self.share_key)
        return self


HostPage = IncusHost | ProxmoxHost
"""What the file says of a host."""
