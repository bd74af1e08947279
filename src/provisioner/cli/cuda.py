"""The verbs of CUDA's headers: ``cuda check fix revert``; they need no file and no lab."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.options import Function, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:  # imported when a verb looks
    from provisioner.cuda.look import Look

    Looks = tuple[Look, ...]

FOLDER = click.Path(file_okay=False, path_type=Path)
_NOTHING = "Nothing to do."
_PENDING = "To be fixed: provision cuda fix DIR, or with --overlay OUT to leave the toolkit as it is."
_BROKEN = "Does not compile like that."
_EDITED = "Compiles with this glibc; whether it does with another one, --glibc X.Y says."


def _version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    from provisioner.cuda.glibc import version_of

    version = version_of(value) if value else None
    if value and version is None:
        raise click.BadParameter(f"{value!r} is no version of glibc, such as 2.42.")
    return version


def toolkit_words(function: Function) -> Function:
    """The positional toolkit and the glibc that is meant: the function gets ``looks`` (a ``Look`` a folder)."""

    @click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
    @option("--glibc", metavar="X.Y", callback=_version, help="The glibc to agree with, instead of this machine's.")
    @wraps(function)
    def call(*args: Any, folder: Path, glibc: tuple[int, int] | None, **rest: Any) -> Any:
        from provisioner.cuda.look import look_at

        return function(*args, looks=look_at(folder, glibc), **rest)

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
def check(session: Session, looks: Looks, *, detailed_exitcode: bool) -> int:
    """Say whether the toolkit's headers agree with glibc; change nothing."""
    is_pending = any(look.is_pending for look in looks)
    is_refused = any(look.is_pending and look.headers.edits for look in looks)
    pending = _BROKEN if is_refused else _PENDING
    _say(session, looks, pending if is_pending else _nothing(looks))
    _warn(session, looks)
    return ExitCode.CHANGES_PENDING if detailed_exitcode and is_pending else ExitCode.DONE


@cuda.command()
@verb
@toolkit_words
@option("--overlay", type=FOLDER, metavar="OUT", help="Edit nothing: write a folder that nvcc is told to read first.")
def fix(session: Session, looks: Looks, *, overlay: Path | None) -> int:
    """Make the toolkit's headers agree with glibc, or write an overlay that does.

    The edit is guarded by glibc's version, so the toolkit goes on to work everywhere it worked; revert takes it back.
    """
    from provisioner.cuda.toolkit import write_headers

    for look in looks:
        if look.is_pending:
            look.refuse_edited("fix")
        if overlay:
            look.refuse_half()
    pending = [look for look in looks if look.is_pending]
    if not pending:
        _say(session, looks, _nothing(looks))
        _warn(session, looks)
        return ExitCode.DONE
    if overlay:
        return _overlay(session, looks, overlay)
    changed = tuple(path for look in pending for path in write_headers(look.toolkit, look.headers.mended))
    return _say(session, looks, f"Fixed {_names(changed)}; provision cuda revert DIR puts them back.", changed=changed)


@cuda.command()
@verb
@toolkit_words
def revert(session: Session, looks: Looks) -> int:
    """Take the edit of fix out again: the headers are byte for byte what they were."""
    from provisioner.cuda.toolkit import write_headers

    ours = [look for look in looks if look.headers.is_ours]
    for look in ours:
        look.refuse_edited("revert")
    if not ours:
        return _say(session, looks, "Nothing to revert: fix has not edited these headers.")
    changed = tuple(path for look in ours for path in write_headers(look.toolkit, look.headers.original))
    return _say(session, looks, f"Reverted {_names(changed)}.", changed=changed)


def _nothing(looks: Looks) -> str:
    return f"{_NOTHING} {_EDITED}" if any(look.headers.edits for look in looks) else _NOTHING


def _warn(session: Session, looks: Looks) -> None:
    from provisioner.cuda.look import EDITED

    if any(look.headers.edits for look in looks):
        session.console.emit(Diagnostic("warning", "The headers were edited by hand", resolution=EDITED))


def _overlay(session: Session, looks: Looks, folder: Path) -> int:
    from provisioner.cuda.overlay import FILE, environment_line, write_overlay

    written = write_overlay(folder)
    line = environment_line(folder)
    text = (
        f"{'Wrote' if written else 'Kept'} {folder / FILE}; remove the folder to undo it.\n"
        f"Set this where nvcc or cmake is run, at configure and at build time:\n{line}"
    )
    return _say(session, looks, text, changed=(folder / FILE,) if written else (), environment=line)


def _say(session: Session, looks: Looks, outcome: str, *, changed: tuple[Path, ...] = (), environment: str = "") -> int:
    """What was seen before anything was done, and what came of it."""
    from provisioner.cuda.text import looks_content, looks_text

    more = {"environment": environment} if environment else {}
    text = f"{looks_text(looks, session.console.style)}\n{outcome}"
    session.console.result(text, **looks_content(looks), changed=changed, **more)
    return ExitCode.DONE


def _names(paths: tuple[Path, ...]) -> str:
    return " and ".join(str(path) for path in paths)
