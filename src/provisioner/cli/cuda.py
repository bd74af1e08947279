"""The verbs of CUDA's headers: ``cuda check fix revert``; they need no file and no lab."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.options import Function, option, verb
from provisioner.cli.session import Session
from provisioner.errors import ExitCode
from provisioner.events import Diagnostic

if TYPE_CHECKING:  # imported when a verb looks
    from provisioner.cuda.look import Look

FOLDER = click.Path(file_okay=False, path_type=Path)


def _version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    from provisioner.cuda.glibc import version_of

    version = version_of(value) if value else None
    if value and version is None:
        raise click.BadParameter(f"{value!r} is no version of glibc, such as 2.42.")
    return version


def toolkit_words(function: Function) -> Function:
    """The positional toolkit and the glibc that is meant: the function gets ``look`` (``Look``)."""

    @click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
    @option("--glibc", metavar="X.Y", callback=_version, help="The glibc to agree with, instead of this machine's.")
    @wraps(function)
    def call(*args: Any, folder: Path, glibc: tuple[int, int] | None, **rest: Any) -> Any:
        from provisioner.cuda.look import look_at

        return function(*args, look=look_at(folder, glibc), **rest)

    return call


@click.group()
def cuda() -> None:
    """Mend CUDA's headers where glibc declares the same functions otherwise.

    DIR is the toolkit's root, such as /usr/local/cuda, or its include directory.
    """


@cuda.command()
@verb
@toolkit_words
@option("--detailed-exitcode", is_flag=True, help="Exit with 2 when the headers have to be fixed.")
def check(session: Session, look: Look, *, detailed_exitcode: bool) -> int:
    """Say whether the toolkit's headers agree with glibc; change nothing."""
    from provisioner.cuda.look import EDITED

    if look.headers.edits:
        _say(session, look, _EDITED[bool(look.conflicts)])
        session.console.emit(Diagnostic("warning", "The headers were edited by hand", resolution=EDITED))
    else:
        _say(session, look, _PENDING if look.is_pending else _NOTHING)
    return ExitCode.CHANGES_PENDING if detailed_exitcode and look.is_pending else ExitCode.DONE


@cuda.command()
@verb
@toolkit_words
@option("--overlay", type=FOLDER, metavar="OUT", help="Edit nothing: write a folder that nvcc is told to read first.")
def fix(session: Session, look: Look, *, overlay: Path | None) -> int:
    """Make the toolkit's headers agree with glibc, or write an overlay that does.

    The edit is guarded by glibc's version, so the toolkit goes on to work everywhere it worked; revert takes it back.
    """
    from provisioner.cuda.toolkit import write_headers

    look.refuse_edited("fix")
    if overlay:
        look.refuse_half()
    if not look.is_pending:
        return _say(session, look, _NOTHING)
    if overlay:
        return _overlay(session, look, overlay)
    changed = write_headers(look.toolkit, look.headers.mended)
    return _say(session, look, f"Fixed {_names(changed)}; provision cuda revert DIR puts them back.", changed=changed)


@cuda.command()
@verb
@toolkit_words
def revert(session: Session, look: Look) -> int:
    """Take the edit of fix out again: the headers are byte for byte what they were."""
    from provisioner.cuda.toolkit import write_headers

    look.refuse_edited("revert")
    if look.headers.headers == look.headers.original:
        return _say(session, look, "Nothing to revert: fix has not edited these headers.")
    changed = write_headers(look.toolkit, look.headers.original)
    return _say(session, look, f"Reverted {_names(changed)}.", changed=changed)


_NOTHING = "Nothing to do."
_PENDING = "To be fixed: provision cuda fix DIR, or with --overlay OUT to leave the toolkit as it is."
_EDITED = {
    True: "Does not compile like that.",
    False: "Compiles with this glibc; whether it does with another one, --glibc X.Y says.",
}


def _overlay(session: Session, look: Look, folder: Path) -> int:
    from provisioner.cuda.overlay import FILE, environment_line, write_overlay

    written = write_overlay(folder)
    line = environment_line(folder)
    text = (
        f"{'Wrote' if written else 'Kept'} {folder / FILE}; remove the folder to undo it.\n"
        f"Set this where nvcc or cmake is run, at configure and at build time:\n{line}"
    )
    return _say(session, look, text, changed=(folder / FILE,) if written else (), environment=line)


def _say(session: Session, look: Look, outcome: str, *, changed: tuple[Path, ...] = (), environment: str = "") -> int:
    """What was seen before anything was done, and what came of it."""
    from provisioner.report.cuda import look_content, look_text

    more = {"environment": environment} if environment else {}
    text = f"{look_text(look, session.console.style)}\n{outcome}"
    session.console.result(text, **look_content(look), changed=changed, **more)
    return ExitCode.DONE


def _names(paths: tuple[Path, ...]) -> str:
    return " and ".join(str(path) for path in paths)
