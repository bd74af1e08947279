"""The verb ``top``: what engines and gateways do at this moment, in a terminal, until q or ctrl-c."""

from __future__ import annotations

import math
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.options import Words, lab_words, option, verb
from provisioner.cli.session import Session
from provisioner.values.errors import ExitCode

if TYPE_CHECKING:
    from provisioner.cli.console import Console
    from provisioner.measuring.live import Picture, Watch

INTERVAL_S = 2.0
SHORTEST_S, LONGEST_S = 0.5, 3600.0
OPENED = "\x1b[?1049h\x1b[?25l"
"""A screen of its own, so that what was on the terminal comes back; no cursor."""
CLOSED = "\x1b[?25h\x1b[?1049l"
HOME, REST_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
POLL_S = 0.1
QUIT = b"qQ\x03\x04"
"""q, and what ctrl-c and ctrl-d are where a terminal makes no signal of them."""


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if math.isfinite(value) and SHORTEST_S <= value <= LONGEST_S:
        return value
    raise click.BadParameter(f"{value:g} are not between {SHORTEST_S:g} and {LONGEST_S:g} seconds.")


@click.command()
@verb
@lab_words(names=True)
@option(
    "--interval",
    type=float,
    default=INTERVAL_S,
    show_default=True,
    metavar="SECONDS",
    callback=_seconds,
    help="Look again after so long.",
)
@option("--once", is_flag=True, help="Print one table and end; so it is where there is no terminal.")
def top(session: Session, words: Words, *, interval: float, once: bool) -> int:
    """Show what engines and gateways do at this moment, until q or ctrl-c.

    Nobody is woken by it, and no look counts as a request. Tokens per second are those between two looks.
    """
    from provisioner.measuring.live import watch

    console = session.console
    lab = session.open_lab(words.existing(), with_secrets=True, needs="hosts")
    lab.check_targets(words.names)
    watched = watch(lab, session.effects(lab), words.names)
    if once or console.json or not _has_screen():
        return _print_once(console, watched, interval)
    return _show(console, watched, interval)


def _has_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def _print_once(console: Console, watched: Watch, interval: float) -> int:
    """One table of two looks, between which tokens are counted."""
    from provisioner.measuring.live import live_lines, live_text

    watched.picture()
    time.sleep(interval)  # there is nothing to wait for: it is the time that rates are of
    picture = watched.picture()
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    text = live_text(picture.rows, picture.cards, columns, style=console.style)
    console.result(text, **live_lines(picture.rows, picture.cards))
    return ExitCode.DONE


class Looking(threading.Thread):
    """Looks again and again beside who shows it, so that a container that is silent keeps no key from being heard."""

    def __init__(self, watched: Watch, interval: float) -> None:
        super().__init__(daemon=True, name="top")
        self._watched, self._interval = watched, interval
        self._over = threading.Event()
        self._news = threading.Lock()
        self._seen: Picture | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Look until it is ended, or something unforeseen happens."""
        while not self._over.is_set():
            began = time.monotonic()
            try:
                seen = self._watched.picture()
            except BaseException as error:  # noqa: BLE001  # it is raised where somebody hears it
                self._error = error
                return
            with self._news:
                self._seen = seen
            self._over.wait(max(self._interval - (time.monotonic() - began), 0.0))

    def seen(self) -> Picture | None:
        """What was seen last, None before; raises what has ended the looking."""
        if self._error is not None:
            raise self._error
        with self._news:
            return self._seen

    def end(self) -> None:
        """Begin no other look."""
        self._over.set()


def _show(console: Console, watched: Watch, interval: float) -> int:
    """Show picture after picture until somebody ends it; the last one stays on the terminal."""
    from provisioner.measuring.live import live_text

    looking = Looking(watched, interval)
    picture: Picture | None = None
    try:
        with _screen(console), _keys() as pressed:
            looking.start()
            drawn: tuple[Any, ...] = ()
            while not pressed():
                picture = looking.seen()
                size = shutil.get_terminal_size()
                if (picture, size) != drawn:
                    drawn = (picture, size)
                    console.draw(_frame(watched.lab.name, picture, size, console, interval))
    except KeyboardInterrupt:
        pass  # it is how one ends it
    finally:
        looking.end()
    if picture is not None:
        console.say(live_text(picture.rows, picture.cards, shutil.get_terminal_size().columns, style=console.style))
    return ExitCode.DONE


def _frame(name: str, picture: Picture | None, size: os.terminal_size, console: Console, interval: float) -> str:
    """One picture as it is written over the one before."""
    from provisioner.measuring.live import live_text
    from provisioner.report.style import safe_line

    title = f"{safe_line(name)}, every {interval:g} s; q ends it"[: size.columns]
    if picture is None:
        text = "looking ..."
    else:
        text = live_text(picture.rows, picture.cards, size.columns, size.lines - 3, console.style)
    lines = [console.style.paint(title, "dim"), "", *text.splitlines()]
    return HOME + "".join(f"{line}{REST_OF_LINE}\r\n" for line in lines) + BELOW


@contextmanager
def _screen(console: Console) -> Iterator[None]:
    """A screen of its own for as long as it lasts, whatever ends it."""
    console.draw(OPENED)
    try:
        yield
    finally:
        console.draw(CLOSED)


@contextmanager
def _keys() -> Iterator[Any]:
    """Whether a key was pressed that ends it, asked for again and again; the terminal is as before afterwards."""
    if not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield lambda: _is_pressed(keyboard)
    finally:
        with suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _wait() -> bool:
    """Where no keyboard is asked, what was seen last is looked at as often."""
    time.sleep(POLL_S)
    return False


def _is_pressed(keyboard: int) -> bool:
    """Whether a key that ends it is pressed within a moment, or nobody can press one any more."""
    ready, _, _ = select.select([keyboard], [], [], POLL_S)
    if not ready:
        return False
    keys = os.read(keyboard, 64)
    return not keys or any(key in QUIT for key in keys)
