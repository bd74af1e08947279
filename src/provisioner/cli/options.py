"""Options that all verbs share: the common ones, the positional file, and completion of containers' names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from provisioner.cli.app import COMMON_OPTIONS
from provisioner.cli.session import Session
from provisioner.values.errors import InputError
from provisioner.values.regular_files import content_of

DEFAULT_FILE = "homelab.yml"
FILE_SUFFIXES = (".yml", ".yaml")
LOCAL = "local"
"""The host of a file that names none."""
PENDING = "Exit with 2 when there are changes to be made."

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@dataclass(frozen=True, slots=True)
class Words:
    """What the positional arguments mean: the file, and the containers to which the verb is limited (none: all)."""

    file: Path
    names: tuple[str, ...] = ()

    def existing(self) -> Path:
        """The file; raise ``InputError`` that says what to do when there is none."""
        return existing(self.file)


_OTHER_ENDS = {".yml": ".yaml"}


def existing(file: Path) -> Path:
    """That file; raise ``InputError`` that says what to do when there is none."""
    if file.is_file():
        return file
    other = file.with_suffix(_OTHER_ENDS.get(file.suffix, ".yml"))
    ways = f"Run: provision init {file}   or name the file: provision VERB FILE.yml"
    raise InputError(
        f"Unable to read {file}: there is no such file",
        resolution=f"There is {other}: name that one." if other.is_file() else ways,
    )


def option(*names: str, **settings: Any) -> Decorator:
    """A click option that can also be set by its environment variable, ``PROVISION_<NAME>``."""
    long_name = next(name for name in names if name.startswith("--"))
    variable = "PROVISION_" + long_name.removeprefix("--").replace("-", "_").upper()
    return click.option(*names, **{"envvar": variable, "show_envvar": True, **settings})


def verb(function: Function) -> Function:
    """A verb's function: it gets the ``Session`` first, and the common options are dealt with; they stand last."""

    @click.pass_context
    @wraps(function)
    def call(ctx: click.Context, /, *, as_json: bool, no_color: bool, verbose: bool, **arguments: Any) -> Any:
        session = ctx.find_object(Session) or Session()
        name = ctx.command_path.partition(" ")[2]
        session.console.configure(verb=name, json=as_json, no_color=no_color, verbose=verbose)
        return function(session, **arguments)

    own = getattr(call, _PARAMETERS, [])
    setattr(call, _PARAMETERS, [*getattr(_common, _PARAMETERS), *own])
    return call


_PARAMETERS = "__click_params__"
"""Where click collects the parameters of a function: in the order of its decorators, the last one first."""


@option("--json", "as_json", is_flag=True, help=COMMON_OPTIONS["--json"])
@option("--no-color", is_flag=True, help=COMMON_OPTIONS["--no-color"])
@option("-v", "--verbose", is_flag=True, help=COMMON_OPTIONS["-v, --verbose"])
def _common() -> None:
    """Bear the options of every verb."""


def lab_words(*, names: bool, shape: str = "", complete: Completion | None = None) -> Decorator:
    """The positional file and, with ``names``, containers: the function gets ``words`` (``Words``).

    ``shape`` and ``complete`` are for verbs whose names are something else than containers of the file.
    """
    shape = shape or ("[FILE] [CONTAINER]..." if names else "[FILE]")
    completed = complete or (_complete_words if names else complete_files)

    def decorate(function: Function) -> Function:
        @click.argument("arguments", nargs=-1, metavar=shape, shell_complete=completed)
        @option("-f", "--file", "files", multiple=True, type=click.Path(), metavar="FILE", help="The file.")
        @click.pass_context
        @wraps(function)
        def call(
            ctx: click.Context, /, *args: Any, arguments: tuple[str, ...], files: tuple[str, ...], **rest: Any
        ) -> Any:
            by_variable = ctx.get_parameter_source("files") is ParameterSource.ENVIRONMENT
            words = understood(arguments, files, by_variable=by_variable)
            if words.names and not names:
                raise click.UsageError(f"Unexpected argument {words.names[0]!r}: a file ends in .yml or .yaml.", ctx)
            return function(*args, words=words, **rest)

        return call

    return decorate


def understood(arguments: tuple[str, ...], files: tuple[str, ...], *, by_variable: bool = False) -> Words:
    """The file and the names among ``arguments``; two files are a usage error.

    A file among the arguments wins over one that only the environment names (``by_variable``).
    """
    chosen, rest = _divided(arguments, files, by_variable=by_variable)
    if len(chosen) > 1:
        raise click.UsageError(f"Two files: {' and '.join(chosen)}. A command works on one.")
    return Words(Path(chosen[0] if chosen else DEFAULT_FILE), rest)


