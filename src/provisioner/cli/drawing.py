"""Pictures that a verb writes where it is told to."""

from __future__ import annotations

from pathlib import Path

from provisioner.values.errors import InputError


def check_place(plot: Path) -> None:
    """Raise ``InputError`` before minutes are spent on a picture that has no place."""
    if not plot.absolute().parent.is_dir():
        raise InputError(f"Unable to write {plot}: there is no such folder", resolution="Name another file.")


def draw(plot: Path, picture: str) -> None:
    """Write a picture; raises ``InputError`` where that cannot be done."""
    try:
        plot.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InputError(f"Unable to write {plot}", details=str(error), resolution="Name another file.") from error
