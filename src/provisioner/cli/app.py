"""The tree of verbs, and the one place where every way to fail becomes words and an exit code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import Any, NoReturn

import click

from provisioner.cli.console import Console
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode, InputError, ProvisionError

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Write the file": {
        "init": ("provisioner.cli.init", "Write a first file, its schema, and its missing secrets."),
        "validate": ("provisioner.cli.validate", "Check the file and say everything that is wrong with it."),
        "schema": ("provisioner.cli.schema", "Print the JSON schema of the file, for editors."),
        "show": ("provisioner.cli.show", "Print the file as it is understood, or what its clients need."),
        "graph": ("provisioner.cli.graph", "Draw what is connected with what, as text or as a picture."),
        "fit": ("provisioner.cli.fit", "Add up what the engines need on a card, term by term."),
        "suggest": ("provisioner.cli.suggest", "Say which file of a model a card is best given."),
        "lock": ("provisioner.cli.lock", "Note which files and wheels the file's models and stacks are."),
        "import": ("provisioner.cli.import_", "Print an existing container as a block of the file, to be adopted."),
        "eject": ("provisioner.cli.eject", "Write plain Ansible that configures the lab without provision."),
    },
    "Make it true, and undo it": {
        "plan": ("provisioner.cli.plan", "Say what up would do; change nothing."),
        "up": ("provisioner.cli.up", "Make the file true and prove it."),
        "down": ("provisioner.cli.down", "Stop the containers; their data is kept, up starts them again."),
        "destroy": ("provisioner.cli.destroy", "Delete the containers and what is in them."),
    },
    "Look and use": {
        "status": ("provisioner.cli.status", "Say what runs where, how it does, and what drifted."),
        "top": ("provisioner.cli.top", "Show what engines and gateways do at this moment."),
        "open": ("provisioner.cli.open", "Open a page or a desktop, or print where it is."),
        "logs": ("provisioner.cli.logs", "Print what the services wrote to their journals."),
        "exec": ("provisioner.cli.exec", "Run a command in a container."),
        "report": ("provisioner.cli.report", "Write the lab as one web page, with the evidence."),
    },
    "Measure": {
        "probe": ("provisioner.cli.probe", "Find the longest context that an engine really answers."),
        "bench": ("provisioner.cli.bench", "Measure speech, engines, clients and quants."),
    },
    "Care": {
        "verify": ("provisioner.cli.verify", "Prove that everything works; change nothing."),
        "audit": ("provisioner.cli.audit", "Ask as strangers do, and say what is open that is on no page."),
        "snapshot": ("provisioner.cli.snapshot", "Keep the state of the containers as it is now."),
        "rollback": ("provisioner.cli.rollback", "Bring containers back to a state that was kept."),
        "clone": ("provisioner.cli.clone", "Copy a container."),
    },
    "Hosts and repair": {
        "doctor": ("provisioner.cli.doctor", "Say what is in the way of the lab on its hosts, and what to do."),
        "host": ("provisioner.cli.host", "Prepare the machine that containers live on."),
        "cluster": ("provisioner.cli.cluster", "Say how a Proxmox VE cluster is, and mend it."),
        "runbook": ("provisioner.cli.runbook", "Print the repairs that there are, and run one."),
        "cuda": ("provisioner.cli.cuda", "Mend CUDA's headers where glibc contradicts them."),
        "stacks": ("provisioner.cli.stacks", "Print the wheel stacks that are known; judge or lock wheels."),
    },
}
"""The verbs by what people want with them, each with its module and what its help says of it in a line."""
VERBS: dict[str, tuple[str, str]] = {}
for _group in GROUPS.values():
    VERBS |= _group
COMMON_OPTIONS = {
    "--json": "Answer as a stream of JSON lines.",
    "--no-color": "No colours (as does NO_COLOR).",
    "-v, --verbose": "Say every step; show the traceback of an unforeseen error.",
    "-h, --help": "Show this message and exit.",
}
"""The options of every verb, which the help of the program says once."""
EPILOG = """\b
FILE is an argument that ends in .yml or .yaml; without one it is homelab.yml.
Every option has an environment variable, shown in the help of each verb.
Completion: eval "$(_PROVISION_COMPLETE=bash_source provision)"   (or zsh_source, fish_source)"""
WITHOUT_EVENTS = ("host", "cluster", "runbook", "cuda")
"""Verbs that do not say of each thing that they begin it."""
INTERRUPTED = ProvisionError("Interrupted", resolution="The same command resumes where this one stopped.")


class VerbGroup(click.Group):
    """A group that knows its verbs by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """The verbs, in the order in which a newcomer meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        """The verb of that name, or None."""
        if cmd_name not in VERBS:
            return None
        module, short_help = VERBS[cmd_name]
        # A function cannot bear a name that is a word of the language, such as "import".
        function = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(module), function)
        command.short_help = short_help
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's signature
        """Write the verbs from the table, without importing them, then the options that each of them takes."""
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), short_help) for name, (_, short_help) in verbs.items()])
        with formatter.section("Options of every verb"):
            formatter.write_dl([*COMMON_OPTIONS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the arguments begin with; a usage error with the nearest name when there is none."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            from difflib import get_close_matches

            close = get_close_matches(args[0], VERBS, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such verb {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Like ``run`` when used as a program (``click.testing.CliRunner`` does so): click's own endings are ours."""
        if extra.pop("standalone_mode", True):
            sys.exit(run(extra["args"] or (), extra.get("obj")))
        return super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]  # passed on as it is


