"""What ``bench`` measured: a table, when the audio arrived, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from provisioner.bench import Bench, Run, Series, verdict

HEAD = ("container", "on", "text", "format", "voice", "first audio", "all of it", "share", "bursts", "chars/s")
COLUMNS = 60
_MIB = 2**20


def bench_text(benches: Sequence[Bench]) -> str:
    """All of it for a terminal."""
    rows = [HEAD, *(_row(bench, one) for bench in benches for one in bench.series)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*table, "", *_memory(benches), "", *plot(benches), "", *verdict(benches)])


def bench_content(benches: Sequence[Bench]) -> dict[str, Any]:
    """All of it as values: seconds, bytes, characters in a second."""
    return {"benches": [_content(bench) for bench in benches], "verdict": list(verdict(benches))}


def plot(benches: Sequence[Bench]) -> Iterator[str]:
    """When audio arrived, a line for each container and text: ``#`` where a piece came, all on one scale of time."""
    shown = [(bench, one) for bench in benches for text in ("short", "long") if (one := bench.of(text))]
    for text in ("short", "long"):
        lines = [(bench.container, one.typical) for bench, one in shown if one.ask.text == text]
        longest = max((run.last_s for _, run in lines), default=0.0)
        if longest:
            yield f"When audio of the {text} text arrived, in {longest:.2f} s:"
            width = max(len(name) for name, _ in lines)
            yield from (f"  {name.ljust(width)} |{timeline(run, longest)}|" for name, run in lines)


def timeline(run: Run, longest: float) -> str:
    """One line of the plot: ``.`` before anything is heard, ``#`` pieces, ``-`` between them, blanks after them."""
    places = {min(COLUMNS - 1, int(at / longest * COLUMNS)) for at, _ in run.chunks}
    first, last = min(places, default=COLUMNS), max(places, default=-1)
    return "".join("#" if at in places else "." if at < first else "-" if at < last else " " for at in range(COLUMNS))


def _row(bench: Bench, one: Series) -> tuple[str, ...]:
    return (
        bench.container,
        bench.device,
        f"{one.ask.text} ({len(one.ask.words)})",
        one.ask.format,
        one.ask.voice,
        f"{one.first_s:.2f} s",
        f"{one.total_s:.2f} s",
        f"{one.share:.2f}",
        str(one.typical.bursts),
        f"{one.characters_per_s:.0f}",
    )


def _memory(benches: Sequence[Bench]) -> Iterator[str]:
    for bench in benches:
        ram, vram = (f"{size / _MIB:.0f} MiB" if size else "not told" for size in (bench.ram, bench.vram))
        card = "" if bench.device == "cpu" else f", of the card {vram}"
        yield f"{bench.container}: memory {ram}{card}"


def _content(bench: Bench) -> dict[str, Any]:
    series = [
        {
            "text": one.ask.text,
            "characters": len(one.ask.words),
            "format": one.ask.format,
            "voice": one.ask.voice,
            "first_s": one.first_s,
            "total_s": one.total_s,
            "characters_per_s": one.characters_per_s,
            "runs": [asdict(run) for run in one.runs],
        }
        for one in bench.series
    ]
    return {
        "container": bench.container,
        "device": bench.device,
        "ram": bench.ram,
        "vram": bench.vram,
        "series": series,
    }
