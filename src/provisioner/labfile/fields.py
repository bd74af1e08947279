"""The kinds of value that the file's models are made of: names, sizes, addresses, secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from provisioner.values import quantities
from provisioner.values.declared import Secret
from provisioner.values.refusals import refusal


class Part(BaseModel):
    """A mapping of the file; keys that it does not know are refused."""

    # Strict: YAML has types, and "1" for 1 is a mistake that Ansible would carry into a template.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # most parts are only ever validated as part of the whole: halves the cost of these modules
    )


LABEL = r"^[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._/-]*(:[A-Za-z0-9._-]*/[A-Za-z0-9._/:-]*)?$"
"""What stands behind a colon has a slash, as in Proxmox's volumes: `debian:12` is an image of Docker's."""
SHA256 = r"^[0-9A-Fa-f]{64}$"
FINGERPRINT = r"^[0-9A-Fa-f]{2}(:?[0-9A-Fa-f]{2}){31}$"
HTTPS = r"^https://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?$"
HTTP_URL = r"^https?://[^\s@/?#]+(/[^\s?#]*)?$"
USER = r"^[^\s:/@!]+@[A-Za-z][A-Za-z0-9._-]+$"
ID = r"^[A-Za-z][A-Za-z0-9._-]+$"
ADDRESS = r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$"
SSH = r"^([A-Za-z_][A-Za-z0-9._-]*@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$"
INTERFACE = r"^[A-Za-z][A-Za-z0-9._-]{0,14}$"
STORAGE = r"^[A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9]$"
TAG = r"^(?!provisioner)[a-z0-9_][a-z0-9_+.-]*$"
DEVICE = r"^/dev/[A-Za-z0-9._:/-]+$"
FOLDER = r"^/[^\s,:]+$"
MODE = r"^0[0-7]{3}$"
MAC = r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"
PCI = r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"
UUID = r"^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
GROUP = r"^[a-z_][a-z0-9_-]{0,31}$"
VERSION = r"^[0-9]+(\.[0-9]+)*$"
ALIAS = r"^(?!.*os\.environ/)[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"
"""LiteLLM takes os.environ/NAME for the value of a variable."""
HOST_NAME = r"^(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$"
"""A name that a browser asks DNS for; one whose last part begins with a digit could be an address."""
HEADER_VALUE = "[!-~]+"
HEADER_SAYS = "consist of printable ASCII characters without spaces"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_PORT_HINT = "a port is one of 1 to 65535, and in brackets goes an address of IPv6"
_URL_HINT = 'write "https://", a name or address and a port, without user and path: "https://192.168.1.10:8443"'


def text_of(pattern: str, message: str, hint: str | Callable[[str], str]) -> Any:
    """Annotations of a string of one form: how it is checked, and what an editor's schema says of it.

    ``hint`` may depend on what was written; it must not repeat what may be a secret.
    """

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):  # compiled at its first use: few forms stand in one file
            raise refusal(message, hint if isinstance(hint, str) else hint(value))
        return value

    return AfterValidator(check), WithJsonSchema({"type": "string", "pattern": pattern})


def _size(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        raise refusal("a size without a unit", f'write "{value}GiB" or "{value}MiB"' if value > 0 else "")
    if isinstance(value, list | dict | bool):
        raise refusal("not a size", 'write one number with its unit, such as "16GiB"')
    if not isinstance(value, str):
        return value
    try:
        return quantities.parse_size(value)
    except quantities.SizeError as error:
        raise refusal(str(error), error.hint) from error


def _with_unit(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        raise refusal("a duration without a unit", f'write "{value}s" or "{value}m"' if value > 0 else 'write "0s"')
    return value


def https_address(value: str) -> str:
    """The address of a server's API, or a refusal; http:// is told apart."""
    if value.startswith("http://"):
        raise refusal("http:// would send the credentials in clear", f'write "https://{value.removeprefix("http://")}"')
    if not re.fullmatch(HTTPS, value, re.ASCII):
        raise refusal("not an https address", _URL_HINT)
    try:
        port = urlsplit(value).port
    except ValueError as error:
        raise refusal("not an https address", _PORT_HINT) from error
    if port == 0:
        raise refusal("not an https address", _PORT_HINT)
    return value


def _with_plain_keys(value: Any) -> Any:
    if isinstance(value, list):
        for item in value:
            _with_plain_keys(item)
    if isinstance(value, dict):
        for key, inner in value.items():
            if not re.fullmatch(VARIABLE, str(key), re.ASCII):
                raise refusal(*_NO_VARIABLE)
            _with_plain_keys(inner)
    return value


_NO_VARIABLE = (
    "not the name of a variable",
    "letters, digits and underscores; begins with no digit; at most 128 of them",
)
_TAG_HINT = "no capitals; those that begin with provisioner are our own"
_LABEL_HINT = "letters, digits and dashes; begins with a letter, ends with a letter or digit; at most 63 characters"
_NAME_HINT = "letters, digits, dots, dashes and underscores; begins with a letter or digit; at most 63 characters"


def _label_hint(value: str) -> str:
    from provisioner.labfile.advice import label_hint  # nothing that a good file needs

    return label_hint(value) + _LABEL_HINT


def _image_hint(value: str) -> str:
    from provisioner.labfile.advice import image_hint  # nothing that a good file needs

    return image_hint(value)


