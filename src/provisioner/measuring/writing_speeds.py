"""How fast models were measured to write on one card, by their files: by that ``suggest`` ranks them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from provisioner.loads.candidates import Measured
from provisioner.measuring import engine, llm
from provisioner.measuring.history import Result

WRITING = re.compile(r"tg\d+(?: @ d(\d+))?", re.ASCII)
"""The names of series that say how fast is written, and behind how many tokens."""
NO_DEVICE = "none"
ENGINE, CACHE = "engine", "cache"
"""The options by which results of clients say how a folder was served."""
ASKED = frozenset({"model", "p", "n", "d", ENGINE, CACHE})
"""All options of what clients see; a result with others was served in a way that nothing is suggested in."""


def writing_speeds(results: Iterable[Result], is_that_card: Callable[[str], bool]) -> dict[str, list[Measured]]:
    """What was measured on that card, in the order of the results, by the SHA-256 under which each keeps its model.

    ``is_that_card``: of a name that its driver has told; results without one were measured on the CPU. Those of
    ``bench --kind llm`` say what clients see, and of models that are folders by which engine and with which cache; of
    others they do not say how they were served.
    """
    found: dict[str, list[Measured]] = {}
    for result in results:
        setting = result.setting
        if not setting.model or not setting.card or not is_that_card(setting.card):
            continue
        for measured in _measured_in(result):
            found.setdefault(setting.model, []).append(measured)
    return found


def _measured_in(result: Result) -> Iterator[Measured]:
    options = result.setting.options
    is_engine = result.kind == engine.KIND
    if not is_engine and result.kind != llm.KIND:
        return
    if _computes_elsewhere(options) if is_engine else not options.keys() <= ASKED:
        return
    for series in result.series:
        name = WRITING.fullmatch(series.name)
        if name is None:
            continue
        depth = int(name[1] or 0)
        if is_engine:
            yield _as_served(series.middle, result.at, depth, options)
        else:
            yield _as_clients_saw(series.middle, result.at, depth, options)


def _computes_elsewhere(options: Mapping[str, str]) -> bool:
    """Whether llama-bench was told to leave the cache, or everything, off the card."""
    return options.get("nkvo") == "1" or options.get("dev") == NO_DEVICE


def _as_clients_saw(per_s: float, at: str, depth: int, options: Mapping[str, str]) -> Measured:
    """What clients saw, with the engine and the cache where they are told."""
    engine, cache = options.get(ENGINE, ""), options.get(CACHE, "")
    return Measured(per_s, at, depth, is_told=bool(engine and cache), engine=engine, cache=cache, by_clients=True)


def _as_served(per_s: float, at: str, depth: int, options: Mapping[str, str]) -> Measured:
    """With the words of llama-bench; what is not said is its default: all on the card, and a cache that is whole."""
    layers = _number(options.get("ngl", ""))
    return Measured(
        per_s,
        at,
        depth,
        keys=options.get("ctk", "f16"),
        values=options.get("ctv", "f16"),
        gpu_layers=layers,
        experts=_number(options.get("ncmoe", "")) or 0,
    )


def _number(text: str) -> int | None:
    """A count; None for what stands for all, and where nothing is said."""
    return int(text) if text.isdecimal() else None
