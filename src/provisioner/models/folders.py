"""Models that are folders: which files of a repository or a folder are theirs, and in which format the weights are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from provisioner.models.header import Header
from provisioner.values.plain_data import json_value

CONFIG = "config.json"
GGUF, PLAIN = "gguf", "safetensors"
QUANTISED = ("exl3", "exl2", "awq", "gptq", "fp8")
FORMATS = (GGUF, *QUANTISED, PLAIN)
NO_METHOD = "none"
"""What stands for the method of a config.json that names none: its weights are as they were trained."""
SMALL_BYTES = 20_000_000
"""What a file at most has that is read whole; the vocabularies of today's models take 10 to 20 MB."""
MOST_FILES = 1000
INDEX = ".safetensors.index.json"
_WEIGHTS = ".safetensors"
_ALL_IN_ONE = "consolidated"
"""How the name of weights begins that some makers put beside the same weights under the usual names."""
_NUMBERS = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "vocab_size"),
    *("max_position_embeddings", "sliding_window", "intermediate_size"),
    *("num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *("full_attention_interval", "linear_conv_kernel_dim", "linear_num_key_heads", "linear_num_value_heads"),
    *("linear_key_head_dim", "linear_value_head_dim", "kv_lora_rank", "qk_rope_head_dim", "sliding_window_pattern"),
    *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv", "mamba_expand"),
)
_STRETCHING = ("linear", "dynamic", "yarn")
"""The ``rope_type`` with which a model takes ``factor`` times the tokens that it was trained with."""
_LARGEST_NUMBER = 2**40
_WIDEST = 64
_NEEDED = (
    *(CONFIG, "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("video_preprocessor_config.json", "quantization_config.json", "quantize_config.json", "quant_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "tokenizer*", "vocab.*", "merges.txt"),
    *("chat_template.*", "*.jinja", f"*{_WEIGHTS}", f"*{INDEX}"),
)
# Neither pickles nor code: both would be run by whoever loads them.
_READ = (_WEIGHTS, ".json", ".jinja", ".txt", ".model", ".bpe", ".tiktoken")
_PLAIN_NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}"
_METHOD = r"[a-z0-9][a-z0-9._-]{0,39}"
_SHOWN = 12


class ModelSourceError(Exception):
    """What a file's model names is none that can be served; ``hint`` is what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class FolderError(ModelSourceError):
    """No engine could read a folder as a model; ``hint`` is what is there, or what to do."""


def is_needed(name: str) -> bool:
    """Whether an engine may want the file of that name: weights, tokenizer, configuration, template; never a pickle."""
    if name.startswith(".") or not name.endswith(_READ):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _NEEDED)


def selected(there: Iterable[str]) -> list[str]:
    """The names of the files that make up the model, config.json first; raises ``FolderError``."""
    names = sorted(there)
    needed = [name for name in names if is_needed(name)]
    for name in needed:
        if not re.fullmatch(_PLAIN_NAME, name, re.ASCII):
            hint = "A name has letters, digits, dots, dashes, underscores and plus signs."
            raise FolderError(f"{name!r} cannot be the name of a model's file", hint)
    if CONFIG not in needed:
        raise FolderError(f"there is no {CONFIG} in it", _listed(names))
    if not any(map(is_weights, needed)):
        raise FolderError(f"there is no *{_WEIGHTS} in it", _listed(names))
    if len(needed) > MOST_FILES:
        raise FolderError(f"it has {len(needed)} files, and no model has more than {MOST_FILES}")
    others = [name for name in needed if name != CONFIG]
    return [CONFIG, *others]


def is_weights(name: str) -> bool:
    """Whether the file of that name holds tensors."""
    return name.endswith(_WEIGHTS)


def weight_names(names: Collection[str]) -> list[str]:
    """The names of the files that an engine loads as weights, each tensor once."""
    weights = [name for name in names if is_weights(name)]
    usual = [name for name in weights if not name.startswith(_ALL_IN_ONE)]
    return usual or weights


def is_read_whole(name: str) -> bool:
    """Whether the content of the file of that name tells whether the folder is a whole model."""
    return name == CONFIG or name.endswith(INDEX)


def method_in(contents: Mapping[str, bytes], names: Collection[str]) -> str:
    """How config.json says that the weights are quantised, once no index names a file that is not there.

    ``contents``: of the files that ``is_read_whole`` names; raises ``FolderError``.
    """
    for name, content in contents.items():
        if name.endswith(INDEX):
            _check_index(name, _object(name, content), names)
    return method_of(contents[CONFIG])


def method_of(config: bytes) -> str:
    """What a config.json names as ``quant_method``, ``NO_METHOD`` where it names none; raises ``FolderError``."""
    content = _object(CONFIG, config)
    for settings in (content, _inner(content)):
        quantised = settings.get("quantization_config")
        if not isinstance(quantised, dict):
            continue
        method = str(quantised.get("quant_method", "")).lower()
        if not is_method(method):
            raise FolderError(f"its {CONFIG} names no quant_method in its quantization_config")
        return method
    return NO_METHOD


def header_of(config: bytes) -> Header:
    """What a config.json says of its model's layers, as the head of a GGUF file would; raises ``FolderError``."""
    content = _object(CONFIG, config)
    settings = {**content, **_inner(content)}
    values: dict[str, Any] = {name: _number(settings.get(name)) for name in _NUMBERS}
    values["dtype"] = str(settings.get("dtype") or settings.get("torch_dtype") or "")
    values["mamba_ssm_dtype"] = str(settings.get("mamba_ssm_dtype") or "")
    values["method"] = method_of(config)
    values["is_quantised"] = values["method"] != NO_METHOD
    values["bits"] = _bits(content)
    encoder = content.get("vision_config")
    values["has_encoder"] = isinstance(encoder, dict)
    values["encoder"] = str(encoder.get("model_type") or "") if isinstance(encoder, dict) else ""
    values["architectures"] = _texts(content.get("architectures"))
    tied = settings.get("tie_word_embeddings")
    values["is_tied"] = tied if isinstance(tied, bool) else None
    values["uses_window"] = settings.get("use_sliding_window") is not False
    values["layer_types"] = _texts(settings.get("layer_types"))
    return Header(
        str(settings.get("model_type") or ""),
        layers=values["num_hidden_layers"],
        context=_context(settings),
        values=values,
        tokens=values["vocab_size"],
    )