def lab_files(function: Function) -> Function:
    """Any number of files, for a verb that only reads them: the function gets ``files``, each once, at least one."""

    @click.argument("arguments", nargs=-1, metavar="[FILE]...", shell_complete=complete_files)
    @option("-f", "--file", "files", multiple=True, type=click.Path(), metavar="FILE", help="A file; may be repeated.")
    @click.pass_context
    @wraps(function)
    def call(ctx: click.Context, /, *args: Any, arguments: tuple[str, ...], files: tuple[str, ...], **rest: Any) -> Any:
        by_variable = ctx.get_parameter_source("files") is ParameterSource.ENVIRONMENT
        chosen, names = _divided(arguments, files, by_variable=by_variable)
        if names:
            raise click.UsageError(f"Unexpected argument {names[0]!r}: a file ends in .yml or .yaml.", ctx)
        return function(*args, files=tuple(map(Path, chosen or (DEFAULT_FILE,))), **rest)

    return call


def _divided(
    arguments: tuple[str, ...], files: tuple[str, ...], *, by_variable: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that are meant, and the names among ``arguments``."""
    named = tuple(one for one in arguments if one.endswith(FILE_SUFFIXES))
    rest = tuple(dict.fromkeys(one for one in arguments if not one.endswith(FILE_SUFFIXES)))
    return (named if named and by_variable else (*named, *files)), rest


def complete_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files."""
    return [CompletionItem(incomplete, type="file")]


def _complete_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    arguments = ctx.params.get("arguments") or ()
    known = container_names(_file_of(ctx))
    names = [one for one in known if one.startswith(incomplete) and one not in arguments]
    return [*(CompletionItem(name) for name in names), *complete_files(ctx, param, incomplete)]


def complete_hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The file's hosts as ``HOST/``, whose containers only they know, then files."""
    names = [one for one in _keys_of(_file_of(ctx), "hosts") or [LOCAL] if one.startswith(incomplete)]
    return [*(CompletionItem(f"{name}/") for name in names), *complete_files(ctx, param, incomplete)]


def complete_host_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The file's hosts, then files."""
    names = [one for one in _keys_of(_file_of(ctx), "hosts") if one.startswith(incomplete)]
    return [*(CompletionItem(name) for name in names), *complete_files(ctx, param, incomplete)]


def complete_folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders, and files."""
    return [CompletionItem(incomplete, type="dir"), CompletionItem(incomplete, type="file")]


def _file_of(ctx: click.Context) -> Path:
    arguments = ctx.params.get("arguments") or ctx.params.get("words") or ()
    files = ctx.params.get("files") or ctx.params.get("file") or ()
    files = (str(files),) if isinstance(files, str | Path) else files
    return Path([*files, *(one for one in arguments if one.endswith(FILE_SUFFIXES)), DEFAULT_FILE][0])


def container_names(file: Path) -> list[str]:
    """The containers that the file names, valid or not; none when it cannot be read."""
    return _keys_of(file, "containers")


def _keys_of(file: Path, part: str) -> list[str]:
    import yaml

    try:
        content = yaml.load(content_of(file), Loader=yaml.BaseLoader)  # noqa: S506  # makes strings, lists, dicts only
    except (OSError, yaml.YAMLError, ValueError):
        return []  # a shell that completes has nobody to tell
    found = content.get(part) if isinstance(content, dict) else None
    return sorted(found) if isinstance(found, dict) else []


def wishes(function: Function) -> Function:
    """The options by which ``plan`` and ``up`` are asked for more than the file says: the function gets ``wishes``."""

    @option("--prune", is_flag=True, help="Delete containers of the lab that are no longer in the file.")
    @option("--replace", multiple=True, metavar="NAME", help="Delete this container and make it anew; may be repeated.")
    @option("--full", is_flag=True, help="Look at every byte and run everything again, whatever the stamps say.")
    @wraps(function)
    def call(*args: Any, words: Words, prune: bool, replace: tuple[str, ...], **rest: Any) -> Any:
        from provisioner.values.plan import Wishes

        # What is to be replaced is meant, also where the verb is limited to others.
        targets = frozenset((*words.names, *replace)) if words.names else frozenset()
        return function(*args, words=words, wishes=Wishes(targets, frozenset(replace), prune), **rest)

    return call
