"""The team as an OpenAI-compatible web application, which stands behind the guard that knows paths and the key."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import wire
from answering import End, Event, Failure, Piece, Thought, answer
from budget import Limits, Price
from members import FREE, Member, Team, client_of
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transcript import HandOver, line

FIRST_S, WAITING_S = 10.0, 15.0
"""How long a stream waits for the first event, so that what fails at once is an error; how often it is kept alive."""


@dataclass(frozen=True)
class Service:
    """A team under a name, and what one question to it may use."""

    name: str
    team: Team
    limits: Limits
    transcript: bool
    keys: tuple[str, ...]
    """All keys that it knows, none of which is told."""


def application(service: Service) -> Starlette:
    """The web application of the team."""
    desk = _Desk(service)
    return Starlette(
        routes=[
            Route("/health", desk.health),
            Route("/v1/models", desk.models),
            Route("/v1/chat/completions", desk.chat, methods=["POST"]),
        ]
    )


class _Desk:
    """Takes questions and gives answers."""

    def __init__(self, service: Service) -> None:
        self._service, self._started = service, int(time.time())
        team, seconds = service.team, service.limits.seconds
        self._clients = {member.name: client_of(member, seconds) for member in (team.coordinator, *team.members)}

    async def health(self, _: Request) -> Response:
        """That it serves."""
        return JSONResponse({"status": "ok"})

    async def models(self, _: Request) -> Response:
        """The one model that the team is."""
        return JSONResponse(wire.models(self._service.name, self._started))

    async def chat(self, request: Request) -> Response:
        """An answer, whole or as it comes."""
        service = self._service
        try:
            question = wire.read_question(await request.body(), service.name)
        except wire.RefusedError as refused:
            return _error(400, "invalid_request_error", "invalid_request", str(refused))
        head = wire.Answer(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), service.name)
        events = answer(service.team, self._clients, service.limits, question, self._noted(head.id))
        if question.stream:
            return await _streamed(events, head, tells_usage=question.tells_usage)
        return await _unless_gone(request, _whole(events, head))

    def _noted(self, question: str) -> Any:
        """What writes a hand-over of that question down, where the file wants that."""

        def note(hand_over: HandOver) -> None:
            if self._service.transcript:
                sys.stdout.write(line(question, hand_over, self._service.keys) + "\n")
                sys.stdout.flush()

        return note


async def _whole(events: AsyncIterator[Event], head: wire.Answer) -> Response:
    thoughts, pieces = [], []
    async for event in events:
        if isinstance(event, Thought):
            thoughts.append(event.text)
        elif isinstance(event, Piece):
            pieces.append(event.text)
        elif isinstance(event, Failure):
            return _failed(event)
        else:
            usage = wire.usage_of(event.read, event.written)
            return JSONResponse(head.whole("".join(pieces), "".join(thoughts), event.reason, usage))
    raise RuntimeError("the events of an answer ended without an end")


async def _unless_gone(request: Request, making: Any) -> Response:
    """What ``making`` makes; it is ended when the client leaves."""
    task = asyncio.ensure_future(making)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return _error(499, "client_closed_request", "client_closed_request", "The client has left.")
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _streamed(events: Any, head: wire.Answer, *, tells_usage: bool) -> Response:
    """A stream, or the error of a question that failed before anything had come."""
    upcoming = asyncio.ensure_future(anext(events))
    await asyncio.wait({upcoming}, timeout=FIRST_S)
    if upcoming.done() and isinstance(upcoming.result(), Failure):
        await events.aclose()
        return _failed(upcoming.result())
    return StreamingResponse(
        _parts(events, upcoming, head, tells_usage=tells_usage),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _parts(events: Any, upcoming: Any, head: wire.Answer, *, tells_usage: bool) -> AsyncIterator[bytes]:
    async with aclosing(events):
        try:
            yield head.part({"role": "assistant", "content": ""})
            while True:
                await asyncio.wait({upcoming}, timeout=WAITING_S)
                if not upcoming.done():
                    yield wire.WAITING
                    continue
                event = upcoming.result()
                for part in _part(event, head, tells_usage=tells_usage):
                    yield part
                if isinstance(event, End | Failure):
                    return
                upcoming = asyncio.ensure_future(anext(events))
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)


def _part(event: Event, head: wire.Answer, *, tells_usage: bool) -> list[bytes]:
    if isinstance(event, Thought):
        return [head.part({"reasoning_content": event.text})]
    if isinstance(event, Piece):
        return [head.part({"content": event.text})]
    if isinstance(event, Failure):
        return [wire.event(wire.error(_kind(event), event.code, event.text)), wire.DONE]
    usage = [head.usage(wire.usage_of(event.read, event.written))] if tells_usage else []
    return [head.part({}, event.reason), *usage, wire.DONE]


def _failed(failure: Failure) -> Response:
    return _error(failure.status, _kind(failure), failure.code, failure.text)


def _kind(failure: Failure) -> str:
    return "limit_reached" if failure.code.startswith("most_") else "upstream_error"


def _error(status: int, kind: str, code: str, text: str) -> Response:
    return JSONResponse(wire.error(kind, code, text), status_code=status)


def service_of(page: Mapping[str, Any], environment: Mapping[str, str]) -> Service:
    """The service of a page that the role wrote, with keys from the environment."""

    def member(said: Mapping[str, Any]) -> Member:
        key = environment[said["key_variable"]] if said.get("key_variable") else ""
        price = Price(**said["price"]) if said.get("price") else FREE
        words = {word: said[word] for word in ("name", "instructions", "model", "base_url")}
        return Member(**words, api_key=key, says=said.get("says") or "", price=price)

    team = Team(member(page["coordinator"]), tuple(map(member, page["members"])))
    keys = (environment[page["key_variable"]], *team.keys)
    return Service(page["name"], team, Limits(**page["most"]), page["transcript"], keys)