_label = text_of(LABEL, "not a valid name", _label_hint)
_name = text_of(NAME, "not a valid name", _NAME_HINT)
_image = text_of(IMAGE, "not the name of an image for containers", _image_hint)
_sha256 = text_of(SHA256, "not a sha256", "write its 64 hexadecimal digits, as sha256sum prints them")
_fingerprint = text_of(
    FINGERPRINT, "not a fingerprint", "write its sha256: 64 hexadecimal digits, with or without colons"
)
_http_url = text_of(HTTP_URL, "not an address", 'write an http(s) address without user and query: "https://host/v1"')
_user = text_of(USER, "not a Proxmox user", 'write the user and its realm: "root@pam"')
_token_id = text_of(ID, "not the id of a token", 'write only what follows the "!": "provision" of "root@pam!provision"')
_ssh = text_of(SSH, "not a destination of ssh", 'write "user@host" or "user@host:port"')
_address = text_of(ADDRESS, "not an address", 'write an address of IPv4 or a name that the LAN knows: "192.168.1.5"')
_interface = text_of(INTERFACE, "not the name of a network interface", "write a name such as vmbr0")
_storage = text_of(STORAGE, "not the name of a storage", "write a name such as local-lvm")
_tag = text_of(TAG, "not a tag that a container can have", _TAG_HINT)
_device = text_of(DEVICE, "not a device file of the host", 'write its path: "/dev/dri/renderD128"')
_folder = text_of(FOLDER, "not a folder", 'write an absolute path without commas: "/srv/data"')
_file_mode = text_of(MODE, "not a file mode", 'write its octal digits as a string: "0660"')
_mac = text_of(MAC, "not a MAC address", 'write it with colons: "BC:24:11:00:00:01"')
_pci = text_of(PCI, "not a PCI address", 'write it as `lspci -D` prints it: "0000:01:00.0"')
_uuid = text_of(UUID, "not the UUID of a GPU", "write it as `nvidia-smi -L` prints it: GPU-…")
_group = text_of(GROUP, "not the name of a group", "write a number, or a name of the container's groups: render")
_alias = text_of(
    ALIAS,
    "not the name of an alias",
    "letters, digits and . _ : / @ + -, begins with a letter or digit, at most 128 characters, never os.environ/…",
)
_host_name = text_of(
    HOST_NAME,
    "not the name of a site",
    "write a host name in small letters, without port and path: chat.home.example",
)
_variable = text_of(VARIABLE, *_NO_VARIABLE)
_version = text_of(VERSION, "not a version", 'write numbers with dots between, as a string: "12.4"')

HostName = Annotated[str, *_host_name]
Label = Annotated[str, *_label]
Name = Annotated[str, *_name]
Image = Annotated[str, *_image]
Sha256 = Annotated[str, *_sha256, AfterValidator(str.lower)]
Fingerprint = Annotated[str, *_fingerprint, AfterValidator(lambda value: value.replace(":", "").lower())]
HttpsUrl = Annotated[str, AfterValidator(https_address), WithJsonSchema({"type": "string", "pattern": HTTPS})]
HttpUrl = Annotated[str, *_http_url]
ProxmoxUser = Annotated[str, *_user]
TokenId = Annotated[str, *_token_id]
SshDestination = Annotated[str, *_ssh]
Address = Annotated[str, *_address]
Interface = Annotated[str, *_interface]
Storage = Annotated[str, *_storage]
Tag = Annotated[str, *_tag]
DevicePath = Annotated[str, *_device]
Folder = Annotated[str, *_folder]
FileMode = Annotated[str, *_file_mode]
MacAddress = Annotated[str, *_mac, AfterValidator(str.upper)]
PciAddress = Annotated[str, *_pci]
GpuUuid = Annotated[str, *_uuid]
GroupName = Annotated[str, *_group]
Version = Annotated[str, *_version]
AliasName = Annotated[str, *_alias]
VariableName = Annotated[str, *_variable]
Size = Annotated[int, BeforeValidator(_size), WithJsonSchema({"type": "string", "pattern": quantities.PATTERN})]
SizeOrNone = Annotated[
    int,
    BeforeValidator(lambda value: 0 if value == 0 and not isinstance(value, bool) else _size(value)),
    WithJsonSchema({"anyOf": [{"const": 0}, {"type": "string", "pattern": quantities.PATTERN}]}),
]
Duration = Annotated[str, BeforeValidator(_with_unit)]
"""A text whose form is on its role's page; a bare number is told apart from other texts."""
FreeValue = Annotated[Any, AfterValidator(_with_plain_keys)]
"""Whatever the file says; a mapping in it has names of variables as its keys, at any depth."""


def _key(value: Secret) -> Secret:
    if value.is_known and not re.fullmatch(HEADER_VALUE, value.reveal(), re.ASCII):
        raise refusal(f"the value must {HEADER_SAYS}", "Change the secret's value; it is not shown.")
    return value


SecretValue = Annotated[Secret, WithJsonSchema({"type": "string", "description": "A secret: write `!secret name`."})]
KeyValue = Annotated[SecretValue, AfterValidator(_key)]
"""A secret that travels in an HTTP header; checked where its value is known."""
Count = Annotated[int, Field(ge=1)]
