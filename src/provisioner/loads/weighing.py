"""The weights of a model by its GGUF file's head, else by its size or name; and what sums of models leave out."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from provisioner.loads.layers import Shape, drafting_layers, layer_of, shape_of
from provisioner.loads.terms import MIB, Load
from provisioner.models.header import Header
from provisioner.values.plain_data import json_value

# Bytes of weights where no GGUF file tells them: by the name of the model, or by its safetensors files.

BYTES_PER_WEIGHT: Mapping[str, float] = {
    "F32": 4.0,
    "F16": 2.0,
    "BF16": 2.0,
    "Q8_0": 1.06,
    "Q6_K": 0.82,
    "Q5_K_M": 0.72,
    "Q5_K_S": 0.70,
    "Q4_K_M": 0.63,
    "Q4_K_S": 0.58,
    "Q4_0": 0.58,
    "Q3_K_M": 0.50,
    "Q2_K": 0.40,
}
"""By quantisation, as files of 8 or 9 billion weights come out: 9B are 5.67, 6.48 and 18 GB at Q4_K_M, Q5_K_M, F16."""
FILE_TYPES: Mapping[int, str] = dict(
    zip(
        (0, 1, 2, 7, 10, 12, 14, 15, 16, 17, 18, 32),
        ("F32", "F16", "Q4_0", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "BF16"),
        strict=True,
    )
)
"""The numbers that ``general.file_type`` of a GGUF file may have (``llama_ftype``)."""
FLOOR = "Q4_K_M"
"""Below it models are quietly broken: what coarse tests do not show, the divergence from the whole model does."""
FLOOR_BITS = 4.7
"""Bits of a weight: Q4_K_M has 4.8 and more of them, Q4_K_S 4.6, IQ4_XS 4.3 to 4.5."""
_BILLIONS = re.compile(r"(?<![0-9A-Za-z.])(\d{1,4}(?:\.\d{1,3})?)[bB](?![0-9A-Za-z])")
_LONGEST_HEADER = 100 << 20
"""safetensors' own limit."""
ARGUMENT = re.compile(r"--?[A-Za-z]")
QUIET_VARIABLES = re.compile(
    r"TZ|LANG|LANGUAGE|LC_\w+|\w*_PROXY|\w*_proxy|HF_\w+|SSL_CERT_\w+|PYTHON\w+|TOKENIZERS_PARALLELISM|OMP_\w+|MKL_\w+"
    r"|\w+_VISIBLE_DEVICES|\w*(LOG|LOGGING|DEBUG|VERBOSE|TELEMETRY|USAGE_STATS)\w*"
)
"""Variables that say where, how loudly and by which card an engine computes, and no more."""
OF_AN_ARGUMENT = "LLAMA_ARG_"
"""The beginning of variables that stand for an argument of llama.cpp."""


class WeightsError(ValueError):
    """It is no safetensors file, or not one of its indexes; the text says how that was seen."""


def estimated_bytes(parameters: float, quantisation: str) -> int | None:
    """Parameters times bytes of one; None for a quantisation that is not known here."""
    each = BYTES_PER_WEIGHT.get(quantisation.upper())
    return None if each is None else round(parameters * each)


def estimated_by_name(source: str) -> tuple[int, str] | None:
    """Bytes and their sum in words for a source such as ``hf:unsloth/Qwen3.5-9B-GGUF:Q5_K_M``; None where it hides."""
    billions = _BILLIONS.search(source)
    quantisation = _quantisation_in(source)
    if billions is None or not quantisation:
        return None
    size = estimated_bytes(float(billions[1]) * 1e9, quantisation)
    if size is None:
        return None
    return size, f"{billions[1]}B weights of {BYTES_PER_WEIGHT[quantisation]} B ({quantisation})"


def _quantisation_in(source: str) -> str:
    """The quantisation that a source names, the longest such name; empty without one."""
    text = source.upper()
    named = [name for name in BYTES_PER_WEIGHT if re.search(rf"(?<![0-9A-Za-z]){name}(?![0-9A-Za-z])", text)]
    return max(named, key=len, default="")


def index_bytes(text: str) -> int:
    """What ``model.safetensors.index.json`` says of all its files together."""
    metadata = _object(text).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(size, int | float) or size <= 0:
        raise WeightsError("its metadata has no total_size")
    return int(size)


def safetensors_bytes(head: bytes) -> int:
    """What the tensors of one file take, by the head that it begins with."""
    if len(head) < struct.calcsize("<Q"):
        raise WeightsError(f"it ends after {len(head)} bytes")
    length = struct.unpack_from("<Q", head)[0]
    if not 0 < length <= _LONGEST_HEADER:
        raise WeightsError(f"its head would have {length} bytes")
    if len(head) < 8 + length:
        raise WeightsError(f"it ends after {len(head)} bytes, its head after {8 + length}")
    tensors = _object(head[8 : 8 + length])
    tensors.pop("__metadata__", None)
    return max(map(_end, tensors.values()), default=0)


def _end(tensor: Any) -> int:
    """Where a tensor ends, by the two offsets that the head has of it."""
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    match offsets:
        case [int(), int(end)]:
            return int(end)
    raise WeightsError("a tensor of its head does not say where it lies")


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        content = json_value(text)
    except ValueError as error:
        raise WeightsError(f"it is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise WeightsError("it is no JSON object")
    return content


# A model as it is added up, and the reasons why a sum is not the whole of it.

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


def words_of(reasons: Collection[str], words: Iterable[str], variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all free words of an engine by which a measurement is told from others; none without a reason."""
    if not reasons:
        return ()
    return (*words, *(f"{name}={value}" for name, value in sorted(variables.items())))


def uncounted(words: Iterable[str], variables: Iterable[str], free: Collection[str]) -> Iterator[str]:
    """Yield the reason why nobody knows what the engine takes, where one of these may change it.

    ``words``: of its command line; ``free``: arguments that take nothing. Of llama.cpp a variable is known by the
    argument that it stands for.
    """
    for word in dict.fromkeys(words):
        name = word.replace("_", "-")
        if ARGUMENT.match(word) and name not in free:
            yield f"what {name} among extra_arguments changes of it is not counted"
    for variable in variables:
        argument = "--" + variable.removeprefix(OF_AN_ARGUMENT).lower().replace("_", "-")
        if argument not in free and not QUIET_VARIABLES.fullmatch(variable):
            yield f"what {variable} in environment changes of it is not counted"
