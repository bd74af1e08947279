"""The team in the words of openai-agents: a coordinator whose tools are the members, and engines that are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agents import Agent, ModelSettings, RunConfig, set_tracing_disabled
from agents.exceptions import ModelBehaviorError
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.run_config import ToolExecutionConfig
from agents.usage import Usage
from budget import Budget, Price, estimated_tokens
from openai import APIConnectionError, APIError, APIStatusError, AsyncOpenAI
from wire import masked

COORDINATOR = "coordinator"
FREE = Price()
LONGEST_COMPLAINT = 500
CUT_SHORT = "finish_reason='length'"
"""Stands in the library's complaint about an answer that was cut before anything of it could be seen."""
NO_KEY = "none"
"""The library refuses to start without a key; engines that want none do not look at it."""

set_tracing_disabled(True)  # else it sends what is asked to OpenAI where it finds a key of it


class EngineFailedError(Exception):
    """The engine of a member gave no answer; the text says what it said, without its key."""


@dataclass(frozen=True)
class Member:
    """One of the team: who it is, and where its engine answers."""

    name: str
    instructions: str
    model: str
    base_url: str
    api_key: str = ""
    says: str = ""
    """When it is asked."""
    price: Price = FREE


@dataclass(frozen=True)
class Team:
    """A coordinator and who it can ask."""

    coordinator: Member
    members: tuple[Member, ...]

    @property
    def keys(self) -> list[str]:
        """The keys of all engines."""
        return [member.api_key for member in (self.coordinator, *self.members) if member.api_key]


def client_of(member: Member, seconds: float) -> AsyncOpenAI:
    """What asks the member's engine; a request that fails is not repeated, as that costs turns that nobody counts."""
    return AsyncOpenAI(
        base_url=member.base_url, api_key=member.api_key or NO_KEY, max_retries=0, timeout=seconds, organization=""
    )


@dataclass
class Run:
    """What all members share while one question is answered."""

    budget: Budget
    clients: Mapping[str, AsyncOpenAI]
    keys: tuple[str, ...]
    failed: EngineFailedError | None = None
    """The first engine that did not answer: what comes through the library may be wrapped in other errors."""
    asked: str = ""
    """Whose engine is being asked."""


class CountedModel(Model):
    """The engine of one member, each request of which is counted and ended where the question has used enough.

    ``said`` gets each piece of text as it comes.
    """

    def __init__(self, run: Run, member: Member, said: Callable[[str], None] | None = None) -> None:
        self._run, self._member, self._said = run, member, said
        self._engine = OpenAIChatCompletionsModel(member.model, run.clients[member.name])
        self.most_written = 0
        """Tokens of the longest answer."""

    async def get_response(self, *words: Any, **named: Any) -> ModelResponse:
        """One answer of the engine, read as it is written."""
        budget, price = self._run.budget, self._member.price
        budget.begin_turn()
        question = words[:2] or (named.get("system_instructions"), named.get("input"))
        read, written, usage = estimated_tokens(_characters(question)), 0, None
        try:
            with self._being_asked():
                async for event in self._engine.stream_response(*words, **named):
                    if event.type == "response.completed":
                        usage = event.response.usage
                        return ModelResponse(event.response.output, _usage(usage), None)
                    delta = getattr(event, "delta", "")
                    if not isinstance(delta, str) or not delta:
                        continue
                    written += max(estimated_tokens(len(delta)), 1)
                    if self._said and event.type == "response.output_text.delta":
                        self._said(delta)
                    budget.check_running(read, written, price)
        except APIError as error:
            raise self._failure(_complaint(error)) from error
        except ModelBehaviorError as error:
            if CUT_SHORT in str(error):
                raise budget.cut("max_tokens", "all tokens that it may write went into thoughts") from error
            raise self._failure(str(error)) from error
        finally:
            if usage is not None and usage.total_tokens:
                read, written = usage.input_tokens, usage.output_tokens
            budget.charge(read, written, price)
            self.most_written = max(self.most_written, written)
        raise self._failure("its answer ended before it was whole")

    def stream_response(self, *words: Any, **named: Any) -> AsyncIterator[Any]:
        """Nothing asks for this: pieces are told to ``said`` as they come."""
        raise NotImplementedError

    @contextmanager
    def _being_asked(self) -> Iterator[None]:
        """Whose engine it is that is waited for; said on, where that is ended before it has answered."""
        self._run.asked = f"the engine of {self._member.name} ({self._member.model})"
        yield
        self._run.asked = ""

    def _failure(self, complaint: str) -> EngineFailedError:
        member, run = self._member, self._run
        text = masked(" ".join(complaint.split()), run.keys)[:LONGEST_COMPLAINT]
        failed = EngineFailedError(f"The engine of {member.name} ({member.model}) does not answer: {text}")
        run.failed = run.failed or failed
        return failed


def _characters(asked: Any) -> int:
    """How much an engine is given to read, roughly: names of fields count as well."""
    return sum(len(part if isinstance(part, str) else str(part)) for part in asked if part)


def _usage(said: Any) -> Usage:
    if said is None:
        return Usage(requests=1)
    return Usage(
        requests=1, input_tokens=said.input_tokens, output_tokens=said.output_tokens, total_tokens=said.total_tokens
    )


def _complaint(error: APIError) -> str:
    if isinstance(error, APIConnectionError):
        return f"{error.message} {error.__cause__ or ''}"
    if isinstance(error, APIStatusError):
        said = error.message.removeprefix(f"Error code: {error.status_code} - ")
        return f"HTTP {error.status_code}: {said}"
    return error.message


def run_config() -> RunConfig:
    """How every agent runs: nothing is traced, and members are asked one after the other.

    Two engines that share a card take turns on it, and hand-overs have one order.
    """
    return RunConfig(
        tracing_disabled=True,
        tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1),
        tool_not_found_behavior="return_error_to_model",
    )


def build(team: Team, run: Run, model: Model, system: str, settings: ModelSettings) -> Agent[None]:
    """The coordinator, whose engine is ``model``, with the members as its tools."""
    tools = []
    for member in team.members:
        agent = Agent[None](
            name=member.name,
            instructions=member.instructions,
            model=CountedModel(run, member),
            model_settings=ModelSettings(include_usage=True),
        )
        tool = agent.as_tool(
            tool_name=member.name,
            tool_description=member.says or f"Ask {member.name}.",
            max_turns=run.budget.limits.turns,
            run_config=run_config(),
            failure_error_function=_told_to_the_coordinator,
        )
        tools.append(tool)
    instructions = "\n\n".join(text for text in (team.coordinator.instructions, system) if text)
    return Agent[None](
        name=COORDINATOR, instructions=instructions, model=model, model_settings=settings, tools=list(tools)
    )


def _told_to_the_coordinator(_: Any, error: Exception) -> str:
    """A call that makes no sense is told to who made it, who may make another; everything else ends the question."""
    if isinstance(error, ModelBehaviorError):
        return f"The call makes no sense: {error}"
    raise error
