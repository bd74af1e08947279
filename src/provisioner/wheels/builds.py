"""The build of a wheel, as far as its name tells it: Python, platform, CUDA, torch, the C++ ABI."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal
from urllib.parse import unquote

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

# Names of wheels: what they say, and what is known of packages whose names are silent.

Backend = Literal["cuda", "cpu", "rocm", "xpu", ""]

TORCH = "torch"
MODULES = {
    "causal-conv1d": ("causal_conv1d_cuda",),
    "exllamav2": ("exllamav2_ext",),
    "exllamav3": ("exllamav3_ext",),
    "flash-attn": ("flash_attn_2_cuda",),
    "flash-attn-3": ("flash_attn_3._C",),
    "mamba-ssm": ("selective_scan_cuda",),
    "vllm": ("vllm.fs_io_C",),
    "xformers": ("xformers._C",),
}
"""Packages that are compiled against torch, and the compiled modules that show whether one loads.

Of vLLM a module that every build has and every machine can load: importing its kernels for the processor
(``vllm._C``, ``vllm._C_AVX512``) ends Python on one without AVX-512, and those for CUDA
(``vllm._C_stable_libtorch``) need the driver's library.
"""
LINKED = frozenset(
    "apex auto-gptq autoawq autoawq-kernels deepspeed detectron2 fbgemm-gpu fbgemm-gpu-genai gptqmodel "  # noqa: SIM905
    "gsplat natten nvdiffrast pyg-lib pytorch3d sgl-kernel torch-cluster torch-scatter torch-sparse torch-spline-conv "
    "torchao torchaudio torchcodec torchtext torchvision transformer-engine-torch".split()
)
"""Packages that are compiled against torch, too; metadata of several of them does not ask for it.

Their wheels without code are not. Those of torchaudio and torchvision are libraries that torch loads: Python cannot
import them.
"""
SILENT = frozenset("torchao torchaudio torchcodec torchtext torchvision vllm xformers".split())  # noqa: SIM905
"""Packages of which no wheel has ever said in its name for which torch it was built."""
UNLINKED = frozenset({"bitsandbytes", "numpy", "safetensors", "sentencepiece", "tokenizers", "triton"})
"""Compiled packages of such sets that are known not to be linked with torch, whether or not they ask for it."""

# PEP 440 turns "-" and "_" of a local label into ".", and makes it lower case.
_CUDA = re.compile(r"(?:^|\.|torch[\d.]+)cu(\d{2})(\d?)(?=torch|\.|$)")
_OTHER = re.compile(r"(?:^|\.)(cpu|rocm|xpu)(?=torch|[\d.]|$)")
_ROCM = re.compile(r"(?:^|\.)rocm(?:(\d{1,2})\.|(\d))")
_TORCH = re.compile(r"(?:^|\d|\.)torch(\d+)\.(\d+)(?:\.\d+)?(?P<later>\.?(?:andhigher|orhigher|andlater|orlater))?")
_TORCH_DIGITS = re.compile(r"(?:^|\d|\.)torch(\d)([3-9]|1\d)\d(?=cu|cxx|\.|$)")
"""A release without dots, with one digit for its patch: 280 is 2.8.0, 2100 is 2.10.0; 211 may be two of them."""
_NVIDIAS = re.compile(r"(?:^|\.)nv\d+(?:\.|$)")
_ABI = re.compile(r"cxx11abi(true|false)")
_VARIANT = re.compile(r"[^-]+-[^-]+-(?:\d[^-]*-)?(?:cp|py|pp|graalpy)[^-]*-[^-]+-[^-]+-[0-9A-Za-z._]+\.whl")
_BACKENDS: dict[str, Backend] = {"cpu": "cpu", "rocm": "rocm", "xpu": "xpu"}


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
        if self.package in MODULES:
            return True
        if self.package in LINKED and self.is_compiled:
            return True
        return self.torch is not None or self.cxx11abi is not None


def build_of(name: str) -> Build:
    """What a wheel's file name, path or address says; ``WheelNameError`` for one that is no wheel's."""
    file = unquote(name.partition("#")[0].partition("?")[0].replace("\\", "/").rpartition("/")[2])
    try:
        package, version, _, tags = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion) as error:
        if _VARIANT.fullmatch(file):
            message = f"{file} names a variant at its end (PEP 817), and such names are not read yet"
            raise WheelNameError(message) from error
        raise WheelNameError(str(error)) from error
    return _labelled(package, version, tags, file)


def pinned_build(name: str, version: str) -> Build:
    """What a pin without a file says (``torch==2.9.0+cu128``); ``WheelNameError`` for a version that is none."""
    try:
        return _labelled(canonicalize_name(name), Version(version), frozenset(), "")
    except InvalidVersion as error:
        raise WheelNameError(f"{version} is no version of {name}") from error


def completed(build: Build, torch: str = "", cuda: str = "") -> Build:
    """The wheel with what its name does not say: torch ("2.14"; "2.11+" for later ones, too) and CUDA ("13.0").

    ``WheelNameError`` where its name does say it.
    """
    told = build
    if torch:
        _check_unsaid(build, build.torch)
        release = torch.removesuffix("+")
        told = replace(told, torch=_pair(release), and_higher=release != torch)
    if cuda:
        _check_unsaid(build, build.backend)
        told = replace(told, cuda=_pair(cuda), backend="cuda")
    return told


def _check_unsaid(build: Build, of_name: object) -> None:
    if of_name:
        raise WheelNameError(f"{build.file} says in its name what it was built for")


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _labelled(package: str, version: Version, tags: frozenset[Tag], file: str) -> Build:
    """The wheel with all that its local label says ("+cu128torch2.9cxx11abiTRUE")."""
    label = version.local or ""
    torch, and_higher = _torch_in(label)
    return Build(
        package,
        version,
        tags,
        cuda=_cuda_in(label),
        backend=_backend_in(label),
        torch=torch,
        cxx11abi=_abi_in(label),
        file=file,
        rocm=_rocm_in(label),
        and_higher=and_higher,
    )


def _cuda_in(label: str) -> tuple[int, int | None] | None:
    match = _CUDA.search(label)
    if match is None:
        return None
    major, minor = match[1], match[2]
    return int(major), int(minor) if minor else None


def _backend_in(label: str) -> Backend:
    if _CUDA.search(label):
        return "cuda"
    match = _OTHER.search(label)
    return _BACKENDS[match[1]] if match else ""


def _torch_in(label: str) -> tuple[tuple[int, int] | None, bool]:
    """The release of torch, and whether later ones will do."""
    match = _TORCH.search(label) or _TORCH_DIGITS.search(label)
    if match is None:
        return None, False
    return (int(match[1]), int(match[2])), match.groupdict().get("later") is not None


def _abi_in(label: str) -> bool | None:
    match = _ABI.search(label)
    return match[1] == "true" if match else None


def _rocm_in(label: str) -> int | None:
    match = _ROCM.search(label)
    return int(match[1] or match[2]) if match else None


# The Pythons that wheels are made for, and the wheels that one of them takes on one machine.

OLDEST, NEWEST = 8, 15
"""Minor versions of Python 3 that there are: a wheel with abi3 takes all that will come, too, and none is named."""
_PYTHON = re.compile(r"3\.(\d{1,2})(t?)")
_LEGACY = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
"""Old names of platforms, by the glibc 2.x that they mean (PEP 600)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where wheels are to run: its architecture as Linux names it, and its glibc."""

    architecture: str = "x86_64"
    glibc: tuple[int, int] = (2, 36)


DEBIAN_12 = Machine()
IMAGES = {
    "debian/12": ("3.11", DEBIAN_12),
    "debian/13": ("3.13", Machine(glibc=(2, 41))),
    "ubuntu/22.04": ("3.10", Machine(glibc=(2, 35))),
    "ubuntu/24.04": ("3.12", Machine(glibc=(2, 39))),
}
"""The Python and the machine of each image whose Python we know, by distribution and release."""


def machine_with(python: str) -> Machine:
    """The machine of the image that has this Python; Debian 12's where no image has it."""
    machines = dict(IMAGES.values())
    return machines.get(python, DEBIAN_12)


