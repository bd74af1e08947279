"""Whose turn it is: every order of messages, restarts and ends, and never two that have the card."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.ansible.switch_programs import program

turns = program("turns")
Turn: Any = turns.Turn


class Forgetful(Turn):  # type: ignore[misc]  # the program is loaded by its path
    """One that permits it to another and still counts on the permission that it had of that one."""

    def _permits(self, other: int, count: int, *, holds: bool) -> bool:
        permissions = set(self._permissions)
        given: bool = super()._permits(other, count, holds=holds)
        self._permissions |= permissions
        return given


class Late(Turn):  # type: ignore[misc]
    """One that takes a permission for good that was on its way while it gave one itself."""

    def _take(self, other: int, asked: Any) -> None:
        super()._take(other, turns.Question(asked.count, asked.holds, self._rounds.get(other, 0)))


@dataclass
class Lab:
    """Members that ask one another, with messages that take their time, and keepers that are started anew."""

    members: int
    chance: random.Random
    made: Callable[..., Any] = turns.Turn
    now: float = 0.0
    runs: set[int] = field(default_factory=set)
    """The engines that run."""
    served: list[int] = field(default_factory=list)
    turn: list[Any] = field(default_factory=list)
    wants: set[int] = field(default_factory=set)
    on_the_way: list[Callable[[], None]] = field(default_factory=list)
    life: list[int] = field(default_factory=list)
    """How often each keeper was started: what was on its way to an earlier one is lost."""

    def __post_init__(self) -> None:
        """All keepers are there, and no engine runs."""
        self.turn = [self._keeper(place) for place in range(self.members)]
        self.life = [0] * self.members

    def _keeper(self, place: int) -> Any:
        return self.made(place, self.members, place in self.runs, lambda: self.now)

    def step(self) -> None:
        """Something happens."""
        self.now += 0.1
        place = self.chance.randrange(self.members)
        what = self.chance.random()
        if self.on_the_way and what < 0.5:  # in no order
            self.on_the_way.pop(self.chance.randrange(len(self.on_the_way)))()
        elif what < 0.75:
            self.ask(place)
        elif what < 0.85:
            self.wants.add(place)
        elif what < 0.92:
            self.end(place)
        elif what < 0.95:
            self.wants.discard(place)
            self.turn[place].forget()
        else:
            self.restart(place)
        self.look()

    def ask(self, place: int) -> None:
        """One that wants the card asks those whose permission it lacks."""
        if place not in self.wants or place in self.runs:
            return
        for other in self.turn[place].want():
            asked, life = self.turn[place].question(other), self.life[place]
            self.on_the_way.append(lambda other=other, asked=asked, life=life: self._arrive(place, other, asked, life))  # type: ignore[misc]

    def _arrive(self, place: int, other: int, asked: Any, life: int) -> None:
        answer = self.turn[other].answer(place, asked.count, holds=asked.holds)
        self.on_the_way.append(lambda: self._hear(place, other, asked, answer, life))

    def _hear(self, place: int, other: int, asked: Any, answer: Any, life: int) -> None:
        if self.life[place] == life:
            self.turn[place].learn(other, asked, answer)

    def look(self) -> None:
        """Whose turn has come starts its engine."""
        for place, turn in enumerate(self.turn):
            if turn.holds and place not in self.runs:
                self.runs.add(place)
                self.wants.discard(place)
                self.served.append(place)

    def end(self, place: int) -> None:
        """An engine that runs ends, and its keeper sees it."""
        if place in self.runs:
            self.runs.discard(place)
            self.turn[place].ended()

    def restart(self, place: int) -> None:
        """A keeper is killed, and the next one knows only whether its engine runs."""
        self.life[place] += 1
        self.turn[place] = self._keeper(place)


def most_at_once(seed: int, made: Callable[..., Any] = turns.Turn, steps: int = 600) -> int:
    """How many engines had the card at once at worst."""
    chance = random.Random(seed)  # noqa: S311  # the same order each time
    lab = Lab(chance.randint(2, 4), chance, made)
    most = 0
    for _ in range(steps):
        lab.step()
        most = max(most, len(lab.runs))
    return most


def test_never_two_have_the_card() -> None:
    assert max(most_at_once(seed) for seed in range(200)) == 1


@pytest.mark.parametrize("broken", [Forgetful, Late])
def test_each_of_its_rules_is_needed(broken: type) -> None:
    assert max(most_at_once(seed, broken) for seed in range(200)) > 1


@pytest.mark.parametrize("seed", range(40))
def test_everybody_who_waits_has_a_turn(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # the same order each time
    lab = Lab(chance.randint(2, 4), chance)
    for _ in range(300):
        lab.step()
    lab.wants = set(range(lab.members)) - lab.runs
    waiting, before = set(lab.wants), len(lab.served)
    for _ in range(60):
        for place in range(lab.members):
            lab.ask(place)
        for message in [*lab.on_the_way]:
            lab.on_the_way.remove(message)
            message()
        lab.look()
        for place in [place for place in lab.runs if chance.random() < 0.3]:
            lab.end(place)
    assert waiting <= set(lab.served[before:])


def two() -> tuple[Any, Any]:
    """Two members, of which none has the card."""
    return turns.Turn(0, 2, holds=False), turns.Turn(1, 2, holds=False)


def asks(one: Any, other: Any) -> bool:
    """One asks the other; whether it is its turn then."""
    one.want()
    asked = one.question(other.place)
    one.learn(other.place, asked, other.answer(one.place, asked.count, holds=asked.holds))
    held: bool = one.holds
    return held


def test_who_asked_first_comes_first() -> None:
    first, second, third = (turns.Turn(place, 3, holds=place == 0) for place in range(3))
    for one, other in ((third, first), (third, second), (second, first), (second, third)):
        assert not asks(one, other)
    assert first.waiting() == [1, 2]
    first.ended()
    assert not asks(second, first)  # it lacks the permission of the third, which asked before
    assert not asks(second, third)
    assert asks(third, first)


def test_of_two_tickets_with_one_number_that_of_the_first_in_the_list_counts() -> None:
    one, other = two()
    one.want()
    other.want()
    assert not asks(other, one)
    assert asks(one, other)


def test_one_that_was_served_queues_behind_those_that_wait() -> None:
    one, other = two()
    assert asks(one, other)
    assert not asks(other, one)
    one.ended()
    assert not asks(one, other)
    assert asks(other, one)


def test_one_that_asks_no_more_is_not_waited_for() -> None:
    now = [0.0]
    one, other = turns.Turn(0, 2, True, lambda: now[0]), turns.Turn(1, 2, holds=False)
    asks(other, one)
    assert one.waiting() == [1]
    now[0] += turns.ASKED_S + 1
    assert one.waiting() == []


def test_of_two_that_have_the_card_the_later_in_the_list_makes_way() -> None:
    one, other = turns.Turn(0, 2, holds=True), turns.Turn(1, 2, holds=True)
    for asker, asked in ((one, other), (other, one)):
        question = asker.question(asked.place)
        asker.learn(asked.place, question, asked.answer(asker.place, question.count, holds=question.holds))
    assert (one.waiting(), other.waiting()) == ([], [0])


def test_who_is_not_there_is_done_without() -> None:
    one, _ = two()
    one.want()
    asked = one.question(1)
    one.miss(1, asked)
    assert one.holds


def test_who_has_given_up_gets_no_turn_by_an_answer_that_comes_late() -> None:
    one, other = two()
    one.want()
    asked = one.question(1)
    answer = other.answer(0, asked.count, holds=False)
    one.forget()
    one.learn(1, asked, answer)
    assert not one.holds
