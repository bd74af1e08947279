"""One question to the team, from the coordinator's first turn to the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents import ModelSettings, RunHooks, Runner
from agents.exceptions import MaxTurnsExceeded
from budget import Budget, LimitReachedError, Limits
from members import COORDINATOR, CountedModel, Run, Team, build, run_config
from openai import AsyncOpenAI
from transcript import HandOver, thought
from wire import LENGTH, STOP, Question, masked

CLOSING_S = 5.0
"""How long what is cut off may take to end."""


@dataclass(frozen=True)
class Thought:
    """Something that the team did on the way."""

    text: str


@dataclass(frozen=True)
class Piece:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class End:
    """The answer is there; ``reason`` as OpenAI says it."""

    reason: str
    read: int
    written: int


@dataclass(frozen=True)
class Failure:
    """There is no answer."""

    status: int
    code: str
    text: str


Event = Thought | Piece | End | Failure


@dataclass
class _Course:
    """What has happened to a question so far."""

    tell: Callable[[Event], None]
    note: Callable[[HandOver], None]
    answers: list[tuple[str, str]] = field(default_factory=list)
    """Of members, with their names."""
    steps: int = 0
    wrote: bool = False
    """Whether the coordinator has written anything."""
    begins: bool = False
    """Whether its next piece begins a new turn."""

    def hand_over(self, giver: str, taker: str, text: str) -> None:
        self.steps += 1
        made = HandOver(self.steps, giver, taker, text)
        self.note(made)
        self.tell(Thought(thought(made)))
        self.begins = True

    def write(self, text: str) -> None:
        if self.begins and self.wrote:
            self.tell(Piece("\n\n"))
        self.begins, self.wrote = False, True
        self.tell(Piece(text))


class _Hooks(RunHooks[None]):
    """What the library tells of hand-overs."""

    def __init__(self, course: _Course) -> None:
        self._course = course

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:  # noqa: ARG002
        """The coordinator asks a member."""
        self._course.hand_over(COORDINATOR, tool.name, _asked(getattr(context, "tool_arguments", "")))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:  # noqa: ARG002
        """A member has answered."""
        self._course.answers.append((tool.name, str(result)))
        self._course.hand_over(tool.name, COORDINATOR, str(result))


def _asked(arguments: str) -> str:
    """What a member is asked: the ``input`` of its call."""
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(arguments)
        if isinstance(said, dict):
            return str(said.get("input", ""))
    return arguments


async def answer(
    team: Team,
    clients: Mapping[str, AsyncOpenAI],
    limits: Limits,
    question: Question,
    note: Callable[[HandOver], None],
) -> AsyncIterator[Event]:
    """What happens until the answer is there; the last event is ``End`` or ``Failure``.

    Whoever stops to listen ends the question, and with it the request that an engine is at.
    """
    events: asyncio.Queue[Event] = asyncio.Queue()
    course = _Course(events.put_nowait, note)
    task = asyncio.create_task(_run(team, clients, limits, question, course))
    try:
        while True:
            event = await events.get()
            yield event
            if isinstance(event, End | Failure):
                return
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=CLOSING_S)


async def _run(
    team: Team, clients: Mapping[str, AsyncOpenAI], limits: Limits, question: Question, course: _Course
) -> None:
    budget = Budget(limits)
    run = Run(budget, clients, tuple(team.keys))
    model = CountedModel(run, team.coordinator, course.write)
    settings = ModelSettings(include_usage=True, max_tokens=question.max_tokens, **question.sampling)
    coordinator = build(team, run, model, question.system, settings)
    talk: list[Any] = [{"role": role, "content": text} for role, text in question.messages]
    try:
        async with asyncio.timeout(limits.seconds):
            await Runner.run(coordinator, talk, max_turns=limits.turns, hooks=_Hooks(course), run_config=run_config())
    except (TimeoutError, MaxTurnsExceeded) as error:
        course.tell(_cut(course, budget, budget.reached or _reached(error, limits, run.asked)))
    except Exception as error:  # noqa: BLE001  # whatever it is, who asked is told
        course.tell(_ended(course, run, error))
    else:
        is_cut = question.max_tokens is not None and model.most_written >= question.max_tokens
        course.tell(End(LENGTH if is_cut else STOP, budget.read, budget.written))


def _reached(error: Exception, limits: Limits, asked: str) -> LimitReachedError:
    if isinstance(error, TimeoutError):
        waiting = f", while {asked} was asked" if asked else ""
        return LimitReachedError("most_seconds", f"its {limits.seconds} seconds are over{waiting}")
    return LimitReachedError("most_turns", f"its {limits.turns} turns are used")


def _ended(course: _Course, run: Run, error: Exception) -> Event:
    """How a question ends that did not come to its end."""
    if run.failed:
        return Failure(502, "engine_failed", str(run.failed))
    if run.budget.reached:
        return _cut(course, run.budget, run.budget.reached)
    text = masked(f"{type(error).__name__}: {error}", run.keys)
    return Failure(502, "team_failed", f"The team came to no answer. {text}")


def _cut(course: _Course, budget: Budget, reached: LimitReachedError) -> Event:
    """The end at a limit: with what there is, and with an error where there is nothing."""
    if not course.wrote and not course.answers and reached.option != "max_tokens":
        text = f"The team was stopped before it had an answer: {reached} ({reached.option})."
        return Failure(400, reached.option, text)  # which nobody repeats; of 422 LiteLLM makes 200 without an answer
    course.tell(Thought(f"The team was stopped: {reached} ({reached.option}).\n"))
    if not course.wrote:
        course.tell(Piece("\n\n".join(f"{name}: {text}" for name, text in course.answers)))
    return End(LENGTH, budget.read, budget.written)
