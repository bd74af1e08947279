"""The manual page and the files of shells, made of the command line by ``make generate`` and installed by the wheel.

The page asks click for each verb, so that lazily loaded ones are on it, too. The files for shells hold no list of
verbs: they ask the installed ``provision`` for click's own script, as what that script and click exchange changes from
one click to another.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import click

from provisioner import __version__
from provisioner.cli.app import app
from provisioner.values.errors import ExitCode

PROGRAM = "provision"
COMMON_OPTIONS = frozenset({"--json", "--no-color", "--verbose", "--help"})
"""What every verb has; the page says it once."""
_DESCRIPTION = "An argument that ends in .yml or .yaml is the file; without one it is homelab.yml."
_ROFF = {
    "\\": r"\e",
    "-": r"\-",
    "'": r"\(aq",
    '"': r"\(dq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}
_HEAD = '.\\" Generated from the command line by "make generate"; do not edit.\n'
_EXIT_CODES = {
    ExitCode.DONE: "Done.",
    ExitCode.FAILED: "Failed.",
    ExitCode.CHANGES_PENDING: "Changes are pending (--detailed-exitcode).",
    ExitCode.VERIFICATION_FAILED: "A verification failed.",
    ExitCode.REFUSED: "Refused before anything was touched.",
    ExitCode.LOCKED: "Another run holds the lab.",
    ExitCode.USAGE: "Wrong usage, or a file that is not valid.",
    ExitCode.INTERRUPTED: "Interrupted; the same command resumes.",
}
_FILES = {
    "homelab.yml": "The file of a lab, where none is named.",
    "homelab.lock": "The files and wheels that the lab's models and stacks are (provision lock).",
    "secrets.env": "Values of secrets, for the user alone; PROVISION_SECRET_NAME in the environment comes first.",
    ".provision/": "What can be made again, such as the schema for editors.",
}
_BASH = """\
# Completion of provision for bash: what the installed one says, asked at the first use of the tab key.
eval "$(_PROVISION_COMPLETE=bash_source provision 2>/dev/null)"
"""
# While zsh loads a function, what is evaluated in it only registers itself: the first completion is asked for by name.
_ZSH = """\
#compdef provision
# Completion of provision for zsh: what the installed one says, asked at the first use of the tab key.
eval "$(_PROVISION_COMPLETE=zsh_source provision 2>/dev/null)"
(( $+functions[_provision_completion] )) && _provision_completion "$@"
"""
_FISH = """\
# Completion of provision for fish: what the installed one says, asked at the first use of the tab key.
_PROVISION_COMPLETE=fish_source provision 2>/dev/null | source
"""


def installed_files() -> dict[PurePosixPath, str]:
    """By its path below the prefix of an installation: each file with its text."""
    return {
        PurePosixPath("share/man/man1/provision.1"): manual_page(app),
        PurePosixPath("share/bash-completion/completions/provision"): _BASH,
        PurePosixPath("share/zsh/site-functions/_provision"): _ZSH,
        PurePosixPath("share/fish/vendor_completions.d/provision.fish"): _FISH,
    }


def manual_page(program: click.Group) -> str:
    """The page in the language of ``man``: every verb with its options, exit codes, files and variables."""
    top = click.Context(program, info_name=PROGRAM, resilient_parsing=True, **program.context_settings)
    summary = inspect.cleandoc(program.help or "").splitlines()[0]
    parts = [
        # No date: the same command line always gives the same bytes. No hyphens: names of variables stay whole.
        f'{_HEAD}.TH PROVISION 1 "" "provision {roff(__version__)}" "User Commands"\n.nh\n.ad l\n',
        f".SH NAME\nprovision \\- {roff(summary)}\n",
        f".SH SYNOPSIS\n.B provision\n{roff('VERB [OPTIONS] [FILE] [ARGUMENTS]...')}\n.br\n",
        f".B provision\n{roff('--version [--json]')}\n",
        f".SH DESCRIPTION\n{roff(_DESCRIPTION)}\n",
        f".SH OPTIONS\n{_definitions(_records(top))}",
        f".SH OPTIONS OF EVERY VERB\n{_definitions(_records(_below(top, 'validate'), common=True))}",
        ".SH VERBS\n",
        *_verbs(top),
        f".SH EXIT STATUS\n{_definitions((str(int(code)), words) for code, words in _EXIT_CODES.items())}",
        f".SH ENVIRONMENT\n{roff('Every option has a variable, which stands behind its text above.')}\n",
        f".SH FILES\n{_definitions(_FILES.items())}",
    ]
    return "".join(parts)


def roff(text: str) -> str:
    """One line that ``man`` shows as it is: nothing in it is a request, and hyphens can be copied."""
    line = " ".join(text.split())
    shown = "".join(_ROFF.get(letter, letter if letter.isascii() else f"\\[u{ord(letter):04X}]") for letter in line)
    return rf"\&{shown}" if shown.startswith(".") else shown


def _verbs(parent: click.Context) -> Iterator[str]:
    """The part of each verb below ``parent``, each followed by those below itself; none where it is no group."""
    group = parent.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(parent):
        verb = _below(parent, name)
        yield _verb(verb)
        yield from _verbs(verb)


def _verb(verb: click.Context) -> str:
    usage = " ".join((verb.command_path, *verb.command.collect_usage_pieces(verb)))
    return f'.SS "{roff(usage)}"\n{_paragraphs(verb.command.help or "")}{_definitions(_records(verb))}'


def _below(parent: click.Context, name: str) -> click.Context:
    """The verb of that name below ``parent``; ``LookupError`` where there is none."""
    command = parent.command.get_command(parent, name) if isinstance(parent.command, click.Group) else None
    if command is None:
        raise LookupError(f"{parent.command_path} has no verb {name}")
    return click.Context(command, parent=parent, info_name=name, resilient_parsing=True)


def _records(context: click.Context, *, common: bool = False) -> Iterator[tuple[str, str]]:
    """What the options are called and what they do: those that every verb has, or the others; the program's are all."""
    for parameter in context.command.get_params(context):
        if not isinstance(parameter, click.Option):
            continue  # the usage shows it
        is_common = context.parent is not None and not COMMON_OPTIONS.isdisjoint(parameter.opts)
        record = parameter.get_help_record(context)
        if record is not None and is_common == common:
            yield record


def _paragraphs(text: str) -> str:
    """The words of a verb: click's paragraphs, of which those that begin with its mark keep their lines."""
    parts = []
    for paragraph in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        if paragraph.startswith("\b"):
            lines = "\n".join(map(roff, paragraph.splitlines()[1:]))
            parts.append(f".nf\n{lines}\n.fi\n")
        else:
            parts.append(f"{roff(paragraph)}\n")
    return ".PP\n".join(parts)


def _definitions(records: Iterable[tuple[str, str]]) -> str:
    return "".join(f".TP\n.B {roff(name)}\n{roff(meaning)}\n" for name, meaning in records)
