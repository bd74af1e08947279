"""The verb ``exec``: a command is run in a container."""

from __future__ import annotations

import re
import sys

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import InputError

COMMAND = "provisioner.command"
LOGIN_SHELL = ("/bin/sh", "-c", "[ ! -x /bin/bash ] || exec /bin/bash -l; exec /bin/sh -l")
IN_FOLDER = ("/bin/sh", "-c", 'cd -- "$0" && exec "$@"')
OWN_HOME = ("/bin/sh", "-c", 'HOME=$(getent passwd "$(id -u)" | cut -d: -f6); export HOME; exec "$@"', "sh")


class CommandAfterDashes(click.Command):
    """A verb whose arguments after ``--`` are a command of their own, left as they are in the context's ``meta``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand what comes before the first ``--``."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[COMMAND] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line ends in the command."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command("exec", cls=CommandAfterDashes)
@verb
@lab_words(names=True)
@option("-T", "--no-tty", is_flag=True, help="Give the command no terminal, even where there is one.")
@option("-u", "--user", metavar="NAME", help="Run it as this user of the container; root when left out.")
@option("-w", "--workdir", metavar="DIR", help="Run it in this folder of the container.")
@option("-e", "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set this variable (repeatable).")
@click.pass_context
def exec(  # noqa: A001  # a verb's function bears its verb's name, and nothing here runs Python from text
    ctx: click.Context,
    session: Session,
    words: Words,
    *,
    no_tty: bool,
    user: str | None,
    workdir: str | None,
    variables: tuple[str, ...],
) -> int:
    """Run a command in a container; a login shell when none is given.

    The exit code is the command's own.
    """
    from provisioner.cli.containers import Containers

    if session.console.json:
        raise InputError(
            "Unable to give what a command writes as JSON lines: its streams are its own",
            resolution="Run provision exec without --json (and without PROVISION_JSON).",
        )
    if len(words.names) != 1:
        raise click.UsageError("Name one container; its command comes after --: provision exec llama -- ls -l", ctx)
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    provider = Containers(session, lab).running(words.names[0])
    terminal = not no_tty and sys.stdin.isatty() and sys.stdout.isatty()
    command = _dressed(ctx.meta[COMMAND] or LOGIN_SHELL, user, workdir)
    environment = _environment(variables)
    return provider.attach(
        words.names[0], command, stdin=0, stdout=1, stderr=2, terminal=terminal, environment=environment
    )


def _dressed(command: tuple[str, ...], user: str | None, workdir: str | None) -> tuple[str, ...]:
    """The command as that user, with that one's home, in that folder."""
    placed = (*IN_FOLDER, workdir, *command) if workdir else command
    return ("runuser", "-u", user, "--", *OWN_HOME, *placed) if user else placed


def _environment(variables: tuple[str, ...]) -> dict[str, str]:
    unequal = [one for one in variables if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", one, re.DOTALL)]
    if unequal:
        raise click.UsageError(f"Not a variable with its value: {unequal[0]!r}. Write -e NAME=VALUE.")
    return dict(one.split("=", 1) for one in variables)
