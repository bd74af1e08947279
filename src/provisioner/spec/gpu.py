"""What a container says of the card that it wants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from provisioner.spec.fields import GpuUuid, PciAddress, Sha256, Size, Version, text_of
from provisioner.spec.part import Part
from provisioner.spec.refusal import refusal

INSTALLER = r"^https://[^\s?#]+/NVIDIA-Linux-[A-Za-z0-9_]+-[0-9.]+\.run$"
_INSTALLER_HINT = 'write the address of its .run file: "https://…/NVIDIA-Linux-x86_64-580.95.05.run"'
DESCRIBING = ("vendor", "pci", "uuid", "vram")


class Require(Part):
    """What the card's driver must at least be; only NVIDIA's says both."""

    driver: Version | None = Field(default=None, description="Oldest version of the driver: `550.54`")
    cuda: Version | None = Field(default=None, description="Oldest release of CUDA that the driver knows: `12.4`")


class Userspace(Part):
    """NVIDIA's own installer, for a host whose driver is of a version that the container's distribution has not."""

    source: Annotated[str, *text_of(INSTALLER, "not NVIDIA's installer", _INSTALLER_HINT)]
    sha256: Sha256


class Gpu(Part):
    """Which GPU a container gets: the one that one field describes, any when all are None; and how it has it."""

    vendor: Literal["nvidia", "amd", "intel"] | None = None
    pci: PciAddress | None = None
    uuid: GpuUuid | None = None
    vram: Size | None = Field(default=None, description="At least this much memory")
    sharing: Literal["shared", "exclusive"] = Field(
        default="shared", description="`exclusive`: no other container of the file gets the same card"
    )
    require: Require = Require()
    userspace: Userspace | None = Field(
        default=None, description="Where a container gets NVIDIA's libraries from, when neither host nor apt has them"
    )

    @model_validator(mode="after")
    def _check_one(self) -> Gpu:
        if len(self.model_fields_set.intersection(DESCRIBING)) > 1:
            raise refusal("a GPU is described by one of vendor, pci, uuid and vram", "keep one of them")
        return self


def gpu_words(value: Any) -> Any:
    """The words ``none`` and ``any`` as what they stand for; everything else is left to the model."""
    if value == "none":
        return None
    if value == "any":
        return Gpu()
    if isinstance(value, str) or value == {}:
        raise refusal("not a GPU", "write none, any, {vendor: …}, {pci: …}, {uuid: …} or {vram: …}")
    return value
