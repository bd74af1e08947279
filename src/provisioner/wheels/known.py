"""The stacks that we know: ``data/stacks/<id>.yml``, each wheel with its address and, where it is known, its sha256."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator

from provisioner.values import paths
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.plain_data import yaml_value
from provisioner.values.regular_files import text_of
from provisioner.wheels.builds import TORCH, Build, build_of, completed, is_python
from provisioner.wheels.rule import Part

EXLLAMA = ("exllamav3", "exllamav2")
"""The packages with which tabbyAPI serves models."""
COLUMNS = (TORCH, "triton", *EXLLAMA, "flash-attn", "causal-conv1d", "flash-linear-attention")
"""What each stack for tabbyAPI has, or says why not."""
UNVERIFIED = "unverified"
"""Instead of a hash that could not be read from any source."""


def _python(text: str) -> str:
    if not is_python(text):
        raise ValueError(f"{text} is no version of Python such as 3.12")
    return text


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wheel(_Page):
    """A file of a package: its address, or its mere name where it is on the index, and its sha256 or ``UNVERIFIED``."""

    url: Annotated[str, StringConstraints(pattern=r"^(https://[^\s]+/)?[^\s/]+\.whl$")]
    sha256: Annotated[str, StringConstraints(pattern=rf"^([0-9a-f]{{64}}|{UNVERIFIED})$")]

    @property
    def build(self) -> Build:
        """What its name says; raises ``WheelNameError``."""
        return build_of(self.url)

    @property
    def is_on_index(self) -> bool:
        """Whether it is asked for by its version: the index that uv is told of says where it is."""
        return "://" not in self.url


class BuiltFor(_Page):
    """What wheels were built for and their names do not say: it was read in their metadata or their compiled files.

    ``torch``: "2.14", or "2.11+" for one that goes with later ones, too, as it asks torch for its stable ABI only.
    """

    torch: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\+?$")] = ""
    cuda: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")] = ""


class Package(_Page):
    """A package in one version, and its wheels: one for each Python, or one for all."""

    version: str
    built_for: BuiltFor = BuiltFor()
    wheels: Annotated[tuple[Wheel, ...], AfterValidator(lambda wheels: wheels or _refuse("it has no wheel"))]

    @property
    def builds(self) -> tuple[Build, ...]:
        """Its wheels as their names and ``built_for`` describe them; ``WheelNameError`` where both say the same."""
        told = self.built_for
        return tuple(completed(wheel.build, told.torch, told.cuda) for wheel in self.wheels)


class Tabby(_Page):
    """The commit of tabbyAPI that a stack serves, and through which of its backends."""

    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    backend: Literal["exllamav3", "exllamav2"]


class Stack(_Page):
    """Packages that belong together, for some Pythons.

    ``cuda`` and ``driver``: empty where it computes on the processor only. ``missing``: columns that it goes without,
    with the reasons; ``without``: what metadata asks for and nobody needs.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: str
    source: str
    tabbyapi: Tabby | None = None
    cuda: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+$")] = ""
    driver: Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)+$")] = ""
    python: tuple[Annotated[str, AfterValidator(_python)], ...]
    packages: Mapping[str, Package]
    missing: Mapping[str, str] = {}
    without: tuple[str, ...] = ()
    notes: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Stack:
        if bool(self.cuda) != bool(self.driver):
            raise ValueError("cuda and driver belong together: name both, or neither for a stack without a card")
        self._check_columns()
        for name, package in self.packages.items():
            _check_wheels(name, package, has_card=bool(self.cuda))
        return self

    def _check_columns(self) -> None:
        """Raise where it does not say of each column why it goes without, if it has to."""
        unknown = self.missing.keys() - set(COLUMNS)
        if unknown:
            raise ValueError(f"missing has {', '.join(sorted(unknown))}, which is no column")
        owed = set(COLUMNS) if self.explains_columns else set()
        unsaid = owed - self.packages.keys() - self.missing.keys()
        said_twice = self.packages.keys() & self.missing.keys()
        unclear = ", ".join(sorted(unsaid | said_twice))
        if unclear:
            raise ValueError(f"each of {unclear} is to be in packages or, with the reason, in missing")

    @property
    def explains_columns(self) -> bool:
        """Whether it has to say of each column that it goes without why: it is for tabbyAPI, or has what that needs."""
        return self.tabbyapi is not None or not self.packages.keys().isdisjoint(EXLLAMA)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Its packages, to be judged."""
        return tuple(Part(name, package.builds) for name, package in self.packages.items())

    @property
    def serves(self) -> Tabby | None:
        """What a service that is installed with it runs; None for a stack that serves nothing."""
        return self.tabbyapi

    @property
    def unverified(self) -> tuple[str, ...]:
        """The files whose hash nobody has told us."""
        files: list[str] = []
        for package in self.packages.values():
            files += [wheel.build.file for wheel in package.wheels if wheel.sha256 == UNVERIFIED]
        return tuple(files)


def _check_wheels(name: str, package: Package, *, has_card: bool) -> None:
    """Raise for a wheel that is another package's, that may be any file, or that nothing holds against a driver."""
    is_told = package.built_for != BuiltFor()
    for wheel, build in zip(package.wheels, package.builds, strict=True):
        if (build.package, str(build.version)) != (name, package.version):
            raise ValueError(f"{build.file} is no wheel of {name} {package.version}")
        if is_told and wheel.sha256 == UNVERIFIED:
            raise ValueError(f"built_for of {name} needs the hash of each of its wheels")
        if build.cuda is not None and not has_card:
            raise ValueError(f"{build.file} is built for CUDA {build.cuda[0]}: name cuda and driver, or take another")


def known_stacks(folder: Path | None = None) -> dict[str, Stack]:
    """All stacks by their ids, in the order of the ids; ``ProvisionError`` names the page that is wrong."""
    pages = sorted((folder or paths.data() / "stacks").glob("*.yml"))
    return {page.stem: _stack(page) for page in pages}


def stacks_of(file: Path) -> dict[str, Stack]:
    """The stacks that a lab's file can name: those that are known, and those in ``stacks/`` beside the file."""
    return {**known_stacks(), **known_stacks(file.parent / "stacks")}


def known_stack(name: str) -> Stack:
    """The stack of that id; ``InputError`` lists those that there are."""
    known = known_stacks()
    if name not in known:
        there = f"There are: {', '.join(known)}"
        raise InputError(f"Unable to find stack {name}", details=there, resolution="See: provision stacks")
    return known[name]


def is_stack_name(text: str) -> bool:
    """Whether it could be the id of a stack: no path, no file."""
    return re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", text) is not None


def _stack(page: Path) -> Stack:
    try:
        content = yaml_value(text_of(page))
        return Stack(**{**content, "id": page.stem})
    except (OSError, TypeError, ValueError) as error:
        raise ProvisionError(
            f"Unable to read the page of stack {page.stem}", details=str(error), resolution=f"Correct {page}"
        ) from error


def _refuse(why: str) -> tuple[Wheel, ...]:
    raise ValueError(why)
