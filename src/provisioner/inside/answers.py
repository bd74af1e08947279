"""Answers that programs in a container may give: only what they were asked, of the types that they send. Pure.

A container belongs to whoever works in it. Its answer is a stranger's data: it counts for that container alone, and one
that is not as it should be is damaged as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from ipaddress import ip_address
from typing import Any

from provisioner.values.state import Managed

Check = Callable[[Any, str], None]

TEXT = 4096
"""Characters; what the agent says in words is a line."""
ENTRIES = 100_000
NAME = 255
KINDS = tuple(field.name for field in fields(Managed))
LOWEST_STATUS, HIGHEST_STATUS = 100, 999
HIGHEST_PORT = 65535
MOST_TOKENS = 2**30
MOST_FOLLOWING = 1000
MOST_LAYERS = 100_000
MOST_BYTES = 2**60

LOOKED = ("stamps", "leftovers", "verdict", "rest", "unit", "health", "closed", "damaged")
LATEST_S = 2**35
"""Seconds of the epoch; long after every container, and a year that can be written."""
LONGEST_START_S = 2**20


class DamagedAnswerError(ValueError):
    """An answer is not one that the agent would give; the text says where and why."""


def look_answer(answer: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to the request ``asked`` (``do: look``), as it is; ``DamagedAnswerError``, else."""
    services = asked["services"]
    units = {one["address"] for one in services if one["unit"]}
    pages = {one["address"] for one in services if one["health"]}
    found: dict[str, Any] = _object(answer, "it", LOOKED)
    _exactly(found["stamps"], "stamps", asked["roles"], _stamp)
    _exactly(found["unit"], "unit", units, _text)
    _exactly(found["health"], "health", pages, _status)
    _some(found["verdict"], "verdict", units, _verdict)
    _some(found["rest"], "rest", units, _rest)
    _list(found["leftovers"], "leftovers", _name)
    _some_of(found["closed"], "closed", {one["address"] for one in services if one["closed_by"]})
    _some_of(found["damaged"], "damaged", asked["manifests"])
    return found


