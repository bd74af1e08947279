"""What ``bench`` is asked of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from provisioner.cli.options import option

MOST_TOKENS = 131_072
PERCENT = 100
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``bench --kind engine``."""

    tokens: tuple[int, int]
    sweep: Mapping[str, Sequence[str]]
    trials: int | None
    gate: bool
    threshold: float
    accept: bool
    history: bool
    compare: tuple[str, str] | None
    refuse: bool
    yes: bool


def _swept(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> dict[str, list[str]]:
    """What is swept, by its name: ``--sweep batch=512,2048``."""
    from provisioner.measuring.llama_bench import SWEPT

    found: dict[str, list[str]] = {}
    for text in values:
        name, _, said = text.partition("=")
        told = [value for value in said.split(",") if value]
        if name not in SWEPT or not told:
            known = ", ".join(f"{one}=VALUE,…" for one in SWEPT)
            raise click.BadParameter(f"{text[:LONGEST_NAME]!r} is none of {known}")
        found[name] = told
    return found


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of ``Asked``."""
    tokens = click.IntRange(1, MOST_TOKENS)
    decorators = (
        option(
            "--tokens",
            type=(tokens, tokens),
            default=(512, 128),
            show_default=True,
            metavar="READ WRITTEN",
            help="Engine: how many tokens are read, and written.",
        ),
        option(
            "--sweep",
            multiple=True,
            callback=_swept,
            metavar="NAME=VALUE,…",
            help="Engine: other values than it is served with; all combinations.",
        ),
        option("--trials", type=click.IntRange(2, 999), default=None, help="Engine: how often; else up to 60 times."),
        option("--gate", is_flag=True, help="Engine: end with 3 where it has become slower than what was accepted."),
        option(
            "--threshold",
            type=click.FloatRange(0, PERCENT),
            default=5,
            show_default=True,
            metavar="PERCENT",
            help="Engine: how much slower it may be.",
        ),
        option("--accept", is_flag=True, help="Engine: have later results held against this one."),
        option("--history", is_flag=True, help="Engine: show what was kept, and measure nothing."),
        option(
            "--compare",
            type=(str, str),
            default=None,
            metavar="A B",
            help="Engine: hold two results against each other: numbers of --history, 'accepted', or files.",
        ),
        option("--refuse", is_flag=True, help="Engine: go on where requests wait for longer than they may."),
        option("--yes", is_flag=True, help="Engine: do not ask."),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
