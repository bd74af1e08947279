"""The file as frozen values: what was written, checked by itself; rules between its parts are in ``lab.rules``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from provisioner.spec.fields import (
    Address,
    Count,
    Fingerprint,
    Image,
    Label,
    Name,
    Sha256,
    Size,
    https_address,
)
from provisioner.spec.gpu import Gpu, gpu_words
from provisioner.spec.part import Part
from provisioner.spec.proxmox import ProxmoxContainer, ProxmoxHost
from provisioner.spec.refusal import refusal
from provisioner.spec.sources import SOURCE, format_of_source, model_source
from provisioner.spec.upstreams import Upstream

Format = Literal["gguf", "exl3", "exl2", "awq", "gptq", "fp8", "safetensors"]


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

    @model_validator(mode="after")
    def _check_credentials(self) -> IncusHost:
        credentials = {"cert": self.cert, "key": self.key, "fingerprint": self.fingerprint}
        given = [name for name, value in credentials.items() if value is not None]
        if given and self.incus == "local":
            raise refusal(f'{given[0]} is for an Incus elsewhere; this host is "local"', "leave it out")
        if (self.cert is None) != (self.key is None):
            raise refusal("cert and key belong together", "write both")
        return self


class Model(Part):
    """Weights: where they come from, their hash, and what engines must be able to read.

    ``format`` is None only for folders: on this machine until the loader has looked, in a hub where no name tells it.
    """

    source: Annotated[str, AfterValidator(model_source), WithJsonSchema({"type": "string", "pattern": SOURCE})]
    format: Format | None = Field(default=None, description="Of a folder's weights, where it does not tell it itself")
    sha256: Sha256 | None = None
    context: Count | None = Field(default=None, description="Tokens of context that the model is used with")

    @model_validator(mode="before")
    @classmethod
    def _fill_format(cls, data: Any) -> Any:
        source = data.get("source") if isinstance(data, dict) else None
        if isinstance(source, str) and data.get("format") is None:
            return {**data, "format": format_of_source(source)}
        return data


class ServiceSpec(Part):
    """One service of a container: exactly the options that were written, validated; secrets as ``Secret``."""

    role: str
    options: dict[str, Any] = Field(default={})
    expose: Literal["host", "lan"] = "host"


class Container(Part):
    """A container and what runs in it; what is None comes from its services' pages. Sizes are bytes."""

    host: str | None = Field(default=None, description="One of `hosts`; may be left out when there is one")
    image: Image | None = Field(default=None, description="Such as `debian/13`")
    cpu: Count | None = None
    memory: Size | None = None
    disk: Size | None = None
    gpu: Annotated[Gpu | None, BeforeValidator(gpu_words)] = Field(
        default=None, description="`none`, `any`, or which one"
    )
    proxmox: ProxmoxContainer | None = Field(default=None, description="What only Proxmox knows")
    adopt: bool = Field(default=False, description="Take over the container of that name that is there and nobody's")
    services: dict[str, ServiceSpec] = Field(default={})


def _names_its_secret(command: list[str]) -> list[str]:
    if "{name}" not in " ".join(command):
        raise refusal("the command does not say which secret it wants", 'write "{name}" in one of its words')
    return command


class SecretSource(Part):
    """Where secrets come from that are neither in the environment nor in ``secrets.env``."""

    command: Annotated[list[str], Field(min_length=1), AfterValidator(_names_its_secret)] = Field(
        description='The program and its arguments, such as ["pass", "show", "homelab/{name}"]'
    )


class Snapshots(Part):
    """What is kept of containers before they are changed."""

    keep: Annotated[int, Field(ge=0, le=100)] = Field(
        default=3, description="How many states of each container; 0 keeps none, so that nothing can be rolled back"
    )


class Spec(Part):
    """A whole file."""

    name: Label = Field(description="The lab's name: part of every mark that is left on what it owns")
    hosts: dict[Label, IncusHost | ProxmoxHost] = Field(
        default={}, description="Where containers can live; without any, the Incus on this machine"
    )
    models: dict[Name, Model] = Field(default={})
    upstreams: dict[Name, Upstream] = Field(default={}, description="Engines that are not of this lab")
    containers: dict[Label, Container]
    secrets: SecretSource | None = None
    snapshots: Snapshots = Snapshots()
    fit_check: Literal["refuse", "warn"] = Field(
        default="refuse", description="What becomes of engines that do not fit on their card"
    )
