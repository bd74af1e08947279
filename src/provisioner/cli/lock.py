"""The verb ``lock``: what a file leaves open, found and noted beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode
from provisioner.values.events import Diagnostic

if TYPE_CHECKING:
    from provisioner.lab.stacks import Use
    from provisioner.wheels.known import Stack
    from provisioner.wheels.locking import Locked

NOTHING = {
    True: "Nothing to find: {} names the wheels of each stack that a service uses.",
    False: "Nothing to find: no service uses a model from `hf:` or a stack of wheels.",
}
"""Words for a file of which nothing new was found, by whether its services use stacks."""


@click.command()
@verb
@lab_words(names=False)
@option("--from", "source", default="", metavar="DIR|INDEX", help="Where all wheels are, instead of their own places.")
@option("--accept-unverified", is_flag=True, help="Download files without a known hash once, and freeze what comes.")
def lock(session: Session, words: Words, *, source: str, accept_unverified: bool) -> int:
    """Find the files of models from `hf:` and the wheels of stacks that services use, and note them in the lock file.

    What is noted there stays; to have something found anew, remove its lines. Containers' images, builds of programs,
    and models that services fetch by themselves are noted nowhere.
    """
    from provisioner.lab.opening import find_files, keep_pins
    from provisioner.lab.stacks import find_stacks, stack_uses
    from provisioner.wheels.known import stacks_of
    from provisioner.wheels.locking import LockRequest, locked

    lab = session.open_lab(words.existing(), needs="none")
    pins = find_files(lab).pins
    keep_pins(lab, pins)

    def find(use: Use, stack: Stack) -> tuple[Locked, ...]:
        session.console.emit(Diagnostic("note", f"Looking for the wheels of {use.stack} for {use.distribution}"))
        return locked(stack, LockRequest(*use.place, use.requirements, source, accept_unverified))

    uses = stack_uses(lab.resolved)
    found = find_stacks(uses, stacks_of(lab.loaded.path), lab.lock_file, find)
    lines = [f"{name} for {place}: {len(one.packages)} wheels" for (name, place), one in found.items()]
    lines += [f"model {name}: {pin.file}" for name, pin in pins.items()]
    session.console.result(
        "\n".join(lines) or NOTHING[bool(uses)].format(lab.lock_file.name),
        stacks=[
            {"stack": name, "distribution": place, "packages": one.packages} for (name, place), one in found.items()
        ],
        models=pins,
    )
    return ExitCode.DONE
