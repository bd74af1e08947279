"""Text files of this machine that options of services name, read when a lab's file is opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from provisioner.catalog import Catalog
from provisioner.labfile.spec import Spec
from provisioner.values.address import Address
from provisioner.values.regular_files import text_of
from provisioner.values.state import Problem

FILE = "file"
"""The kind of a reference to such a file."""
MOST_BYTES = 1_000_000


def read_texts(lab_file: Path, spec: Spec, catalog: Catalog) -> tuple[dict[Address, dict[str, str]], list[Problem]]:
    """What is in each, by services and options, and a problem for each that cannot be read.

    What is not an absolute path begins at the folder of the lab's file.
    """
    texts: dict[Address, dict[str, str]] = {}
    unreadable: list[Problem] = []
    for address, option, written in _named(spec, catalog):
        file = lab_file.resolve().parent / Path(written).expanduser()
        try:
            text = text_of(file, MOST_BYTES)
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            place = ("containers", address.container, "services", address.service, option)
            unreadable.append(Problem(place, f"{file} cannot be read: {said}", "Name a text file of this machine."))
        else:
            texts.setdefault(address, {})[option] = text
    return texts, unreadable


def _named(spec: Spec, catalog: Catalog) -> Iterator[tuple[Address, str, str]]:
    """Each option that names such a file: its service, its name and what is written."""
    for container, page in spec.containers.items():
        for role, service in page.services.items():
            for option, reference in catalog.services[role].references.items():
                written = service.options.get(option)
                if reference.kind == FILE and written is not None:
                    yield Address.of(container, role), option, written
