"""The options of ``bench`` but for those of speech alone, and how their words are understood."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from provisioner.cli.options import option

MOST_TOKENS = 131_072
MOST_CHUNKS = 10_000
MOST_CLIENTS, MOST_NUMBERS = 512, 20
LEAST_S, MOST_S = 0.001, 3600
PERCENT = 100
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of every kind of ``bench``, but those that say something of speech alone."""

    tokens: tuple[int, int]
    sweep: Mapping[str, Sequence[str]]
    depth: tuple[int, ...]
    model: str | None
    url: str | None
    key: str | None
    clients: tuple[int, ...]
    within: tuple[float, float]
    parent: str | None
    text: Path | None
    chunks: int | None
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
    from provisioner.measuring.engine import SWEPT

    found: dict[str, list[str]] = {}
    for text in values:
        name, _, said = text.partition("=")
        told = [value for value in said.split(",") if value]
        if name not in SWEPT or not told:
            known = ", ".join(f"{one}=VALUE,…" for one in SWEPT)
            raise click.BadParameter(f"{text[:LONGEST_NAME]!r} is none of {known}")
        found[name] = told
    return found


def _depths(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Numbers of tokens, each once: ``--depth 0,4096``."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) <= MOST_TOKENS for word in words):
        raise click.BadParameter(f"{text[:LONGEST_NAME]!r} are no numbers of tokens up to {MOST_TOKENS}")
    return tuple(sorted({int(word) for word in words}))


def _clients(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Numbers of clients, each once, the smallest first: ``--clients 1,4,16``."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= MOST_CLIENTS for word in words) or len(words) > MOST_NUMBERS:
        raise click.BadParameter(f"{text[:LONGEST_NAME]!r} are no numbers of clients from 1 to {MOST_CLIENTS}")
    return tuple(sorted({int(word) for word in words}))


def _address(_context: click.Context, _parameter: click.Parameter, url: str | None) -> str | None:
    """OpenAI's base URL of a service, without credentials in it."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or "@" in parts.netloc or parts.query or parts.fragment:
        raise click.BadParameter("no address such as https://box.example/v1 (keys are named with --key)")
    return url


def measuring_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of ``Asked``."""
    tokens = click.IntRange(1, MOST_TOKENS)
    decorators = (
        option(
            "--tokens",
            type=(tokens, tokens),
            default=(512, 128),
            show_default=True,
            metavar="READ WRITTEN",
            help="Engine, LLM, load: how many tokens are read, and written.",
        ),
        option(
            "--sweep",
            multiple=True,
            callback=_swept,
            metavar="NAME=VALUE,…",
            help="Engine: other values than it is served with; all combinations.",
        ),
        option(
            "--depth",
            default="0",
            show_default=True,
            callback=_depths,
            metavar="TOKENS,…",
            help="LLM: how many tokens stand before those that are read.",
        ),
        option("--model", default=None, help="LLM, load: which model or alias is asked, where there are several."),
        option(
            "--url",
            default=None,
            callback=_address,
            help="LLM, load: a service that the file does not know, such as https://box.example/v1.",
        ),
        option("--key", default=None, metavar="SECRET", help="LLM, load: the secret that is the key of --url."),
        option(
            "--clients",
            default="1,2,4,8",
            show_default=True,
            callback=_clients,
            metavar="NUMBER,…",
            help="Load: how many ask at once, one number after the other.",
        ),
        option(
            "--within",
            type=(click.FloatRange(LEAST_S, MOST_S), click.FloatRange(LEAST_S, MOST_S)),
            default=(2, 0.1),
            show_default=True,
            metavar="FIRST EACH",
            help="Load: seconds to the first token, and for each further one, of a good answer.",
        ),
        option(
            "--parent", default=None, metavar="MODEL", help="Quality: the model of the engine that all others are of."
        ),
        option(
            "--text",
            type=click.Path(dir_okay=False, path_type=Path),
            default=None,
            metavar="FILE",
            help="Quality: what they read, in UTF-8.",
        ),
        option("--chunks", type=click.IntRange(1, MOST_CHUNKS), default=None, help="Quality: of 512 tokens; else 32."),
        option(
            "--trials",
            type=click.IntRange(2, 999),
            default=None,
            help="Engine, LLM: how often; else up to 60 times. Speech: as --runs.",
        ),
        option(
            "--gate",
            is_flag=True,
            help="All but quality: end with 3 where it has become slower than what was accepted.",
        ),
        option(
            "--threshold",
            type=click.FloatRange(0, PERCENT),
            default=5,
            show_default=True,
            metavar="PERCENT",
            help="All but quality: how much slower it may be.",
        ),
        option("--accept", is_flag=True, help="All but quality: have later results held against this one."),
        option("--history", is_flag=True, help="Show what was kept, and measure nothing."),
        option(
            "--compare",
            type=(str, str),
            default=None,
            metavar="A B",
            help="Hold two results against each other: numbers of --history, 'accepted', containers, or files.",
        ),
        option("--refuse", is_flag=True, help="Engine, quality: go on where requests wait for longer than they may."),
        option("--yes", is_flag=True, help="All but speech: do not ask."),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
