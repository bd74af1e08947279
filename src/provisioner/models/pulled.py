"""``Pulled``: what a registry says of a model that a service fetches from it by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.models.header import Header


@dataclass(frozen=True, slots=True)
class Wanted:
    """A model as a file asks for it: what its registry calls it, perhaps with the digest of the one that is meant."""

    model: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Pulled:
    """One version of a model. Sizes are those of its files, in bytes.

    ``digest``: the sha256 of its manifest, by which the version is known; empty where no manifest came. ``header``:
    the head of the model's file. ``projector``: that of the file beside it which turns images into tokens.
    ``family``: the architecture that the registry names. ``numbers``: the whole numbers among the options that come
    with the model. ``parts``: what else comes with it, such as ``adapter``. ``unknown``: why nobody knows what it
    takes; everything else may then be missing.
    """

    digest: str = ""
    header: Header | None = None
    size: int = 0
    projector: Header | None = None
    projector_size: int = 0
    family: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    unknown: str = ""
