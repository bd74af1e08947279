"""Text files of this machine that options of services name, read when a lab's file is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from provisioner.catalog import Catalog, Content
from provisioner.labfile.spec import Spec
from provisioner.tls.certificates import certificates_in
from provisioner.values.address import Address
from provisioner.values.declared import Problem
from provisioner.values.plain_data import python_tree
from provisioner.values.regular_files import text_of

FILE, FILES = "file", "files"
"""The kinds of references to such a file, and to several, which their service knows by their names."""
MOST_BYTES = 1_000_000
MOST_FILES, MOST_BYTES_OF_SEVERAL = 50, 200_000
"""How many an option may list, and how large each of them may be."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
"""The name of a file that any service may be given."""
HINT = "Name a text file of this machine."
READERS: Mapping[Content, tuple[Callable[[str], object], str]] = {
    "certificates": (certificates_in, "Name a file of certificates in PEM form, such as fullchain.pem."),
    "python": (python_tree, "Correct it, or name a file of Python."),
}
"""By what a file holds: what raises ``ValueError`` where it does not, and what to do then."""


@dataclass(frozen=True, slots=True)
class Named:
    """A file that an option names; ``place``: which of several it is, None where the option names one."""

    address: Address
    option: str
    holds: Content
    written: str
    place: int | None = None

    @property
    def key(self) -> str:
        """By what its text is found."""
        return self.option if self.place is None else f"{self.option}.{self.place}"

    @property
    def most_bytes(self) -> int:
        """How large it may be."""
        return MOST_BYTES if self.place is None else MOST_BYTES_OF_SEVERAL

    def problem(self, message: str, hint: str) -> Problem:
        """Something wrong with it."""
        path: tuple[str | int, ...] = (
            "containers",
            self.address.container,
            "services",
            self.address.service,
            self.option,
        )
        return Problem(path if self.place is None else (*path, self.place), message, hint)


def read_texts(lab_file: Path, spec: Spec, catalog: Catalog) -> tuple[dict[Address, dict[str, str]], list[Problem]]:
    """What is in each, by services and options, and a problem for each that cannot be used.

    A file that does not hold what its role's page says is none of them: a container gets nothing else of this machine.
    What is not an absolute path begins at the folder of the lab's file. Of several each has a name of its own.
    """
    texts: dict[Address, dict[str, str]] = {}
    unusable: list[Problem] = []
    seen: dict[tuple[Address, str, str], Named] = {}
    for named in _named(spec, catalog):
        file = lab_file.resolve().parent / Path(named.written).expanduser()
        problem = _name_problem(named, seen)
        if problem is None:
            read, hint = READERS[named.holds]
            try:
                text = text_of(file, named.most_bytes)
                read(text)
                texts.setdefault(named.address, {})[named.key] = text
            except (OSError, UnicodeDecodeError) as error:
                said = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
                problem = named.problem(f"{file} cannot be read: {said}", HINT)
            except ValueError as error:
                problem = named.problem(f"{named.written}: {error}", hint)
        if problem is not None:
            unusable.append(problem)
    return texts, unusable


def _name_problem(named: Named, seen: dict[tuple[Address, str, str], Named]) -> Problem | None:
    """Why a service cannot be given a file of that name beside the others; None where it can."""
    if named.place is None:
        return None
    if named.place >= MOST_FILES:
        return named.problem(f"there are more than {MOST_FILES} files", "Leave some of them out.")
    name = PurePath(named.written).name
    if not NAME.fullmatch(name):
        hint = 'Call it by letters, digits, "_", "-" and ".", beginning with none of the last two.'
        return named.problem(f"{name!r} is no name that the file of a service may have", hint)
    first = seen.setdefault((named.address, named.option, name), named)
    if first is not named:
        return named.problem(f"{named.written} has the name of {first.written}", "Give one of them another name.")
    return None


def _named(spec: Spec, catalog: Catalog) -> Iterator[Named]:
    """Each file that an option names, in the order of the file."""
    for container, page in spec.containers.items():
        for role, service in page.services.items():
            for option, reference in catalog.services[role].references.items():
                written = service.options.get(option)
                address = Address.of(container, role)
                if reference.holds is None:
                    continue
                if reference.kind == FILE and written is not None:
                    yield Named(address, option, reference.holds, written)
                elif reference.kind == FILES:
                    for place, one in enumerate(written or ()):
                        yield Named(address, option, reference.holds, one, place)
