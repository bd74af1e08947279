"""What the file says of hosts, an Incus or a Proxmox VE: how each is reached, and what its containers can be told."""

from __future__ import annotations

from ipaddress import ip_interface
from typing import Annotated, Literal

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
from provisioner.values.refusals import refusal

LOCAL_INCUS = "local"
"""What ``incus:`` of a host says of the one on this machine."""

DEFAULT_BRIDGE = "vmbr0"
_LOGIN = "write token: {id: NAME, secret: !secret NAME}, or password: !secret NAME"
DEFAULT_SWAP = 512 * 2**20
"""Proxmox' own."""
Transport = Literal["pct", "ssh", "jump"]
"""How Ansible reaches a container: by its node's ``pct exec``, or its own sshd, straight or through the node."""

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


class ProxmoxHost(Part):
    """A Proxmox VE node, by its API; ``ssh`` is needed for GPUs, keyctl and work inside containers."""

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


def _incus(value: str) -> str:
    if value == "local":
        return value
    if value.startswith(("http://", "https://")):
        return https_address(value)
    raise refusal("not an Incus", 'write "local" for the one on this machine, or an address: "https://box:8443"')


class IncusHost(Part):
    """An Incus: the one on this machine, or one elsewhere with our client certificate."""

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
        if given and self.incus == "local":
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


def is_elsewhere(host: HostPage) -> bool:
    """Whether the host is an Incus on another machine."""
    return isinstance(host, IncusHost) and host.incus != LOCAL_INCUS
