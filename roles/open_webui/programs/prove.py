"""Proves that Open WebUI works: its technical user signs in, sees the models, is answered, and strangers get nothing.

Reads JSON: ``url`` of the server itself, ``door`` of the switch before it, ``inside`` the same also while it keeps
people out, ``unit``, ``within_s``, ``answer_s``, ``models``, those that it has to offer, of which the first is asked,
``embeddings``, the address and the model by which documents are made searchable (empty: they are read whole), and
``browser``, whether a real one is to do so as well. Prints JSON: ``wrong``, one line for each thing that is not as it
has to be, and ``came``, one for each thing that was tried. Changes nothing: its chats and documents are deleted again,
its pictures are those of the latest proof.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import browse
import documents
from client import ADMINISTRATOR, AnswerError, Client, masked, passwords, technical_signed_in, wait_until_ready

WHOLE = ("stop", "length")
"""How an answer ends that was not cut."""
STRANGER = "stranger"
"""No address, so that no account is made where people may sign up: that they may not is said first, by 403."""
CLOSED = ("/docs", "/redoc", "/openapi.json", "/ollama/api/tags", "/metrics")
"""Pages that nobody needs, closed by the switch."""
GREETING = "Say hello."
LONGEST_WORDS = 2000
"""Characters of an answer that are passed on; whoever shows them takes out secrets, and shows fewer."""
DEVELOPMENT = (b"swagger-ui", b'"openapi":')
"""What the pages for developers have in them; outside of production they are open to everybody."""


def strangers(client: Client, door: Client, came: list[str]) -> Iterator[str]:
    """What somebody can do who has not signed in; each answer is added to ``came``."""
    wanted = {"name": "Stranger", "email": STRANGER, "password": secrets.token_urlsafe()}
    signs_in = {"email": STRANGER, "password": wanted["password"]}
    tries: list[tuple[str, str, Any, tuple[int, ...], str]] = [
        ("POST", "/api/v1/auths/signup", wanted, (403,), "a stranger can sign up"),
        ("POST", "/api/v1/auths/signin", signs_in, (400, 401), "a stranger can sign in"),
        ("GET", "/api/models", None, (401, 403), "models are listed without signing in"),
        *(("GET", path, None, (404,), f"{path} is not closed") for path in CLOSED),
    ]
    answers = []
    for method, path, body, statuses, otherwise in tries:
        status, _ = door.answer(method, path, body)
        answers.append(f"{path} {status}")
        if status not in statuses:
            expected = " or ".join(map(str, statuses))
            yield f"{otherwise}: {method} {path} was answered with {status} instead of {expected}"
    came.append(f"a stranger gets: {', '.join(answers)}")
    for path in CLOSED[:3]:
        _, said = client.answer("GET", path)
        if any(mark in said for mark in DEVELOPMENT):
            yield f"{path} shows developers' pages: the server does not run in production"


def offers(client: Client, models: list[str]) -> Iterator[str]:
    """The models that it does not offer."""
    listed = client.mapping("GET", "/api/models").get("data")
    names = {one.get("id") for one in listed if isinstance(one, dict)} if isinstance(listed, list) else set()
    for model in models:
        if model not in names:
            yield f"it does not offer {model}: it has {', '.join(sorted(map(str, names))) or 'no model'}"


def talks(client: Client, model: str, came: list[str]) -> Iterator[str]:
    """Have a chat with a model, of which nothing is left; its answer is added to ``came``."""
    question = {"role": "user", "content": GREETING}
    asked = {"model": model, "messages": [question], "stream": False, "max_tokens": 32}
    said = client.mapping("POST", "/api/chat/completions", asked)
    choices = said.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = first.get("message") if isinstance(first.get("message"), dict) else {}
    text = f"{message.get('content') or ''}{message.get('reasoning_content') or ''}"
    if not text:
        yield f"{model} gave an empty answer"
    elif first.get("finish_reason") not in WHOLE:
        yield f"the answer of {model} was cut: its finish_reason is {first.get('finish_reason')}"
    words = " ".join(text[:LONGEST_WORDS].split())
    came.append(f'asked "{GREETING}" {model} answers, ended by {first.get("finish_reason")}: {words}')
    yield from _keeps(client, text)


def _keeps(client: Client, text: str) -> Iterator[str]:
    """Whether a chat that is kept can be read again."""
    kept = client.mapping("POST", "/api/v1/chats/new", {"chat": {"title": "proof", "said": text}})
    if not isinstance(kept.get("id"), str):
        raise AnswerError("a chat was kept without a number")
    path = f"/api/v1/chats/{kept['id']}"
    try:
        read = client.mapping("GET", path)
        if (read.get("chat") or {}).get("said") != text:
            yield "a chat that was kept cannot be read again"
    finally:
        client.ask("DELETE", path)


def wrong(wanted: dict[str, Any], came: list[str]) -> Iterator[str]:
    """One line for each thing that is not as it has to be; what was tried is added to ``came``."""
    client, door = Client(wanted["url"], wanted["answer_s"]), Client(wanted["inside"], wanted["answer_s"])
    wait_until_ready(client, wanted["unit"], wanted["within_s"])
    Client(wanted["door"], wanted["answer_s"]).ask("GET", "/ready")
    browse.forget()
    yield from strangers(client, door, came)
    password = technical_signed_in(door)
    if password is None:
        yield "its technical user cannot sign in: run up with --full, which gives it another password"
        return
    if door.role != ADMINISTRATOR:
        yield "its technical user is no administrator any more: run up with --full, which makes it one"
        return
    came.append("its technical user signs in, and is an administrator")
    missing = list(offers(door, wanted["models"]))
    yield from missing
    if wanted["models"]:
        came.append(f"of the models it offers {', '.join(wanted['models'])}")
    if wanted["embeddings"]:
        yield from documents.finds(door, wanted["embeddings"], wanted["answer_s"])
        came.append("of two documents it finds the one whose words are asked for")
    if missing or not wanted["models"]:
        return
    yield from talks(door, wanted["models"][0], came)
    if wanted["browser"]:
        yield from browse.sees(door, password, wanted["models"][0], wanted["answer_s"])
        came.append("a real browser signs in, and shows an answer")


def main() -> int:
    """The exit code; 1 with the reason where it could not be asked."""
    wanted = json.load(sys.stdin)
    came: list[str] = []
    try:
        complaints = [masked(line, passwords()) for line in wrong(wanted, came)]
        json.dump({"wrong": complaints, "came": [masked(line, passwords()) for line in came]}, sys.stdout)
    except (AnswerError, OSError) as error:
        sys.stderr.write(f"{masked(str(error), passwords())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
