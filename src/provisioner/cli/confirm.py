"""Questions before a change: the plan is shown; without a terminal nothing is asked, and options alone decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from provisioner.cli.console import Console
from provisioner.reconcile.text import NO_CHANGES, plan_text
from provisioner.values.errors import PreflightError
from provisioner.values.plan import Plan

if TYPE_CHECKING:  # a plan is shown where no lab is opened
    from provisioner.lab.opening import Lab

APPLY = "Do you want to apply? [y/N] "
GO_ON = "Do you want to go on? [y/N] "
REPLACE = "replace"
NOTHING_TO_DESTROY = "Nothing to destroy: no container that the file names is there."
ORPHANS_STAY = (
    "The orphans are deleted with --prune, or where they are named. Another file may have a lab of this name."
)
DECLINED = PreflightError("Not applied: the answer was no", details="Nothing was touched.")


def show_plan(console: Console, plan: Plan, nothing: str = NO_CHANGES) -> None:
    """The whole plan as text, ``nothing`` when it is empty; ``--json`` has it as events."""
    console.say(plan_text(plan, console.style, nothing=nothing))


def show_only(console: Console) -> Callable[[Plan], bool]:
    """Shows the plan, and never agrees."""

    def confirm(plan: Plan) -> bool:
        show_plan(console, plan)
        return False

    return confirm


def require_yes(console: Console, told: str, undone: str) -> None:
    """Say what is about to be done, and ask; ``PreflightError`` where nobody can be asked, or the answer is no."""
    console.say(told)
    if not console.can_ask:
        raise PreflightError(f"{undone}: nobody can be asked", resolution="Run the same command with --yes.")
    if not console.agrees(GO_ON):
        raise PreflightError(f"{undone}: the answer was no", details="Nothing was touched.")


def confirm_plan(
    console: Console, *, yes: bool, nothing: str = NO_CHANGES, replaceable: Collection[str] = ()
) -> Callable[[Plan], bool]:
    """Shows the plan, then takes ``--yes`` or a typed yes; raises ``PreflightError`` when nobody can be asked.

    ``--yes`` never stands for the loss of data: a replacement that is not named in ``replaceable`` is asked for.
    """

    def confirm(plan: Plan) -> bool:
        show_plan(console, plan, nothing)
        lost = [one.target for one in plan.of("replace") if one.target not in replaceable]
        if plan.is_empty or (yes and not lost):
            return True
        if not console.can_ask:
            raise _unasked(lost)
        if lost:
            what = f"What is in {', '.join(lost)} will be lost. Type {REPLACE!r} to go on: "
            return console.ask(what).lower() == REPLACE
        return console.agrees(APPLY)

    return confirm


def _unasked(lost: Sequence[str]) -> PreflightError:
    if not lost:
        return PreflightError(
            "Unable to ask whether to apply: there is no terminal",
            resolution="Run the same command with --yes; provision plan shows what up would do.",
        )
    return PreflightError(
        f"Unable to replace {', '.join(lost)} without being told so",
        details="What is in it would be lost, so --yes alone is not enough.",
        resolution="Run the same command with " + " ".join(f"--replace {name}" for name in lost),
    )


def confirm_destruction(console: Console, lab: str, *, yes: bool, typed: str | None) -> Callable[[Plan], bool]:
    """Shows the plan, then takes the lab's name, typed at the prompt or given by ``--lab`` together with ``--yes``."""

    def confirm(plan: Plan) -> bool:
        show_plan(console, plan, NOTHING_TO_DESTROY)
        if plan.orphans:
            console.say(ORPHANS_STAY)
        _refuse_other(lab, typed)
        if plan.is_empty or (yes and typed == lab):
            return True
        if not console.can_ask:
            raise PreflightError(
                "Unable to ask whether to destroy: there is no terminal",
                details="What is in the containers would be lost, so --yes alone is not enough.",
                resolution=f"Run the same command with --yes --lab {lab}.",
            )
        return console.ask(f"All of this will be lost. Type the lab's name ({lab}) to destroy it: ") == lab

    return confirm


def _refuse_other(lab: str, typed: str | None) -> None:
    if typed is not None and typed != lab:
        raise PreflightError(
            f"Unable to destroy lab {typed}: the file's lab is {lab}",
            resolution="Name the right file, or the right lab.",
        )


def only_known(lab: Lab, names: Sequence[str], confirm: Callable[[Plan], bool]) -> Callable[[Plan], bool]:
    """Refuses a name that is neither in the file nor on a host (an orphan is not in the file, and may be named)."""

    def confirm_known(plan: Plan) -> bool:
        there = {change.target for change in plan.changes}
        lab.check_targets([name for name in names if name not in there])
        return confirm(plan)

    return confirm_known
