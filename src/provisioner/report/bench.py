"""What ``bench`` measured: a table, when the audio arrived, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from provisioner.bench import Bench, Run, Series, verdict
from provisioner.report.style import aligned

HEAD = ("container", "on", "text", "format", "voice", "first audio", "all of it", "share", "bursts", "chars/s")
COLUMNS = 60
_MIB = 2**20


def bench_text(benches: Sequence[Bench]) -> str:
    """All of it for a terminal."""
    rows: list[tuple[str, ...]] = [HEAD]
    for bench in benches:
        rows += [_row(bench, series) for series in bench.series]
    return "\n".join([*aligned(rows), "", *_memory(benches), "", *plot(benches), "", *verdict(benches)])


def bench_content(benches: Sequence[Bench]) -> dict[str, Any]:
    """All of it as values: seconds, bytes, characters in a second."""
    return {"benches": [_content(bench) for bench in benches], "verdict": list(verdict(benches))}


def plot(benches: Sequence[Bench]) -> Iterator[str]:
    """When audio arrived, a line for each container and text: ``#`` where a piece came, all on one scale of time."""
    for text in ("short", "long"):
        runs = _typical_runs(benches, text)
        longest = max((run.last_s for _, run in runs), default=0.0)
        if not longest:
            continue
        yield f"When audio of the {text} text arrived, in {longest:.2f} s:"
        width = max(len(container) for container, _ in runs)
        for container, run in runs:
            yield f"  {container.ljust(width)} |{timeline(run, longest)}|"


def _typical_runs(benches: Sequence[Bench], text: str) -> list[tuple[str, Run]]:
    """The containers that read this text ("short", "long"), each with its typical run."""
    runs = []
    for bench in benches:
        series = bench.of(text)
        if series is not None:
            runs.append((bench.container, series.typical))
    return runs


def timeline(run: Run, longest: float) -> str:
    """One line of the plot: ``.`` before anything is heard, ``#`` pieces, ``-`` between them, blanks after them."""
    columns = {min(COLUMNS - 1, int(at / longest * COLUMNS)) for at, _ in run.chunks}
    if not columns:
        return "." * COLUMNS
    first, last = min(columns), max(columns)
    heard = "".join("#" if column in columns else "-" for column in range(first, last + 1))
    return f"{'.' * first}{heard}".ljust(COLUMNS)


def _row(bench: Bench, series: Series) -> tuple[str, ...]:
    return (
        bench.container,
        bench.device,
        f"{series.ask.text} ({len(series.ask.words)})",
        series.ask.format,
        series.ask.voice,
        f"{series.first_s:.2f} s",
        f"{series.total_s:.2f} s",
        f"{series.share:.2f}",
        str(series.typical.bursts),
        f"{series.characters_per_s:.0f}",
    )


def _memory(benches: Sequence[Bench]) -> Iterator[str]:
    for bench in benches:
        card = "" if bench.device != "gpu" else f", of the card {_mib(bench.vram)}"
        yield f"{bench.container}: memory {_mib(bench.ram)}{card}"
        if bench.cold is not None:
            first, last = bench.cold.first_s, bench.cold.last_s
            yield f"{bench.container}: the first answer of all came after {first:.2f} s, all of it after {last:.2f} s"


def _mib(size: int | None) -> str:
    return f"{size / _MIB:.0f} MiB" if size else "not told"


def _content(bench: Bench) -> dict[str, Any]:
    return {
        "container": bench.container,
        "device": bench.device,
        "ram": bench.ram,
        "vram": bench.vram,
        "cold": asdict(bench.cold) if bench.cold is not None else None,
        "series": [_series_content(series) for series in bench.series],
    }


def _series_content(series: Series) -> dict[str, Any]:
    return {
        "text": series.ask.text,
        "characters": len(series.ask.words),
        "format": series.ask.format,
        "voice": series.ask.voice,
        "first_s": series.first_s,
        "total_s": series.total_s,
        "characters_per_s": series.characters_per_s,
        "runs": [asdict(run) for run in series.runs],
    }
