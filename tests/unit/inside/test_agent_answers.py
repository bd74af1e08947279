"""Whatever a container answers, it speaks for itself alone: mutations of a real answer, and each kind of lie."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from provisioner.hosts.fake import Container, FakeProvider
from provisioner.reconcile.gather import probe, reasons_to_run, write_stamps
from provisioner.reconcile.judge import judge, processor
from provisioner.reconcile.observe import asleep_words
from provisioner.services.base import Processor
from provisioner.values.address import Address
from provisioner.values.facts import (
    ContainerFact,
    Health,
    Leftovers,
    Rest,
    RoleStamp,
    Silent,
    Unstamped,
    Verdict,
    by_address,
    of_kind,
)
from provisioner.values.plain_data import answer_value
from provisioner.values.state import Execution, Fleet, Instance, Service, Status

SEED = 19
MUTATIONS = 1500
DIGEST = "0" * 64
STAMP = {
    "inputs": {"role": DIGEST, "variables": {"engine_port": DIGEST}},
    "secrets": {"key": DIGEST},
    "salt": "0123456789abcdef",
    "changed": [["paths", "/etc/engine.conf", "edited"]],
}
REAL: dict[str, Any] = {
    "stamps": {"engine": STAMP, "base": {"problem": "not proved yet"}},
    "leftovers": ["door"],
    "verdict": {"mine/engine": {"verdict": "GPU", "why": "its memory is on the card", "stale": ""}},
    "rest": {"mine/engine": {"since": 1764064800, "proved": 1764061200, "start_s": 3.2}},
    "unit": {"mine/engine": "active"},
    "health": {"mine/engine": 200},
    "closed": [],
    "damaged": [],
}
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**17,
    1.5,
    "",
    "abc",
    "x" * 100_000,
    "\ud800",
    [],
    {},
    [[[]]],
    {"problem": {}},
    ["abc"],
    {"other/engine": 500},
    {"other": "gone"},
)


def roles(name: str) -> tuple[Service, ...]:
    """A base and an engine."""
    variables = {"engine_port": 8080}
    engine = Service("engine", name, "engine", variables, unit="engine.service", port=8080, health="/health")
    return (Service("base", name, "base", {}), engine)


def instance(name: str) -> Instance:
    """A running container with both."""
    base, engine = roles(name)
    return Instance(name, "box", "home", "debian/12", status=Status.RUNNING, base=base, services=(engine,))


MINE, OTHER = instance("mine"), instance("other")


def answers(text: bytes) -> tuple[ContainerFact, ...]:
    """The facts when container ``mine`` says ``text``, and the other one what is true."""
    host = FakeProvider("box")
    true = json.dumps(REAL).replace("mine/", "other/").encode()

    def say(container: Container, _command: Sequence[str], _stdin: bytes, _env: Mapping[str, str]) -> Execution:
        return Execution(0, text if container.instance.name == "mine" else true, b"")

    host.programs["python3"] = say
    for one in (MINE, OTHER):
        host.containers[one.name] = Container(one)
    return probe([MINE, OTHER], {"box": host})


def require_harmless(facts: Sequence[ContainerFact], said: object) -> None:
    """The other container is as it is without this one; this one is as it should be, or said to be damaged."""
    other = [fact for fact in facts if fact.address.container == "other"]
    assert other == OTHERS, said
    for silent in of_kind(facts, Silent):
        assert silent.address == "mine"
        assert "container mine" in silent.error.message
        assert "destroy" not in str(silent.error)
    assert {fact.address.container for fact in facts} == {"mine", "other"}, said
    # Whoever reads the facts has no surprise.
    reasons = reasons_to_run(MINE, facts)
    assert all(isinstance(text, str) for why in reasons.values() for text in why)
    judge(Fleet("home", (MINE,)), Fleet("home", (MINE,)), facts)
    for verdict in of_kind(facts, Verdict):
        processor(verdict, Processor(is_device=True, why=""), runs=True, healthy=True)
    for rest in of_kind(facts, Rest):
        asleep_words(rest)
    json.dumps([[fact.address, str(fact)] for fact in facts])


OTHERS = [fact for fact in answers(json.dumps(REAL).encode()) if fact.address.container == "other"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value within."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def mutated(chance: random.Random) -> Any:
    """A real answer with one to three changes."""
    made = copy.deepcopy(REAL)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice([one for one in places(made) if one] or [("stamps",)])
        holder = made
        for key in path[:-1]:
            holder = holder[key]
        kind = chance.choice(("replace", "remove", "add", "rename"))
        if kind == "replace" or not isinstance(holder, dict):
            holder[path[-1]] = copy.deepcopy(chance.choice(HOSTILE))
        elif kind == "remove":
            del holder[path[-1]]
        elif kind == "add":
            holder[chance.choice(("other/engine", "extra", "x" * 9999, ""))] = copy.deepcopy(chance.choice(HOSTILE))
        else:
            holder["other/engine"] = holder.pop(path[-1])
        if not made:
            break
    return made


def test_a_real_answer_counts() -> None:
    facts = answers(json.dumps(REAL).encode())
    engine, mine = Address("mine/engine"), Address("mine")
    assert of_kind(facts, Silent) == []
    assert by_address(facts, Health)[engine].answer == 200
    stamp = by_address(facts, RoleStamp)[engine]
    changed = [list(change) for change in stamp.changed]
    assert {"inputs": stamp.inputs, "secrets": stamp.secrets, "salt": stamp.salt, "changed": changed} == STAMP
    assert by_address(facts, Leftovers)[mine].roles == ("door",)


def test_no_mutation_of_an_answer_speaks_for_another_or_breaks_anything() -> None:
    chance, damaged = random.Random(SEED), 0  # noqa: S311 - repeatable, not secret
    for number in range(MUTATIONS):
        made = mutated(chance)
        facts = answers(json.dumps(made).encode())
        require_harmless(facts, (number, made))
        damaged += bool(of_kind(facts, Silent))
    assert damaged > MUTATIONS // 2


def test_no_cut_or_broken_text_of_an_answer_breaks_anything() -> None:
    chance, text = random.Random(SEED), json.dumps(REAL).encode()  # noqa: S311 - repeatable, not secret
    for number in range(500):
        broken = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        cut = bytes(broken[: chance.randrange(len(broken))] if number % 2 else broken)
        require_harmless(answers(cut), (number, cut))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'"abc"',
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 500 + b"]" * 500,
        json.dumps(REAL).encode().replace(b"200", b"NaN"),
        json.dumps(REAL).encode().replace(b"200", b"9" * 5000),
        json.dumps(REAL).encode().replace(b"200", b"1e999"),
        json.dumps(REAL).encode().replace(b'"damaged": []', b'"damaged": [], "damaged": ["/srv/a"]'),
        json.dumps(REAL).encode().replace(b"active", b"\xff\xfe"),
        json.dumps(REAL).encode("utf-16"),
        json.dumps({**REAL, "damaged": "abc"}).encode(),
        json.dumps({**REAL, "closed": {"mine/engine": True}}).encode(),
        json.dumps({**REAL, "closed": ["mine/engine"]}).encode(),
        json.dumps({**REAL, "damaged": ["/srv/models/MANIFEST.sha256"]}).encode(),
        json.dumps({**REAL, "health": {"mine/engine": 200, "other/engine": 500}}).encode(),
        json.dumps({**REAL, "health": {"other/engine": 500}}).encode(),
        json.dumps({**REAL, "unit": {"mine/engine": "active", "other/engine": "failed"}}).encode(),
        json.dumps({**REAL, "stamps": {**REAL["stamps"], "other": {"problem": "x"}}}).encode(),
        json.dumps({**REAL, "leftovers": ["../../etc"]}).encode(),
        json.dumps({**REAL, "more": 1}).encode(),
    ],
    ids=lambda text: repr(text[:40]),
)
def test_each_lie_is_said_to_be_damaged(text: bytes) -> None:
    facts = answers(text)
    require_harmless(facts, text[:80])
    (silent,) = of_kind(facts, Silent)
    assert len(str(silent.error)) < 2000


@pytest.mark.parametrize("said", [[], {}, "x", {"problem": []}, {"unmended": {"engine": "x"}}, {"unmended": {"o": []}}])
def test_a_damaged_answer_about_stamps_says_that_nothing_was_stamped(said: Any) -> None:
    host = FakeProvider("box")
    host.programs["python3"] = lambda *_: Execution(0, json.dumps(said).encode(), b"")
    host.containers["mine"] = Container(MINE)
    facts = write_stamps([MINE], {"box": host}, compare={Address("mine/engine"): ()})
    assert [(type(fact), fact.address) for fact in facts] == [(Unstamped, "mine")]


@pytest.mark.parametrize("text", ["1", '"a"', "[1, 2.5, -3]", '{"a": {"b": [null, true]}}', "[" * 60 + "]" * 60])
def test_plain_json_is_read_as_it_is(text: str) -> None:
    assert answer_value(text.encode()) == json.loads(text)
