"""Something that answers chats, and how long words are to it: what every measurement from outside needs first."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import urlsplit

from provisioner.forwarder import Forwarder, Target
from provisioner.measuring.filler import filler
from provisioner.measuring.history import Setting as Where
from provisioner.measuring.llm_bench import LONGEST_LOOK, Length, UncountedError, length_of, tokens_in
from provisioner.values.errors import VerificationError
from provisioner.values.plain_data import json_value

LONGEST_ANSWER_S = 3600.0
LONGEST_BODY = 2**20
SHORT_WORDS, LONGER_WORDS = 20, 60
LONGEST_WORDS = 500


class Load(Protocol):
    """What is in the way on the service's host, from the moment at which it is made."""

    def share_until_now(self, own: int) -> tuple[float, int]:
        """The part of the time in which something waited for a processor, and how many requests of others came.

        ``own``: how many came from here. Both are -1 where nobody tells.
        """


class NobodyTells:
    """The load of a host that is not ours."""

    def share_until_now(self, own: int) -> tuple[float, int]:  # noqa: ARG002
        """Nobody tells."""
        return -1.0, -1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service that answers chats: how people call it, where it is reached, which model of it is asked.

    ``context``: how many tokens one request may have, None where nobody here knows; ``is_ours``: whether it knows how
    to be kept from ending early, and costs nothing; ``where``: what results say it was measured on; ``hint``: what to
    do where this machine does not reach it; ``look``: begins to look at what is in the way there; ``served``: by which
    options of the service its results are told apart, beside what it is asked.
    """

    name: str
    target: Target
    model: str
    context: int | None
    is_ours: bool
    where: Where
    hint: str
    look: Callable[[], Load] = NobodyTells
    served: Mapping[str, str] = field(default_factory=dict)

    def measured_with(self, options: Mapping[str, str]) -> Where:
        """On what something was measured that was asked with these options."""
        return replace(self.where, options={**options, **self.served})


def length_of_words(endpoint: Endpoint, forwarder: Forwarder, tokens: int) -> Length:
    """How long words are to a service: first by two short texts, then by one that is nearly as long as ``tokens``.

    Raises ``VerificationError`` where it does not answer, or does not count.
    """
    shorter, longer = (tokens_of_words(endpoint, forwarder, words) for words in (SHORT_WORDS, LONGER_WORDS))
    try:
        length = length_of((SHORT_WORDS, shorter), (LONGER_WORDS, longer))
        words = min(length.words(tokens), LONGEST_LOOK)
        if words > 2 * LONGER_WORDS:
            length = length_of((SHORT_WORDS, shorter), (words, tokens_of_words(endpoint, forwarder, words)))
    except UncountedError as error:
        raise failed(endpoint, str(error)) from error
    return length


def failed(endpoint: Endpoint, why: str) -> VerificationError:
    """It does not answer as it is asked."""
    return VerificationError(
        f"Unable to measure {endpoint.name}: {why[:LONGEST_WORDS]}",
        resolution="Nothing is kept of it. Ask it for less, or look at what it logs.",
    )


def tokens_of_words(endpoint: Endpoint, forwarder: Forwarder, words: int) -> int:
    """How many tokens so many words have there; raises ``VerificationError`` where it does not say it."""
    parts = urlsplit(forwarder.url)
    messages = [{"role": "user", "content": filler(words, words)}]
    body = json.dumps({"model": endpoint.model, "messages": messages, "max_tokens": 1})
    there = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LONGEST_ANSWER_S)
    try:
        there.request("POST", f"{parts.path}/v1/chat/completions", body, {"Content-Type": "application/json"})
        answer = there.getresponse()
        said = answer.read(LONGEST_BODY)
    except (OSError, http.client.HTTPException) as error:
        raise failed(endpoint, f"no answer: {error}") from error
    finally:
        there.close()
    if answer.status != http.HTTPStatus.OK:
        raise failed(endpoint, f"it answered {answer.status}: {said.decode(errors='replace') or 'nothing more'}")
    try:
        return tokens_in(json_value(said))
    except (ValueError, UncountedError) as error:
        raise failed(endpoint, str(error)) from error