def _inner(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a config.json says of the part that answers, where the model takes images, too."""
    inner = content.get("text_config")
    return inner if isinstance(inner, dict) else {}


def _texts(value: Any) -> list[str]:
    """The entries of a list as text; none for anything else."""
    return list(map(str, value)) if isinstance(value, list) else []


def _number(value: Any) -> int:
    """A count; 0 for anything else."""
    is_count = type(value) is int and 0 < value < _LARGEST_NUMBER
    return value if is_count else 0


def _bits(content: Mapping[str, Any]) -> float:
    """The bits of a weight that a config.json names, on average; 0 where it names none."""
    quantised = content.get("quantization_config")
    bits = quantised.get("bits") if isinstance(quantised, dict) else None
    if isinstance(bits, int | float) and 0 < bits <= _WIDEST:
        return float(bits)
    return 0.0


def _context(settings: Mapping[str, Any]) -> int:
    """The tokens that the model takes at most, 0 where it does not say it.

    Gemma 3 names its stretched context itself. Where several ways of turning positions are named the longest counts.
    """
    trained = _number(settings.get("max_position_embeddings"))
    named = settings.get("rope_parameters") or settings.get("rope_scaling")
    if not trained or not isinstance(named, dict) or str(settings.get("model_type")).startswith("gemma3"):
        return trained
    of_kinds = [value for value in named.values() if isinstance(value, dict)]
    return max(_stretched(trained, rope) for rope in (of_kinds or [named]))


def _stretched(trained: int, rope: Mapping[str, Any]) -> int:
    """The tokens with which one way of turning positions copes."""
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    if kind not in _STRETCHING or not isinstance(factor, int | float) or not 1 <= factor < _LARGEST_NUMBER:
        return trained
    start = _number(rope.get("original_max_position_embeddings")) if kind == "yarn" else 0
    return int((start or trained) * factor)


def is_method(text: str) -> bool:
    """Whether it can be the name of a method, as the lock file holds it."""
    return re.fullmatch(_METHOD, text, re.ASCII) is not None


def format_of(method: str, name: str) -> str | None:
    """The format that a config.json's method means, else the one that the folder's name tells; None where none does."""
    if method == NO_METHOD:
        return PLAIN
    return method if method in QUANTISED else format_by_name(name)


def format_by_name(name: str) -> str | None:
    """The format that the name of a repository, of its revision or of a folder tells; None for none and for several."""
    lower_case = name.lower()
    formats = [weights for weights in QUANTISED if re.search(rf"(?<![a-z]){weights}(?![a-z0-9])", lower_case)]
    return formats[0] if len(formats) == 1 else None


def contradiction(written: str, method: str) -> FolderError | None:
    """The refusal of a folder whose config.json says another format; None where both agree.

    Other methods than the formats (compressed-tensors, fbgemm_fp8) are of engines that read the method from the folder.
    """
    meant = format_of(method, "")
    if meant == written or (meant is None and written in ("awq", "gptq", "fp8")):
        return None
    said = "names no quantisation" if method == NO_METHOD else f"says {method}"
    return FolderError(f"its {CONFIG} {said}, and its format is {written}", f"Write format: {meant}" if meant else "")


def unknown_format(method: str = "") -> FolderError:
    """The refusal of a folder of which nothing tells its format."""
    said = f"its {CONFIG} says {method}" if method else "nothing tells its format"
    return FolderError(said, f"Write format: {' | '.join(FORMATS[1:])}")


def _check_index(name: str, content: Mapping[str, Any], names: Collection[str]) -> None:
    tensors = content.get("weight_map")
    if not isinstance(tensors, dict):
        raise FolderError(f"its {name} has no weight_map")
    missing = sorted({str(file) for file in tensors.values()} - set(names))
    if missing:
        raise FolderError(f"its {name} names {missing[0]}, which is not there", _listed(names))


def _object(name: str, content: bytes) -> dict[str, Any]:
    try:
        found = json_value(content)
    except ValueError as error:
        raise FolderError(f"its {name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise FolderError(f"its {name} is no JSON object")
    return found


def _listed(names: Collection[str]) -> str:
    if not names:
        return "it is empty"
    shown = ", ".join(sorted(names)[:_SHOWN])
    more = len(names) - _SHOWN
    return f"there: {shown} and {more} more" if more > 0 else f"there: {shown}"