def stamp_answer(answer: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to the request ``asked`` (``do: stamp``), as it is; ``DamagedAnswerError``, else."""
    if isinstance(answer, dict) and "problem" in answer:
        found: dict[str, Any] = _object(answer, "it", ("problem",))
        _text(found["problem"], "problem")
        return found
    found = _object(answer, "it", ("unmended",))
    _exactly(found["unmended"], "unmended", asked["compare"], _changes)
    return found


def openings_answer(answer: Any, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of ``exposure`` to the question ``asked``, as it is; ``DamagedAnswerError``, else."""
    found = _object(answer, "it", ("sockets", "problem", "doors"))
    _text(found["problem"], "problem")
    _list(found["sockets"], "sockets", _socket)
    _list(found["doors"], "doors", _door)
    names = [door["name"] for door in asked["doors"]]
    if [door["name"] for door in found["doors"]] != names:
        raise DamagedAnswerError("doors: others than were asked for")
    return found


def egress_answer(answer: Any) -> dict[str, Any]:
    """Return the answer of role ``egress``, which asked as a service, as it is; ``DamagedAnswerError``, else."""
    found = _object(answer, "it", ("asked", "reached", "refused"))
    _count(found["refused"], "refused", MOST_BYTES)
    for word in ("asked", "reached"):
        _list(found[word], word, _text)
    return found


def places_reached(answer: Any) -> list[str]:
    """Return those of the places that were asked which answered, as HOST:PORT; ``DamagedAnswerError`` for no answer."""
    reached: list[str] = []
    _list(answer, "it", lambda *_: None)
    for one in answer:
        host, port, code = _parts(one, "place", 3)
        _text(host, "host")
        _count(port, "port", HIGHEST_PORT)
        if code == 0:
            reached.append(f"{host}:{port}")
    return reached


def trial_answer(answer: Any, outcomes: Mapping[str, int]) -> dict[str, Any]:
    """The answer of ``trial``, as it is, with one of these outcomes; ``DamagedAnswerError``, else.

    ``outcomes``: with each how many prompts were heard at least.
    """
    found = _object(answer, "it", ("outcome", "words", "load_s", "sent", "heard", "layers", "memory", "left", "card"))
    _count(found["sent"], "sent", MOST_TOKENS)
    for layers in _parts(found["layers"], "layers", 2):
        _count(layers, "layers", MOST_LAYERS)
    for word in ("memory", "left", "card"):
        if found[word] != -1:
            _count(found[word], word, MOST_BYTES)
    _one_of(found["outcome"], outcomes)
    _text(found["words"], "words")
    _seconds(found["load_s"], "load_s")
    _list(found["heard"], "heard", _heard)
    wanted = outcomes[found["outcome"]]
    if len(found["heard"]) < wanted:
        raise DamagedAnswerError(f"heard: {len(found['heard'])} of {wanted} answers")
    return found


def served_answer(answer: Any) -> dict[str, Any]:
    """What ``engine_bench`` says of how an engine is served, as it is; ``DamagedAnswerError``, else."""
    texts = ("processor", "card", "driver", "build", "model")
    found = _object(answer, "it", ("words", "threads", "free", *texts))
    _count(found["free"], "free", MOST_BYTES)
    _list(found["words"], "words", _text)
    _count(found["threads"], "threads", ENTRIES)
    for word in texts:
        _text(found[word], word)
    return found


def bench_answer(answer: Any, outcomes: Collection[str]) -> dict[str, Any]:
    """What ``engine_bench`` says of one measurement, as it is; ``DamagedAnswerError``, else."""
    found = _object(answer, "it", ("outcome", "words", "lines", "took_s", "waited"))
    _text(found["words"], "words")
    _one_of(found["outcome"], outcomes)
    _list(found["lines"], "lines", _text)
    _seconds(found["took_s"], "took_s")
    if found["waited"] != -1:
        _seconds(found["waited"], "waited")
    return found


def load_answer(answer: Any) -> dict[str, Any]:
    """What ``interference`` says, as it is; ``DamagedAnswerError``, else."""
    found = _object(answer, "it", ("at_s", "waited_us", "throttled_us", "answered"))
    _seconds(found["at_s"], "at_s", LATEST_S)
    for word in ("waited_us", "throttled_us", "answered"):
        if found[word] != -1:
            _count(found[word], word, MOST_BYTES)
    return found


def live_answer(answer: Any, addresses: Collection[str]) -> dict[str, Any]:
    """What ``activity`` says of these services, as it is; ``DamagedAnswerError``, else."""
    found = _object(answer, "it", ("services", "cards"))
    _exactly(found["services"], "services", addresses, _live_service)
    _list(found["cards"], "cards", _card)
    return found


def _live_service(value: Any, where: str) -> None:
    texts, counts = ("unit", "start", "status", "check", "problem"), ("running", "waiting", "vram")
    said = _object(value, where, (*texts, *counts, "sleeps", "at_s", "models"))
    for word in texts:
        _text(said[word], where)
    for word in counts:
        if said[word] != -1:
            _count(said[word], f"{where}: {word}", MOST_BYTES)
    if not isinstance(said["sleeps"], bool):
        raise DamagedAnswerError(f"{where}: sleeps is neither true nor false")
    _seconds(said["at_s"], f"{where}: at_s", LATEST_S)
    _list(said["models"], where, _live_model)


def _live_model(value: Any, where: str) -> None:
    model = _object(value, where, ("name", "samples", "slots"))
    _text(model["name"], where)
    _list(model["samples"], where, _sample)
    if model["slots"] is not None:
        _list(model["slots"], where, _slot)


def _sample(value: Any, where: str) -> None:
    name, number = _parts(value, where, 2)
    _text(name, where)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= MOST_BYTES:
        raise DamagedAnswerError(f"{where}: {name[:NAME]!r} has no number")


def _slot(value: Any, where: str) -> None:
    for number in _parts(value, where, 4):
        _count(number, where, MOST_TOKENS)


def _card(value: Any, where: str) -> None:
    name, used, size = _parts(value, where, 3)
    _text(name, where)
    for number in (used, size):
        _count(number, where, MOST_BYTES)


def _one_of(outcome: Any, outcomes: Collection[str]) -> None:
    _text(outcome, "outcome")
    if outcome not in outcomes:
        raise DamagedAnswerError(f"outcome: {outcome[:NAME]!r} is none of {', '.join(outcomes)}")


def _heard(value: Any, where: str) -> None:
    heard = _object(value, where, ("tokens", "following"))
    _count(heard["tokens"], where, MOST_TOKENS)
    if not isinstance(heard["following"], dict) or len(heard["following"]) > MOST_FOLLOWING:
        raise DamagedAnswerError(f"{where}: no log-probabilities")
    for token, likely in heard["following"].items():
        _text(token, where)
        if not isinstance(likely, int | float) or isinstance(likely, bool):
            raise DamagedAnswerError(f"{where}: {str(likely)[:NAME]!r} is no log-probability")


def _seconds(value: Any, where: str, most: float = LONGEST_START_S) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise DamagedAnswerError(f"{where}: {str(value)[:NAME]!r} are no seconds")


def _socket(value: Any, where: str) -> None:
    protocol, address, port, unit = _parts(value, where, 4)
    for text in (protocol, unit):
        _text(text, where)
    _text(address, where)
    try:
        ip_address(address)
    except ValueError as error:
        raise DamagedAnswerError(f"{where}: {address[:NAME]!r} is no address") from error
    _count(port, where, HIGHEST_PORT)


def _door(value: Any, where: str) -> None:
    door = _object(value, where, ("name", "url", "asked", "answered", "silent", "left", "problem"))
    for word in ("name", "url", "problem"):
        _text(door[word], where)
    for word in ("asked", "silent", "left"):
        _count(door[word], where, ENTRIES)
    _list(door["answered"], where, _answered)


def _answered(value: Any, where: str) -> None:
    method, path, status, way = _parts(value, where, 4)
    for text in (method, path, way):
        _text(text, where)
    _count(status, where, HIGHEST_STATUS)


def _parts(value: Any, where: str, number: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != number:
        raise DamagedAnswerError(f"{where}: no list of {number}")
    return value


def _count(value: Any, where: str, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise DamagedAnswerError(f"{where}: no number up to {most}")


def _stamp(value: Any, where: str) -> None:
    if isinstance(value, dict) and "problem" in value:
        _text(_object(value, where, ("problem",))["problem"], where)
        return
    stamp = _object(value, where, ("inputs", "secrets", "salt", "changed"))
    inputs = _object(stamp["inputs"], f"{where}: inputs", ("role", "variables"), optional=("ansible-core",))
    _texts(inputs["variables"], f"{where}: variables")
    _texts({name: text for name, text in inputs.items() if name != "variables"}, f"{where}: inputs")
    _texts(stamp["secrets"], f"{where}: secrets")
    _text(stamp["salt"], f"{where}: salt")
    _changes(stamp["changed"], where)


def _changes(value: Any, where: str) -> None:
    _list(value, where, _change)


def _change(value: Any, where: str) -> None:
    if not isinstance(value, list) or len(value) != len(("kind", "name", "words")):
        raise DamagedAnswerError(f"{where}: a change is no list of kind, name and words")
    for part in value:
        _text(part, where)
    if value[0] not in KINDS:
        raise DamagedAnswerError(f"{where}: there is no kind {value[0][:NAME]!r}")


def _verdict(value: Any, where: str) -> None:
    _texts(_object(value, where, ("verdict", "why", "stale")), where)


def _rest(value: Any, where: str) -> None:
    rest = _object(value, where, ("since", "proved", "start_s"))
    for name, most in (("since", LATEST_S), ("proved", LATEST_S), ("start_s", LONGEST_START_S)):
        number = rest[name]
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= most:
            raise DamagedAnswerError(f"{where}: {name} is no number of seconds")


def _status(value: Any, where: str) -> None:
    """An HTTP status, or the words of the failure."""
    if isinstance(value, int) and not isinstance(value, bool) and LOWEST_STATUS <= value <= HIGHEST_STATUS:
        return
    _text(value, where)


def _name(value: Any, where: str) -> None:
    _text(value, where)
    if not value or len(value) > NAME or "/" in value or not value.isprintable():
        raise DamagedAnswerError(f"{where}: {value[:NAME]!r} is no name of a role")


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise DamagedAnswerError(f"{where}: {type(value).__name__} in the place of a text")
    if len(value) > TEXT:
        raise DamagedAnswerError(f"{where}: a text of {len(value)} characters")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise DamagedAnswerError(f"{where}: a text that is no Unicode")


def _texts(value: Any, where: str) -> None:
    _some(value, where, None, _text)


def _list(value: Any, where: str, check: Check) -> None:
    if not isinstance(value, list):
        raise DamagedAnswerError(f"{where}: {type(value).__name__} in the place of a list")
    if len(value) > ENTRIES:
        raise DamagedAnswerError(f"{where}: a list of {len(value)} entries")
    for one in value:
        check(one, where)


def _some_of(value: Any, where: str, names: Collection[str]) -> None:
    """A list of some of ``names``."""
    _list(value, where, _text)
    foreign = set(value) - set(names)
    if foreign:
        raise DamagedAnswerError(f"{where}: {min(foreign)[:NAME]!r} was not asked for")


def _exactly(value: Any, where: str, names: Collection[str], check: Check) -> None:
    """An object that has each of ``names``, and no other."""
    _some(value, where, names, check)
    missing = set(names) - set(value)
    if missing:
        raise DamagedAnswerError(f"{where}: {min(missing)} is missing")


def _some(value: Any, where: str, names: Collection[str] | None, check: Check) -> None:
    """An object that has some of ``names`` (None: any)."""
    if not isinstance(value, dict):
        raise DamagedAnswerError(f"{where}: {type(value).__name__} in the place of an object")
    if len(value) > ENTRIES:
        raise DamagedAnswerError(f"{where}: an object of {len(value)} entries")
    for name, inner in value.items():
        _text(name, where)
        if names is not None and name not in names:
            raise DamagedAnswerError(f"{where}: {name[:NAME]!r} was not asked for")
        check(inner, f"{where}: {name[:NAME]}")


def _object(value: Any, where: str, keys: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """An object that has all of ``keys``, perhaps ``optional`` ones, and no other."""
    if not isinstance(value, dict):
        raise DamagedAnswerError(f"{where} is no object: {type(value).__name__}")
    unknown = value.keys() - set(keys) - set(optional)
    if unknown:
        raise DamagedAnswerError(f"{where}: {min(unknown)[:NAME]!r} was not asked for")
    missing = set(keys) - value.keys()
    if missing:
        raise DamagedAnswerError(f"{where}: {min(missing)} is missing")
    return value
