"""Where a model's weights come from (``builtin: file: dir: hf: https:``), and the names of their files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from provisioner.models.folders import GGUF, PLAIN, format_by_name
from provisioner.values.refusals import did_you_mean, refusal

TINY = "builtin:tiny"
"""A GGUF that is made on the spot."""
TINY_HF = "builtin:tiny-hf"
"""A folder of safetensors that is made on the spot."""
TINY_THINKING = "builtin:tiny-thinking"
"""A GGUF that is made on the spot, whose chat template has it think unless it is told not to."""
TINY_EMBEDDING, TINY_RERANK = "builtin:tiny-embedding", "builtin:tiny-rerank"
"""GGUFs that are made on the spot, of a model of embeddings and of a reranker."""
BUILTIN_MODELS = ("tiny", "tiny-hf", "tiny-embedding", "tiny-rerank", "tiny-thinking")
TOKEN_NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""The variables in which the hub's own client looks for a token."""
SOURCE = (
    r"^(builtin:tiny(-hf|-embedding|-rerank|-thinking)?|file:.+\.gguf|dir:.+|hf:[^/\s]+/[^/:@\s]+(:[^/:\s]+|@[^:@\s]+)"
    r"|https://[^\s@#]+\.gguf(\?[^\s@#]*)?)$"
)
# Compiled at their first use: most files name no hub and no address.
_HUB = r"hf:([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+):([A-Za-z0-9._-]+)"
_HUB_FOLDER = r"hf:([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+)@([A-Za-z0-9](?:[A-Za-z0-9._+-]|/(?=[A-Za-z0-9]))*)"
_GGUF_TYPE = r"(?<![a-z])(i?q|tq)[0-9]"
_BITS_PER_WEIGHT = r"(?<![a-z])bpw(?![a-z])"
_URL = r"https://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/[^\s@#]*"
_FILENAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*\.gguf"
_PART = r"-([0-9]{5})-of-([0-9]{5})\.gguf$"
_LONGEST_PLACE = 1000
MOST_PARTS = 1000
"""More than any model has: a name that says so is not believed."""
_HINT = (
    'write "hf:ORG/REPO:QUANT", "hf:ORG/REPO@REVISION", "https://HOST/PATH.gguf", "file:PATH.gguf", "dir:PATH", '
    '"builtin:tiny", "builtin:tiny-hf", "builtin:tiny-embedding", "builtin:tiny-rerank" or "builtin:tiny-thinking"'
)
_ADDRESS_HINT = 'write "https://HOST/PATH/NAME.gguf", without a user; of a page of Hugging Face "hf:ORG/REPO:QUANT"'
_HINTS = (
    (r"[/~.]", 'write "file:PATH.gguf" for a file on this machine, or "dir:PATH" for a folder'),
    (r"[^/\s:]+/[^/\s]+$", 'of Hugging Face write "hf:ORG/REPO:QUANT", or "hf:ORG/REPO@REVISION" for a folder'),
    (r"(?i).+\.gguf$", 'write "file:" before it: "file:PATH.gguf"'),
)
"""Forms in which others write a source, and what to write here."""
_HUB_HINT = 'write "hf:ORG/REPO:QUANT", or "hf:ORG/REPO@REVISION" for a folder'


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One file of a model of several: where it is, its content's sha256 and, where it is known before, its bytes."""

    file: str
    sha256: str
    size: int | None = None

    @property
    def filename(self) -> str:
        """Its name without a folder."""
        return self.file.rpartition("/")[2]


def model_source(value: str) -> str:
    """A well-formed source, or a refusal in our words."""
    kind, _, rest = value.partition(":")
    check = _CHECKS.get(kind)
    if check is None:
        raise refusal("not a source of a model", next((hint for form, hint in _HINTS if re.match(form, value)), _HINT))
    check(rest)
    return value


def _check_builtin(name: str) -> None:
    if name not in BUILTIN_MODELS:
        raise refusal("not a built-in model", did_you_mean(name, BUILTIN_MODELS, always=True))


def _check_file(path: str) -> None:
    if not path.endswith(".gguf"):
        raise refusal("not a model file that an engine here can read", 'write "file:PATH.gguf"')


def _check_folder(path: str) -> None:
    if not path.strip():
        raise refusal("not a folder", 'write "dir:PATH"')


