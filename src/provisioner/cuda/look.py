"""What there is to see before anything is done: the toolkit, its headers, the glibc that they have to agree with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provisioner.cuda.glibc import Version, machine_glibc
from provisioner.cuda.headers import Examination, examine
from provisioner.cuda.toolkit import Toolkit, read_toolkits
from provisioner.values.errors import PreflightError


@dataclass(frozen=True, slots=True)
class Look:
    """A toolkit, its headers examined, and the glibc: this machine's, or another one that was ``asked`` for."""

    toolkit: Toolkit
    headers: Examination
    glibc: Version
    asked: bool

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The functions on which toolkit and glibc disagree."""
        return self.headers.conflicts(self.glibc)

    @property
    def is_pending(self) -> bool:
        """Whether the headers have to be mended before they compile."""
        return self.headers.is_pending(self.glibc)

    def refuse_edited(self, verb: str) -> None:
        """Raise ``PreflightError`` when there is something to do and somebody edited the headers by hand.

        What they were cannot be known. Where they compile as they are, and nothing of ours is in them, they may stay.
        """
        if self.headers.edits and (self.is_pending or self.headers.is_ours):
            raise PreflightError(
                f"Unable to {verb} the headers in {self.toolkit.include}: they were edited by hand; nothing was done",
                details="\n".join(self.headers.edits),
                resolution=EDITED,
            )

    def refuse_half(self) -> None:
        """Raise ``PreflightError`` when a run was interrupted: an overlay does not help half-edited headers."""
        if self.headers.state == "half":
            raise PreflightError(
                f"Unable to leave the headers in {self.toolkit.include} as they are: an edit of them was interrupted",
                resolution="Run: provision cuda revert DIR",
            )


EDITED = (
    "Take those changes out again, or reinstall the package that owns the headers (dpkg -S FILE, rpm -qf FILE); "
    "then run: provision cuda fix DIR"
)


def look_at(folder: Path, glibc: Version | None = None) -> tuple[Look, ...]:
    """Read each folder of headers of the toolkit in ``folder``, the one that is read first before the others.

    ``PreflightError`` when it is none, or this machine has no glibc.
    """
    version = glibc or machine_glibc()
    if version is None:
        raise PreflightError(
            "Unable to tell the version of glibc: this machine has another C library",
            resolution="Name the version that is compiled against: --glibc 2.42",
        )
    toolkits = read_toolkits(folder)
    return tuple(Look(one, examine(one.headers), version, asked=glibc is not None) for one in toolkits)
