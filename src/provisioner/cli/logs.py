"""The verb ``logs``: journals of the lab's services, one after the other, or all as they are written."""

from __future__ import annotations

import os
import re
import selectors
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from provisioner.cli.console import Console
from provisioner.cli.containers import Containers
from provisioner.cli.options import Words, container_names, option, understood, verb
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.reconcile.evidence import plain_line
from provisioner.report.style import safe_text
from provisioner.values.address import Address
from provisioner.values.errors import ExitCode, InputError, PreflightError, ProviderError
from provisioner.values.events import Diagnostic
from provisioner.values.plain_data import Foreign
from provisioner.values.work_folders import by_age

DEFAULT_TAIL = "100"


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


def print_run(console: Console, lab: Lab) -> None:
    """Print the newest log that an Ansible run of the lab left; raises ``PreflightError`` when there is none."""
    folder = lab.folder / "logs"
    kept = by_age(folder.glob("*.log"))
    if not kept:
        raise PreflightError(
            f"Unable to print the log of a run: there is none in {folder}",
            resolution=f"Run: provision up {lab.loaded.path}",
        )
    for line in map(plain_line, kept[-1].read_text(encoding="utf-8", errors="replace").splitlines()):
        console.line("log", {"target": kept[-1].name, "line": line})
        console.say(safe_text(line) or " ")


# The journals of services, each line with its name.

JOURNAL = ("journalctl", "--quiet", "--no-pager", "--output=short-iso")
_PAINTS = (("green",), ("yellow",), ("dim",), ("bold", "green"), ("bold", "yellow"), ("bold",))
_COLOURS = re.compile(r"\033\[[0-9;]*m")
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Source:
    """One journal: that of a service's units, or without one a whole container's."""

    address: str
    container: str
    units: tuple[str, ...] = ()

    def command(self, choice: Sequence[str]) -> tuple[str, ...]:
        """What prints it."""
        return (*JOURNAL, *choice, *(f"--unit={unit}" for unit in self.units))


class Journals:
    """The journals of the services that were named, of all that run when none was."""

    def __init__(self, session: Session, lab: Lab, names: Sequence[str]) -> None:
        self._console = session.console
        self._containers = Containers(session, lab)
        self._sources = self._readable(lab, names)
        addresses = sorted(source.address for source in self._sources)
        self._width = max(map(len, addresses), default=0)
        self._paints = {address: _PAINTS[number % len(_PAINTS)] for number, address in enumerate(addresses)}

    def show(self, choice: Sequence[str]) -> int:
        """Print what is there: one journal after the other, all asked at once."""
        with ThreadPoolExecutor(max(1, len(self._sources))) as pool:
            outputs = pool.map(lambda source: self._read(source, choice), self._sources)
            for source, output in zip(self._sources, outputs, strict=True):
                for line in output.splitlines():
                    self._print(source, line)
        return ExitCode.DONE

    def follow(self, choice: Sequence[str]) -> int:
        """Print what is there and what comes, until all have ended, nobody reads, or somebody interrupts (130)."""
        try:
            with ThreadPoolExecutor(max(1, len(self._sources))) as pool, ExitStack() as stack:
                ends = {one: stack.enter_context(_pipe()) for one in self._sources}
                readers = {one: pool.submit(self._attach, one, choice, writing) for one, (_, writing) in ends.items()}
                if self._merge({reading: one for one, (reading, _) in ends.items()}):
                    for source, reader in readers.items():
                        _check(source, reader.result(), b"")
        except KeyboardInterrupt:  # the pipes are closed by now, which has ended whoever wrote to them
            return ExitCode.INTERRUPTED
        return ExitCode.DONE

    def _merge(self, readings: Mapping[int, Source]) -> bool:
        """Print whole lines as they come; False when nobody reads them any more."""
        rests = dict.fromkeys(readings, b"")
        with selectors.DefaultSelector() as selector, _own_output() as output:
            for watched in (*readings, *output):
                selector.register(watched, selectors.EVENT_READ)
            while len(selector.get_map()) > len(output):
                for key, _ in selector.select():
                    if key.fd in output:
                        return False
                    source, data = readings[key.fd], os.read(key.fd, _READ_BYTES)
                    *lines, rests[key.fd] = (rests[key.fd] + data).split(b"\n")
                    for line in [*lines, *([] if data else filter(None, [rests[key.fd]]))]:
                        self._print(source, line)
                    if not data:
                        selector.unregister(key.fd)
                        self._console.emit(Diagnostic("warning", f"The log of {source.address} has ended"))
        return True

    def _readable(self, lab: Lab, names: Sequence[str]) -> list[Source]:
        there = [
            Source(service.address, service.container, service.page.units) for service in lab.resolved.services.values()
        ]
        if names:
            found = [source for name in names for source in self._named(name, there)]
            return list(dict.fromkeys(found))
        reasons = {source.container: self._containers.reason(source.container) for source in there}
        for reason in filter(None, reasons.values()):
            self._console.emit(Diagnostic("warning", reason.message))
        return [source for source in there if reasons[source.container] is None]

    def _named(self, name: str, there: Sequence[Source]) -> list[Source]:
        """The journals of a container, or the one of its service; of one without services its whole journal."""
        address = Address(name)
        container, role = address.container, address.service
        self._containers.running(container)
        own = [source for source in there if source.container == container]
        found = [source for source in own if source.address == name] if role else own
        if role and not found:
            raise InputError(
                f"Unable to find service {role} in container {container}",
                resolution=f"Its services: {', '.join(source.address for source in own) or 'none'}",
            )
        return found or [Source(container, container)]

    def _read(self, source: Source, choice: Sequence[str]) -> bytes:
        provider = self._containers.running(source.container)
        done = provider.execute(source.container, source.command(choice))
        _check(source, done.returncode, done.stderr)
        return done.stdout

    def _attach(self, source: Source, choice: Sequence[str], writing: int) -> int:
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            provider = self._containers.running(source.container)
            command = source.command((*choice, "--follow"))
            return provider.attach(
                source.container, command, stdin=nothing, stdout=writing, stderr=writing, terminal=False
            )
        finally:
            os.close(nothing)
            os.close(writing)

    def _print(self, source: Source, line: bytes) -> None:
        text = _COLOURS.sub("", line.decode(errors="replace"))
        self._console.line("log", {"target": source.address, "line": text})
        head = self._console.style.paint(f"{source.address:<{self._width}} |", *self._paints[source.address])
        self._console.say(f"{head} {safe_text(text)}")


def _check(source: Source, code: int, said: bytes) -> None:
    if code:
        raise ProviderError(
            f"Unable to read the log of {source.address}",
            details=Foreign.of_output(said) or f"journalctl ended with {code}",
        )


@contextmanager
def _own_output() -> Iterator[tuple[int, ...]]:
    """Our standard output where it is a pipe: polling that tells when its reader goes away, written to or not."""
    try:
        number = sys.stdout.fileno()
    except OSError:  # it is no file
        number = -1
    if number < 0 or not stat.S_ISFIFO(os.fstat(number).st_mode):
        yield ()
        return
    copy = os.dup(number)  # the console puts something else in the original's place
    try:
        yield (copy,)
    finally:
        os.close(copy)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """A pipe; its reading end is closed at the end, its writing end by whoever writes."""
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
