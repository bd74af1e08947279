"""What an engine computes in a second, without its server: what its container is asked, and what comes of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.measuring.engines import WITHOUT, Engine
from provisioner.measuring.history import Result, Setting
from provisioner.measuring.llama_bench import UnknownLineError, command_of, figures, options_of
from provisioner.measuring.series import Series, Trial
from provisioner.services.base import EngineBench
from provisioner.values.plain_data import json_value

KIND = "engine"
UNIT = "tokens/s"
JSON = "{"
"""With what lines of llama-bench begin that say figures."""
BENCH = "bench"
"""What a container is asked to do, beside what ``trials`` and the agent are asked."""


@dataclass(frozen=True, slots=True)
class Served:
    """With which command an engine is served, and on what."""

    words: tuple[str, ...]
    threads: int
    processor: str
    card: str
    driver: str
    build: str
    model: str
    free: int = 0
    """Bytes of its container's disk that nobody uses."""


@dataclass(frozen=True, slots=True)
class Subject(Engine):
    """An engine that is measured, and how it is served.

    ``start_s``: how long the slowest of its last starts took, 0 where none was measured.
    """

    bench: EngineBench
    served: Served
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One command that is measured, and the trials of each of its figures so far."""

    command: tuple[str, ...]
    trials: dict[str, list[Trial]]

    def add(self, lines: Sequence[str], waited: float) -> None:
        """Add what one start of llama-bench has written.

        Raises ``UnknownLineError`` where that are not its figures, the same ones each time.
        """
        try:
            said = [json_value(line) for line in lines]
        except ValueError as error:
            raise UnknownLineError(f"llama-bench wrote no JSON: {error}") from error
        found = {figure.name: figure for figure in figures(said)}
        if not found or len(found) != len(lines) or (self.trials and found.keys() != self.trials.keys()):
            raise UnknownLineError(f"llama-bench told {', '.join(found) or 'no figure'} in {len(lines)} lines")
        for figure in found.values():
            self.trials.setdefault(figure.name, []).append(Trial(figure.per_s, waited))

    def result(self, subject: Subject, at: str) -> Result:
        """What was measured."""
        series = tuple(Series(name, UNIT, tuple(trials)) for name, trials in self.trials.items())
        return Result(at, KIND, str(subject.service.address), setting_of(subject, self.command), series)


def arrangements(
    subject: Subject, tokens: tuple[int, int], swept: Sequence[Mapping[str, str]]
) -> tuple[Arrangement, ...]:
    """Each command that is measured: one for each combination of what is swept."""
    served = subject.served
    commands = (command_of(served.words, served.threads, tokens, changed) for changed in swept)
    return tuple(Arrangement(tuple(command), {}) for command in commands)


def setting_of(subject: Subject, command: Sequence[str]) -> Setting:
    """On what that is measured, and with which options."""
    served = subject.served
    return Setting(
        host=subject.instance.host,
        processor=f"{served.processor}, {served.threads} of them",
        card=served.card,
        driver=served.driver,
        build=served.build,
        model=served.model,
        options=options_of(command),
    )


def question(subject: Engine, bench: EngineBench, command: Sequence[str], within_s: float) -> dict[str, Any]:
    """What the container is asked; with an empty command how its engine is served."""
    return {
        "do": BENCH,
        "unit": subject.unit,
        "program": bench.serves,
        "command": list(command),
        "without": list(WITHOUT),
        "no_room": list(bench.no_room),
        "within_s": within_s,
        "begins": JSON,
        "text": "",
        "most_bytes": 0,
    }


def words_of(options: Mapping[str, str]) -> str:
    """Options in one line, such as ``b=2048 t=4``."""
    return " ".join(f"{name}={json.dumps(value) if ' ' in value else value}" for name, value in options.items())