def _say_versions(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from provisioner.cli.versions import say_versions

    say_versions((ctx.find_object(Session) or Session()).console)
    ctx.exit()


def _refuse_json_alone(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Before a verb ``--json`` would be lost in silence: it is refused with its place."""
    if value and not ctx.resilient_parsing:
        raise click.UsageError("--json stands behind the verb, or beside --version.", ctx)


@click.group(
    cls=VerbGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_versions,
    help="Say the versions of provision, ansible-core, Python and the schema of homelab.yml.",
)
@click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_refuse_json_alone,
    help="With --version: answer as a stream of JSON lines.",
)
def app() -> None:
    """One YAML file in, running and verified local-AI inference hosts out."""


def run(arguments: Sequence[str], session: Session | None = None) -> int:
    """Run one command line and give its exit code; whatever happens is said once, and a stream has its last line."""
    session = session or Session()
    session.console.expect(arguments)
    try:
        with _ended_by_signals():
            code = _outcome(arguments, session)
    except KeyboardInterrupt:
        code = session.console.fail(INTERRUPTED, ExitCode.INTERRUPTED)
    return session.console.close(code)


def _outcome(arguments: Sequence[str], session: Session) -> int:
    console = session.console
    try:
        code = app.main(args=list(arguments), prog_name="provision", standalone_mode=False, obj=session)
    except ProvisionError as error:
        return _said(error, console)
    except click.Abort:
        return console.fail(INTERRUPTED, ExitCode.INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        return console.refuse_empty(error.format_message())
    except click.ClickException as error:
        return console.fail(_usage_error(error))
    except Exception as error:  # noqa: BLE001  # the last line of defence: it is said, never lost
        return console.fail(_fault(error, console) or _unforeseen(error, verbose=console.verbose))
    return int(code or 0)


def _said(error: ProvisionError, console: Console) -> int:
    """Say an error and give its exit code; for what the operating system refused there is advice."""
    if isinstance(error.__cause__, OSError) and not error.resolution:
        from provisioner.cli.faults import way_out

        error.resolution = way_out(error.__cause__)
    return console.fail(error)


def _fault(error: Exception, console: Console) -> ProvisionError | None:
    """What the operating system refused, in words; None where it was something else."""
    from provisioner.cli.faults import fault_of

    fault = fault_of(error, begun=console.has_begun or console.verb in WITHOUT_EVENTS)
    if fault is not None and console.verbose:
        fault.details = _traced(error)
    return fault


def _usage_error(error: click.ClickException) -> InputError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "provision"
    return InputError(error.format_message(), resolution=f"Run: {path} --help")


def _unforeseen(error: Exception, *, verbose: bool) -> ProvisionError:
    said = f"{type(error).__name__}: {error}".strip()
    return ProvisionError(
        "Unable to finish: something happened that this program does not foresee",
        details=_traced(error) if verbose else said,
        resolution="Report this with what the same command prints with -v; it may be run again.",
    )


def _traced(error: Exception) -> str:
    """Where an error came from, in Python's words."""
    import traceback

    return "".join(traceback.format_exception(error)).rstrip()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A polite end (systemd, a closed terminal) is an interruption like ctrl-c, so that work is left in order.

    What was ignored when the command began stays so: ``nohup`` means it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
