"""The verbs that look into running containers: ``exec`` and ``logs``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from provisioner.cli.options import Words, container_names, lab_words, option, understood, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError

COMMAND = "provisioner.command"
DEFAULT_TAIL = "100"
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


def _log_words(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like ``lab_words``, without its ``-f``: where there are logs that letter means to follow them."""

    @click.argument("arguments", nargs=-1, metavar="[FILE] [CONTAINER[/SERVICE]]...", shell_complete=_complete)
    @option("--file", "files", multiple=True, type=click.Path(), metavar="FILE", help="The file.")
    @click.pass_context
    @wraps(function)
    def call(ctx: click.Context, /, *args: Any, arguments: tuple[str, ...], files: tuple[str, ...], **rest: Any) -> Any:
        by_variable = ctx.get_parameter_source("files") is ParameterSource.ENVIRONMENT
        return function(*args, words=understood(arguments, files, by_variable=by_variable), **rest)

    return call


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    file = understood(ctx.params.get("arguments") or (), ctx.params.get("files") or ()).file
    names = [CompletionItem(one) for one in container_names(file) if one.startswith(incomplete)]
    return [*names, CompletionItem(incomplete, type="file")]


def _tail(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is None or value == "all" or value.isdecimal():
        return value
    raise click.BadParameter(f"{value!r} is neither a number of lines nor all.")


@click.command()
@verb
@_log_words
@option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until ctrl-c.")
@option(
    "-n", "--tail", metavar="N|all", callback=_tail, help=f"The last N lines of each; {DEFAULT_TAIL} unless --since."
)
@option("--since", metavar="TIME", help='From then on: "2026-01-31 12:00", "10 min ago", 10m.')
@option("--run", "of_run", is_flag=True, help="The output of the newest Ansible run instead.")
def logs(session: Session, words: Words, *, follow: bool, tail: str | None, since: str | None, of_run: bool) -> int:
    """Print what the services wrote to their journals."""
    from provisioner.cli.journals import Journals, print_run

    lab = session.open_lab(words.existing(), with_secrets=not of_run, needs="none" if of_run else "hosts")
    if of_run:
        if words.names or follow or tail or since:
            raise click.UsageError("--run prints one whole log: name nothing and choose nothing beside it.")
        print_run(session.console, lab)
        return ExitCode.DONE
    journals = Journals(session, lab, words.names)
    choice = _choice(tail, since)
    return journals.follow(choice) if follow else journals.show(choice)


def _choice(tail: str | None, since: str | None) -> tuple[str, ...]:
    """The lines that were asked for, in journalctl's words, for which a bare "10m" is no time."""
    relative = re.fullmatch(r"\d+[smhdw]", since or "")
    return (
        f"--lines={tail or ('all' if since else DEFAULT_TAIL)}",
        *([f"--since={'-' if relative else ''}{since}"] if since else []),
    )
