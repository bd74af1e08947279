"""The report of ``suggest``: ways to serve a model, and what lies on the card already."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.gpus.bandwidth import GB, MemorySpeed
from provisioner.loads.advice import mib
from provisioner.loads.suggestions import (
    Candidate,
    Left,
    Measured,
    Occupied,
    Server,
    Taken,
    Way,
    bound_per_s,
    measured_of,
)
from provisioner.loads.terms import MIB
from provisioner.report.style import PLAIN, Style, safe_line, table

HEAD = ("FILE", "QUANT", "BITS", "ENGINE", "CONTEXT", "CACHE", "EXPERTS", "TAKES", "LEFT", "TOKENS/S")
LONGEST_NAME = 40
GGUF_SERVER = Server("llama_cpp", "context")
FEW_PER_S = 10
"""Bounds below that have a decimal."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for: the use and its context, and how fast the card's memory is, None where nobody knows."""

    use: str
    context: int
    speed: MemorySpeed | None = None


def suggest_text(ways: Sequence[Way], left: Sequence[Left], asked: Asked, style: Style = PLAIN) -> str:
    """The ways, the best first; how fast they are at most; what is not suggested, and why; what to write."""
    lines = []
    if ways:
        lines += [table(HEAD, [_row(one, asked.speed) for one in ways], style), ""]
        lines += _about_speed(ways, asked.speed)
        if ways[0].context < asked.context:
            lines.append(f"None of them has the {asked.context:,} tokens that {asked.use} should have.")
    else:
        lines.append("Nothing of it fits.")
    lines += left_lines(left)
    if ways:
        lines += [*before_up(ways), "", block_text(ways[0])]
    return "\n".join(lines)


def way_text(way: Way) -> str:
    """What is suggested, in a sentence."""
    name, cache = safe_line(way.candidate.name), way.choice.cache
    return (
        f"{name}: {_server(way.candidate).role}, {way.context:,} tokens, cache {cache}, {way.free // MIB:,} MiB left."
    )


def left_lines(left: Sequence[Left]) -> list[str]:
    """What is not suggested, and why, a line each."""
    return [f"{safe_line(one.candidate.name)}: {safe_line(one.why)}" for one in left]


def suggest_content(ways: Sequence[Way], left: Sequence[Left], speed: MemorySpeed | None) -> dict[str, Any]:
    """All of it as values; sizes in bytes; what nobody knows is None."""
    return {
        "memory_bytes_per_s": speed.bytes_per_s if speed is not None else None,
        "source": speed.source if speed is not None else None,
        "ways": [way_content(one, speed) for one in ways],
        "left": [{"file": one.candidate.name, "why": one.why} for one in left],
    }


def before_up(ways: Sequence[Way]) -> list[str]:
    """What is to be known of engines that were measured on no card, and to be done for the block."""
    unproved = sorted({_server(way.candidate).role for way in ways if way.candidate.form})
    lines = [f"What {engine} takes was added up, and measured on no card." for engine in unproved]
    if ways[0].choice.options.get("kv_cache_dtype") == "fp8":
        lines.append("A cache of fp8 is for cards of compute capability 8.9 or more.")
    if ways[0].candidate.form:
        lock = _server(ways[0].candidate).lock
        lines.append(f"Before up: provision init --secrets makes the keys, {lock} finds the wheels.")
    return lines


def way_content(way: Way, speed: MemorySpeed | None) -> dict[str, Any]:
    """A way as values."""
    candidate, measured = way.candidate, measured_of(way)
    return {
        "file": candidate.name,
        "written": dict(candidate.written),
        "quant": candidate.quant,
        "bits": candidate.bits,
        "engine": _server(candidate).role,
        "context": way.context,
        "cache": way.choice.cache,
        "keys": way.keys,
        "values": way.values,
        "experts_away": way.experts,
        "total": way.total,
        "free": way.free,
        "usable": way.usable,
        "bound_per_s": _bound(way, speed),
        "measured_per_s": measured.per_s if measured else None,
        "measured_at": measured.at if measured else None,
        "measured_depth": measured.depth if measured else None,
        "measured_by": _measured_by(measured),
    }


def _measured_by(measured: Measured | None) -> str | None:
    """The kind of benchmark; None without one."""
    if measured is None:
        return None
    return "llm" if measured.by_clients else "engine"


def _about_speed(ways: Sequence[Way], speed: MemorySpeed | None) -> list[str]:
    """What was measured, what the bounds are, and what they rest on."""
    unmeasured = [way for way in ways if measured_of(way) is None]
    kinds = {measured.by_clients for way in ways if (measured := measured_of(way))}
    lines: list[str] = []
    if False in kinds:
        lines.append("What is measured is what bench has kept of that file on a card of that name.")
    if True in kinds:
        lines.append(
            "What is seen by clients is what bench --kind llm has kept of that file, on a card of that name as well."
        )
    if len(kinds) > 1:
        lines.append("Both are ranked together, and only what clients see has the server and the way to it in it.")
    if not unmeasured:
        return lines
    return lines + _about_bounds(unmeasured, speed)


def _about_bounds(ways: Sequence[Way], speed: MemorySpeed | None) -> list[str]:
    if speed is None:
        return ["TOKENS/S is not known, as no source tells how fast the card's memory is; --gpu takes a name as well."]
    rate = f"{speed.bytes_per_s / GB:,.0f} GB/s"
    lines = [
        f"TOKENS/S is a bound and was not measured: how often the memory of a {speed.name}, {rate} ({speed.source}),",
        "can be read for all that a token needs, with half of the context filled.",
    ]
    if speed.note:
        lines.append(f"That is one {speed.note}.")
    if any(way.experts for way in ways):
        lines.append("Experts in the host's memory are not in that bound, and make it slower.")
    return lines


