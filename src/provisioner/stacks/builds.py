"""What a wheel was built for, as far as its name says it: Python, platform, CUDA, torch, the C++ ABI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

Backend = Literal["cuda", "cpu", "rocm", "xpu", ""]

TORCH = "torch"
MODULES = {
    "causal-conv1d": ("causal_conv1d_cuda",),
    "exllamav2": ("exllamav2_ext",),
    "exllamav3": ("exllamav3_ext",),
    "flash-attn": ("flash_attn_2_cuda",),
    "flash-attn-3": ("flash_attn_3._C",),
    "mamba-ssm": ("selective_scan_cuda",),
    "torchaudio": ("torchaudio.lib._torchaudio",),
    "torchvision": ("torchvision._C",),
    "vllm": ("vllm._C",),
    "xformers": ("xformers._C",),
}
"""Packages that are compiled against torch, and the compiled modules that show whether one loads."""
LINKED = frozenset(
    "apex auto-gptq autoawq autoawq-kernels deepspeed detectron2 fbgemm-gpu fbgemm-gpu-genai gptqmodel "  # noqa: SIM905
    "gsplat natten nvdiffrast pyg-lib pytorch3d sgl-kernel torch-cluster torch-scatter torch-sparse torch-spline-conv "
    "torchao torchcodec torchtext transformer-engine-torch".split()
)
"""Packages that are compiled against torch, too; metadata of several of them does not ask for it.

Their wheels without code are not."""
UNLINKED = frozenset({"bitsandbytes", "numpy", "safetensors", "sentencepiece", "tokenizers", "triton"})
"""Compiled packages of such sets that are known not to be linked with torch, whether or not they ask for it."""

# PEP 440 turns "-" and "_" of a local label into ".", and makes it lower case.
_CUDA = re.compile(r"(?:^|\.)cu(\d{2})(\d?)(?=torch|\.|$)")
_OTHER = re.compile(r"(?:^|\.)(cpu|rocm|xpu)(?=torch|[\d.]|$)")
_ROCM = re.compile(r"(?:^|\.)rocm(?:(\d{1,2})\.|(\d))")
_TORCH = re.compile(r"(?:^|\d|\.)torch(\d+)\.(\d+)(?:\.\d+)?(\.?(?:andhigher|orhigher|andlater|orlater))?")
_NVIDIAS = re.compile(r"(?:^|\.)nv\d+(?:\.|$)")
_ABI = re.compile(r"cxx11abi(true|false)")


class WheelNameError(ValueError):
    """A name that is no wheel's; its text says why."""


@dataclass(frozen=True, slots=True)
class Build:
    """A wheel's name understood; what the name does not say is None, empty, or without tags for a pin without a file.

    ``cuda``: major and, where it is said, minor. ``rocm``: its major version. ``torch``: major and minor of the torch
    that it was built for; ``and_higher``: for later ones, too.
    """

    package: str
    version: Version
    tags: frozenset[Tag] = frozenset()
    cuda: tuple[int, int | None] | None = None
    backend: Backend = ""
    torch: tuple[int, int] | None = None
    cxx11abi: bool | None = None
    file: str = ""
    rocm: int | None = None
    and_higher: bool = False

    @property
    def is_nvidias(self) -> bool:
        """Whether NVIDIA built it for its containers, of a commit between releases (``2.5.0a0+872d972e41.nv24.9``)."""
        return _NVIDIAS.search(self.version.local or "") is not None

    @property
    def is_compiled(self) -> bool:
        """Whether it brings machine code: False for a wheel that serves every machine."""
        return not self.tags or any(tag.platform != "any" for tag in self.tags)

    @property
    def is_linked(self) -> bool:
        """Whether it is, or has to become, code that is compiled against torch."""
        is_known = self.package in MODULES or (self.package in LINKED and self.is_compiled)
        return is_known or self.torch is not None or self.cxx11abi is not None


def build_of(name: str) -> Build:
    """What a wheel's file name, path or address says; ``WheelNameError`` for one that is no wheel's."""
    file = unquote(name.partition("#")[0].partition("?")[0].replace("\\", "/").rpartition("/")[2])
    try:
        package, version, _, tags = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise WheelNameError(str(error)) from error
    return _labelled(package, version, tags, file)


def pinned_build(name: str, version: str) -> Build:
    """What a pin without a file says (``torch==2.9.0+cu128``); ``WheelNameError`` for a version that is none."""
    try:
        return _labelled(canonicalize_name(name), Version(version), frozenset(), "")
    except InvalidVersion as error:
        raise WheelNameError(f"{version} is no version of {name}") from error


def _labelled(package: str, version: Version, tags: frozenset[Tag], file: str) -> Build:
    label = version.local or ""
    cuda, other, torch, abi, rocm = (one.search(label) for one in (_CUDA, _OTHER, _TORCH, _ABI, _ROCM))
    return Build(
        package,
        version,
        tags,
        cuda=(int(cuda[1]), int(cuda[2]) if cuda[2] else None) if cuda else None,
        backend="cuda" if cuda else _backend(other),
        torch=(int(torch[1]), int(torch[2])) if torch else None,
        cxx11abi=abi[1] == "true" if abi else None,
        file=file,
        rocm=int(rocm[1] or rocm[2]) if rocm else None,
        and_higher=bool(torch and torch[3]),
    )


def _backend(found: re.Match[str] | None) -> Backend:
    names: dict[str, Backend] = {"cpu": "cpu", "rocm": "rocm", "xpu": "xpu"}
    return names[found[1]] if found else ""