def is_python(text: str) -> bool:
    """Whether it is a version of Python as we write it: "3.12", "3.13t" for one without the global lock."""
    return _PYTHON.fullmatch(text) is not None


def every_python() -> tuple[str, ...]:
    """All versions that wheels could be for, oldest first."""
    return tuple(f"3.{minor}{mark}" for minor in range(OLDEST, NEWEST + 1) for mark in ("", "t"))


def takes(python: str, machine: Machine, build: Build) -> bool:
    """Whether that Python on that machine takes the wheel; a pin without a file is taken."""
    if not build.tags:
        return True
    return not build.tags.isdisjoint(_tags(python, machine))


def best_of(python: str, machine: Machine, builds: Iterable[Build]) -> Build | None:
    """The wheel that this Python prefers, None where it takes none."""
    rank = {tag: number for number, tag in enumerate(_ordered(python, machine))}
    best, best_rank = None, len(rank)
    for build in builds:
        build_rank = min((rank.get(tag, len(rank)) for tag in build.tags), default=len(rank))
        if build_rank < best_rank:
            best, best_rank = build, build_rank
    return best


def pythons_of(builds: Iterable[Build], machine: Machine) -> tuple[str, ...]:
    """The Pythons that take at least one of the wheels, oldest first."""
    wheels = tuple(builds)
    return tuple(python for python in every_python() if _takes_any(python, machine, wheels))


def _takes_any(python: str, machine: Machine, builds: Iterable[Build]) -> bool:
    return any(takes(python, machine, build) for build in builds)


def named_pythons(builds: Iterable[Build]) -> tuple[str, ...]:
    """The Pythons that the wheels name, whatever machine they are for."""
    pythons = set()
    for build in builds:
        for tag in build.tags:
            match = re.fullmatch(r"cp3(\d{1,2})", tag.interpreter)
            if match is not None:
                pythons.add(f"3.{match[1]}")
    return tuple(sorted(pythons))


@cache
def _tags(python: str, machine: Machine) -> frozenset[Tag]:
    return frozenset(_ordered(python, machine))


@cache
def _ordered(python: str, machine: Machine) -> tuple[Tag, ...]:
    """What that Python takes, what it prefers first."""
    match = _PYTHON.fullmatch(python)
    if match is None:
        raise ValueError(f"{python} is no version of Python such as 3.12")
    minor, mark = match[1], match[2]
    version, platforms = (3, int(minor)), _platforms(machine)
    interpreter = f"cp3{minor}"
    own = cpython_tags(version, [f"{interpreter}{mark}"], platforms)
    return (*own, *compatible_tags(version, interpreter, platforms))


def _platforms(machine: Machine) -> list[str]:
    major, newest = machine.glibc
    names = [f"manylinux_{major}_{minor}" for minor in range(newest, 4, -1)]
    names += [name for name, minor in _LEGACY.items() if minor <= newest]
    return [f"{name}_{machine.architecture}" for name in (*names, "linux")]