def _check_hub(place: str) -> None:
    source = f"hf:{place}"
    if not (re.fullmatch(_HUB, source, re.ASCII) or re.fullmatch(_HUB_FOLDER, source, re.ASCII)):
        raise refusal("not a model of Hugging Face", _HUB_HINT)
    if _is_folder_with_colon(source):
        repository, revision = hub_place(source)
        hint = f'did you mean "@"? Write "hf:{repository}@{revision}"'
        raise refusal('":" names a GGUF, and this is a folder of weights, which is named by its revision', hint)


def _refuse_http(_address: str) -> None:
    raise refusal("anybody on the way could read and change what comes over http", 'write "https://…"')


def _check_https(address: str) -> None:
    url = f"https:{address}"
    if not (re.fullmatch(_URL, url, re.ASCII) and is_plain_filename(filename_of(url))):
        raise refusal("not the address of a model's file", _ADDRESS_HINT)


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "builtin": _check_builtin,
    "file": _check_file,
    "dir": _check_folder,
    "hf": _check_hub,
    "http": _refuse_http,
    "https": _check_https,
}
"""What refuses the rest of a source, by the kind that stands before its colon."""


def _is_folder_with_colon(source: str) -> bool:
    """Whether the names after ``hf:`` and ``:`` are those of weights that no GGUF holds, such as 6.0bpw of EXL3."""
    found = re.fullmatch(_HUB, source, re.ASCII)
    if found is None or "gguf" in found[1].lower():
        return False
    repository, quantisation = found[1], found[2]
    # Repositories with fp8 in their name have files of GGUF, too; those of the other formats have not.
    if format_by_name(repository) not in (None, "fp8") or format_by_name(quantisation) is not None:
        return True
    flags = re.ASCII | re.IGNORECASE
    return bool(re.search(_BITS_PER_WEIGHT, quantisation, flags)) and not re.search(_GGUF_TYPE, quantisation, flags)


def hub_place(source: str) -> tuple[str, str]:
    """Repository and quantisation of an ``hf:`` source."""
    found = re.fullmatch(_HUB, source, re.ASCII)
    if found is None:
        raise ValueError(source)
    return found[1], found[2]


def hub_revision(source: str) -> tuple[str, str]:
    """Repository and branch, tag or commit of an ``hf:`` source that is a folder."""
    found = re.fullmatch(_HUB_FOLDER, source, re.ASCII)
    if found is None:
        raise ValueError(source)
    return found[1], found[2]


def is_folder(source: str) -> bool:
    """Whether the source gives a folder with many files of one model, not a GGUF."""
    return source == TINY_HF or source.startswith("dir:") or re.fullmatch(_HUB_FOLDER, source, re.ASCII) is not None


def format_of_source(source: str) -> str | None:
    """The format that the source itself tells; None for a folder here, and for a repository that hides it."""
    if source.startswith("dir:"):
        return None
    if source == TINY_HF:
        return PLAIN
    return format_by_name("@".join(hub_revision(source))) if is_folder(source) else GGUF


def filename_of(url: str) -> str:
    """The name that a file has at its address."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def is_plain_filename(name: str) -> bool:
    """Whether a model's file can bear the name everywhere: in a manifest, in a unit and on a command line."""
    return re.fullmatch(_FILENAME, name, re.ASCII) is not None


def is_inside(name: object) -> bool:
    """Whether it can be the place of a file in a repository: names with slashes between, none of which leads up."""
    if not isinstance(name, str) or len(name) > _LONGEST_PLACE:
        return False
    return not any(part in ("", ".", "..") for part in name.split("/"))


def part_count(filename: str) -> int:
    """In how many files the model of this one is: 3 of "x-00001-of-00003.gguf", 1 of a name that says nothing."""
    numbers = re.search(_PART, filename)
    if numbers is None:
        return 1
    part, count = int(numbers[1]), int(numbers[2])
    return count if 1 <= part <= count <= MOST_PARTS else 1


def part_names(filename: str) -> list[str]:
    """The names of all files of the model of this one, in their order; only itself where its name says nothing.

    An engine is given the first, and finds the others beside it by their names.
    """
    count = part_count(filename)
    if count == 1:
        return [filename]
    stem = re.sub(_PART, "", filename)
    return [f"{stem}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1)]


def whole_stem(filename: str) -> str:
    """The name without its ending, and without what tells one part from another."""
    return re.sub(_PART, "", filename).removesuffix(".gguf")
