"""The verbs of wheel stacks: ``stacks``, ``stacks check`` and ``stacks lock``; they need no file and no lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.options import option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

if TYPE_CHECKING:  # imported when a verb judges
    from provisioner.wheels.known import Stack
    from provisioner.wheels.rule import Judgement, Part

LIST = click.Path(exists=True, dir_okay=False, path_type=Path)
OWN = "these wheels"
"""How a set is called that is no stack of ours."""


def _python(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    from provisioner.wheels.builds import is_python

    if value and not is_python(value):
        raise click.BadParameter(f"{value!r} is no version of Python, such as 3.12.")
    return value or ""


def _version(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(value)) if value else ""
    except InvalidVersion as error:
        raise click.BadParameter(f"{value!r} is no version.") from error


@click.group(invoke_without_command=True)
@verb
@click.pass_context
def stacks(ctx: click.Context, session: Session) -> int:
    """Print the wheel stacks that are known: torch and what is compiled against it, with a verdict for each."""
    if ctx.invoked_subcommand is not None:
        return ExitCode.DONE
    from provisioner.wheels.known import known_stacks
    from provisioner.wheels.text import stack_content, table_text

    found = list(known_stacks().values())
    judged = {one.id: _judged(one) for one in found}
    text = table_text(found, judged, session.console.style)
    session.console.result(text, stacks=[stack_content(one, judged[one.id]) for one in found])
    return ExitCode.DONE


@stacks.command()
@verb
@click.argument("what", nargs=-1, metavar="[STACK | WHEEL... | requirements.txt | pylock.toml]")
@option("--python", callback=_python, metavar="X.Y", help="The Python that is to run them (default: one that fits).")
@option("--torch", callback=_version, metavar="VERSION", help="The torch beside them, such as 2.9.0+cu128.")
@option("--driver", callback=_version, metavar="VERSION", help="The host's NVIDIA driver, such as 580.95.05.")
def check(session: Session, what: tuple[str, ...], *, python: str, torch: str, driver: str) -> int:
    """Judge wheels by their names and metadata, before anything is downloaded.

    Exit code 0: they fit; 3: they do not, or nobody can know; 64: something is unreadable. Without arguments every
    known stack is judged. Wheels may be files, addresses or mere names.
    """
    from provisioner.wheels.rule import Fit, worst
    from provisioner.wheels.text import judgement_content, judgement_text

    found = _sets(what, python, torch, driver)
    session.console.result(
        "\n\n".join(judgement_text(title, one, session.console.style) for title, one in found),
        fit=worst(one for _, one in found),
        judged=[judgement_content(title, one) for title, one in found],
    )
    return ExitCode.DONE if worst(one for _, one in found) is Fit.FITS else ExitCode.VERIFICATION_FAILED


@stacks.command()
@verb
@click.argument("name", metavar="STACK")
@option("--python", callback=_python, required=True, metavar="X.Y", help="The Python that is to run it.")
@option("--with", "lists", multiple=True, type=LIST, metavar="FILE", help="Requirements that are wanted besides.")
@option("--from", "source", default="", metavar="DIR|INDEX", help="Where all wheels are, instead of their own places.")
@option("--accept-unverified", is_flag=True, help="Download files without a known hash once, and freeze what comes.")
@option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where to write it.")
def lock(session: Session, name: str, *, output: Path | None, lists: tuple[Path, ...], **words: Any) -> int:
    """Find all wheels of a stack with their hashes, and write them as role torch_stack takes them.

    What its packages ask for is resolved (by uv) for that Python on the image that has it, and frozen with it.
    """
    from provisioner.wheels.builds import machine_with
    from provisioner.wheels.known import known_stack
    from provisioner.wheels.locking import LockRequest, locked
    from provisioner.wheels.text import lock_text

    extra = tuple(line for file in lists for line in file.read_text(encoding="utf-8").splitlines())
    stack = known_stack(name)
    wheels = locked(stack, LockRequest(extra=extra, machine=machine_with(words["python"]), **words))
    text = lock_text(stack.id, wheels)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    told = f"Wrote {len(wheels)} wheels to {output}." if output else text.rstrip()
    session.console.result(told, stack=stack.id, python=words["python"], packages=wheels)
    return ExitCode.DONE


def _sets(what: tuple[str, ...], python: str, torch: str, driver: str) -> list[tuple[str, Judgement]]:
    from provisioner.wheels.given import parts_given
    from provisioner.wheels.known import is_stack_name, known_stack, known_stacks
    from provisioner.wheels.rule import judge

    names = [one for one in what if is_stack_name(one)]
    if names and (len(names) < len(what) or torch):
        raise click.UsageError("A stack is judged as it is: name stacks, or wheels and lists.")
    if not what or names:
        chosen = [known_stack(name) for name in names] or list(known_stacks().values())
        return [(one.id, judgement) for one in chosen for judgement in _judged(one, python, driver)]
    parts = _beside(torch, parts_given(what, python))
    if not parts:
        raise InputError(
            f"Unable to judge {', '.join(what)}",
            details="Nothing there has to do with torch, and nothing is a wheel.",
            resolution="Name the wheels, or the list that also has torch.",
        )
    return [(OWN, judge(parts, python, driver=driver))]


def _judged(stack: Stack, python: str = "", driver: str = "") -> list[Judgement]:
    """The stack on each of its Pythons, or on that one, each on the image that has it."""
    from provisioner.wheels.builds import machine_with
    from provisioner.wheels.rule import judge

    pythons = [python] if python else stack.python
    return [judge(stack.parts, version, machine_with(version), driver) for version in pythons]


def _beside(torch: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The set with the torch that was asked for; a usage error when there is one in it already."""
    from provisioner.wheels.builds import TORCH, pinned_build
    from provisioner.wheels.rule import Part

    if not torch:
        return parts
    if any(part.package == TORCH for part in parts):
        raise click.UsageError("There is a torch among the wheels: --torch is for a set without one.")
    return (Part(TORCH, (pinned_build(TORCH, torch),)), *parts)
