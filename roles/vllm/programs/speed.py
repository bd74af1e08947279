"""Measures how fast the server computes a prompt and an answer, by requests like those of its clients.

Reads JSON: ``url`` (up to /v1), ``key``, ``model``, ``length`` (tokens that a request may hold), ``within_s`` of each
request. Answers as JSON: ``timings``, each with ``prompt_per_second`` and ``predicted_per_second`` (tokens), and
``problem``. Each prompt is another one, so that none is found in a cache; the first is not counted. Python alone.
"""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

TURNS = 4
ANSWER = 64
"""Tokens of an answer whose speed is measured."""
LONGEST_PROMPT = 1024
LONGEST_BODY = 2**20
BUSY, AGAIN_S = 503, 5.0
"""The switch's word to who has waited for as long as they may, and when they are asked again."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SEED = 20260101


def measured(asked: Mapping[str, Any]) -> list[dict[str, float]]:
    """The speeds of each turn but the first; raises ``OSError`` or ``ValueError`` where it does not answer."""
    chance = random.Random(f"{SEED} {time.time_ns()}")  # noqa: S311  # words that are new each time
    turns = [_turn(asked, chance) for _ in range(TURNS)][1:]
    told = [turn for turn in turns if turn is not None]
    if not told:
        raise ValueError(f"{ANSWER} tokens came as fast as one: nothing was measured")
    return told


def _turn(asked: Mapping[str, Any], chance: random.Random) -> dict[str, float] | None:
    """A prompt and one token of an answer, then another and more of it: what the second took longer made the answer.

    None where it took no longer: the first had to wait for somebody else's.
    """
    short_s, prompt, _ = _answered(asked, _words(asked, chance), 1)
    long_s, _, made = _answered(asked, _words(asked, chance), ANSWER)
    answer_s = long_s - short_s
    if made < ANSWER:
        raise ValueError(f"it made {made} of {ANSWER} tokens that were asked for")
    if answer_s <= 0:
        return None
    return {"prompt_per_second": prompt / short_s, "predicted_per_second": (made - 1) / answer_s}


def _words(asked: Mapping[str, Any], chance: random.Random) -> str:
    """A text of letters, which has no more tokens than letters; a quarter of a request is left for the answer."""
    length = min(LONGEST_PROMPT, (asked["length"] - ANSWER) * 3 // 4)
    return "".join(chance.choice(LETTERS) for _ in range(length))


def _answered(asked: Mapping[str, Any], prompt: str, tokens: int) -> tuple[float, int, int]:
    """Seconds of one request, and the tokens of its prompt and of its answer, as the server counts them."""
    said = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(  # noqa: S310  # the role's own address
        f"{asked['url']}/completions",
        json.dumps({"model": asked["model"], **said}).encode(),
        {"Authorization": f"Bearer {asked['key']}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ends = time.monotonic() + asked["within_s"]
    while True:
        began = time.monotonic()
        try:
            with opener.open(request, timeout=asked["within_s"]) as answer:
                used = json.loads(answer.read(LONGEST_BODY))["usage"]
            return time.monotonic() - began, int(used["prompt_tokens"]), int(used["completion_tokens"])
        except urllib.error.HTTPError as refusal:
            with refusal:
                may_come_again = refusal.code == BUSY and refusal.headers.get("Retry-After")
            if not may_come_again or time.monotonic() > ends:
                raise
        time.sleep(AGAIN_S)


def main(asked: Mapping[str, Any]) -> None:
    """Measure, and say it; what kept it from measuring is said as well."""
    found: dict[str, Any] = {"timings": [], "problem": ""}
    try:
        found["timings"] = measured(asked)
    except (OSError, ValueError, LookupError, TypeError) as error:
        found["problem"] = f"{type(error).__name__}: {error}"
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(json.load(sys.stdin))