def _bound(way: Way, speed: MemorySpeed | None) -> float | None:
    return bound_per_s(way, speed.bytes_per_s) if speed is not None else None


def _speed_text(way: Way, speed: MemorySpeed | None) -> str:
    measured = measured_of(way)
    if measured is None:
        return _bound_text(_bound(way, speed))
    return f"{measured.per_s:.1f} {'by clients' if measured.by_clients else 'measured'}"


def _bound_text(bound: float | None) -> str:
    """A bound, rounded up, so that it stays one."""
    if bound is None:
        return "not known"
    if bound < FEW_PER_S:
        return f"≤ {math.ceil(bound * 10) / 10:.1f}"
    return f"≤ {math.ceil(bound)}"


def block_text(way: Way, prefix: str = "") -> str:
    """What is written into a lab's file, so that ``up`` serves it so; ``prefix`` is that of the container's name."""
    candidate, name, server = way.candidate, name_of(way.candidate.name), _server(way.candidate)
    options: dict[str, Any] = {"model": name, server.context: way.context, **way.choice.options}
    if way.experts:
        options |= {"cpu_moe": True} if way.experts >= candidate.load.count else {"n_cpu_moe": way.experts}
    models = [f"  {name}: {_mapping(candidate.written)}"]
    if candidate.eye:
        models.append(f"  {name}-eye: {_mapping(candidate.eye)}")
        options["mmproj"] = f"{name}-eye"
    said = [f"{option}: {_value(value)}" for option, value in options.items()]
    said += [f"{key}: !secret {name}-{key.replace('_', '-')}" for key in server.keys]
    container = [f"  {prefix}{name}:", "    gpu: any"]
    container += [f"    image: {server.image}"] if server.image else []
    served = f"      {server.role}: {{ {', '.join(said)} }}"
    return "\n".join(["models:", *models, "containers:", *container, "    services:", served])


def _server(candidate: Candidate) -> Server:
    """The service that serves it, and what is written for that."""
    return candidate.server or GGUF_SERVER


def _value(value: Any) -> str:
    """An option's value in one line: words as they are, other texts and all that is not one as JSON has it."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name}: {_value(one)}' for name, one in value.items())} }}"
    is_word = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", value)
    return str(value) if is_word else json.dumps(value)


def _mapping(said: Mapping[str, str]) -> str:
    """What is said of a model in one line; JSON's texts are YAML's, whatever is in them."""
    return f"{{ {', '.join(f'{word}: {json.dumps(value)}' for word, value in said.items())} }}"


def name_of(file: str) -> str:
    """A file's name as one of a model and a container."""
    plain = re.sub(r"[^a-z0-9]+", "-", file.lower()).strip("-")[:LONGEST_NAME].strip("-")
    return plain if plain[:1].isalpha() else f"m-{plain}"


def _row(way: Way, speed: MemorySpeed | None) -> tuple[str, ...]:
    candidate = way.candidate
    return (
        safe_line(candidate.name),
        safe_line(candidate.quant) or "not told",
        f"{candidate.bits:.2f}" if candidate.bits else "not told",
        _server(candidate).role,
        f"{way.context:,}",
        way.choice.cache,
        f"{way.experts} of {candidate.load.count} away" if way.experts else "",
        f"{-(-way.total // MIB):,} MiB",
        f"{way.free // MIB:,} MiB",
        _speed_text(way, speed),
    )


# The card as it is: what lies there already, as lines and as values.


def occupied_lines(occupied: Occupied | None, *, is_exclusive: bool = False) -> list[str]:
    """Which card is meant, who takes how much of it, and what of that is not taken off; a blank line at the end.

    Nothing where a card was named, and where nothing of the file lies there.
    """
    if occupied is None or occupied.budget is None:
        return []
    title = safe_line(occupied.card.title)
    if is_exclusive:
        return [
            f"As if nothing of the file lay on {title}, where {mib(occupied.total)} are taken by the sums of fit.",
            "",
        ]
    return [*_taken_lines(occupied, title), ""]


def _taken_lines(occupied: Occupied, title: str) -> Iterator[str]:
    yield f"What services of the file take of {title} by the sums of fit is taken off (--exclusive: none of it):"
    for taken in occupied.taken:
        size = mib(taken.engine.total)
        if taken.engine.unknown:
            size = f"at least {size}, and nobody knows how much: {safe_line(taken.engine.unknown)}"
        besides = f"; not beside {safe_line(', '.join(taken.not_beside))}" if taken.not_beside else ""
        yield f"  {safe_line(taken.engine.address)}: {size}{besides}"


def occupied_content(occupied: Occupied | None) -> dict[str, Any]:
    """The same as values: bytes; ``card`` is None where one was named."""
    if occupied is None:
        return {"card": None, "taken": []}
    return {"card": occupied.card.title, "taken": [_taken_content(taken) for taken in occupied.taken]}


def _taken_content(taken: Taken) -> dict[str, Any]:
    return {
        "service": taken.engine.address,
        "bytes": taken.engine.total,
        "unknown": taken.engine.unknown or None,
        "not_beside": list(taken.not_beside),
    }
