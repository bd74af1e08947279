"""A model as its GGUF file's head tells it, else its size and its name; and what sums of models do not hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from provisioner.loads.layers import Shape, drafting_layers, shape_of
from provisioner.loads.placing import layer_of
from provisioner.loads.terms import MIB, Load
from provisioner.loads.uncounted import uncounted
from provisioner.loads.weights import estimated_by_name
from provisioner.models.header import Header

LONGEST_HEAD = 24 * MIB
"""What of a file is no tensor; where more is missing, not all of its tensors are known."""


def weighed(header: Header | None, size: int, source: str) -> tuple[Shape, int]:
    """Return the model's shape, and the bytes of its weights that are loaded; ``size`` is that of its files, or 0.

    Of a model of which nothing but its name is known the weights are 0: what the name tells is said, and decides
    nothing.
    """
    if header is not None:
        told = sum(header.tensors.values())
        loaded = sum(loaded_tensors(header).values())
        is_whole = told and size - told < LONGEST_HEAD
        return shape_of(header.values, header.tokens), loaded if is_whole else size - (told - loaded)
    if size:
        return Shape("", unread=("nothing is known of it but its size",)), size
    guess = estimated_by_name(source)
    if guess is None:
        return Shape("", unread=("nothing is known of it",)), 0
    guessed, reason = guess
    return Shape("", unread=(f"nothing is known of it but its name: {reason}, {guessed // MIB:,} MiB",)), 0


def loaded_tensors(header: Header) -> Mapping[str, int]:
    """Return the bytes of each tensor, without those of layers that only draft: llama.cpp skips them."""
    drafting = drafting_layers(header.architecture, header.values)
    if not drafting:
        return header.tensors
    return {name: size for name, size in header.tensors.items() if layer_of(name) < header.layers - drafting}


def unknown_of(load: Load) -> Iterator[str]:
    """Yield why nobody knows what a load takes; nothing where its file tells all of it."""
    if load.shape.unread:
        yield f"{load.name}: {'; '.join(load.shape.unread)}"
    elif not load.weights:
        yield f"{load.name}: nobody tells how large its file is"
    elif not load.flash_attention and load.shape.widths is None:
        yield f"{load.name}: its file does not tell what attention takes without flash attention"


def idle_encoder(load: Load, header: Header | None, *, sees: bool) -> Iterator[str]:
    """Yield that the sum of a folder's model holds an encoder of images which is not loaded; ``sees``: it is."""
    if _has_encoder(header) and not sees:
        yield f"{load.name}: its encoder of images, which is not loaded, is counted with its weights"


def _has_encoder(header: Header | None) -> bool:
    return bool(header and header.values.get("has_encoder"))


def uncounted_of_folder(
    load: Load, header: Header | None, variables: Iterable[str], *, sees: bool, drafts: bool
) -> Iterator[str]:
    """Yield why nobody knows what a model that is a folder takes.

    ``variables``: of the engine's environment; ``sees``: its encoder of images is loaded, ``drafts``: its own component
    for drafts is.
    """
    yield from load.shape.unread
    if not load.weights:
        yield "nobody tells how large its files are"
    if sees and _has_encoder(header):
        yield "what images take while they are computed is not counted"
    if drafts:
        yield "what its component for drafts keeps is not counted"
    yield from uncounted((), variables, ())
