"""How guidellm is asked what many clients of a service see at once, and what its report says. Pure.

It is told by a file, and not by its command line, which others see; its prompts are texts of ours, so that it needs
nothing of the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.measuring.filler import filler

TOOL, MODULE = "guidellm", "guidellm"
ASKED, PROMPTS, TOKENIZER, REPORT = "asked.json", "prompts.jsonl", "tokenizer", "report.json"
"""Files in its folder."""
MILLI = 1000.0


class UnknownReportError(Exception):
    """A report is none that guidellm writes."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good answer is: its first token after at most so many seconds, and so many for each further one."""

    first_s: float
    each_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """One whole answer: when it was asked, seconds from there to its first and last token, tokens by the service."""

    began_s: float
    first_s: float
    whole_s: float
    prompt: int
    tokens: int

    @property
    def each_s(self) -> float:
        """Seconds for each token after the first."""
        return (self.whole_s - self.first_s) / (self.tokens - 1) if self.tokens > 1 else 0.0

    def is_good(self, objective: Objective) -> bool:
        """Whether it came as it should."""
        return self.first_s <= objective.first_s and self.each_s <= objective.each_s


@dataclass(frozen=True, slots=True)
class Level:
    """So many clients at once: from when until when they asked, what was answered, and how many answers failed.

    ``warnings``: what the tool says of itself, such as that it could not ask as fast as it should.
    """

    clients: int
    began_s: float
    ended_s: float
    requests: tuple[Request, ...]
    failed: int
    error: str
    warnings: tuple[str, ...]


def command(folder: Path) -> list[str]:
    """The words by which it is started."""
    return [MODULE, "run", "--config", str(folder / ASKED), "--disable-console"]


def asked_text(
    url: str, model: str, clients: Sequence[int], seconds: float, written: int, *, is_exact: bool, folder: Path
) -> str:
    """What it is told: so many clients at once, one number after the other, each for so many seconds.

    ``is_exact``: whether services are told not to end earlier, which those that are not ours may refuse.
    """
    body: dict[str, Any] = {"max_tokens": written}
    if is_exact:
        body |= {"min_tokens": written, "ignore_eos": True, "cache_prompt": False}
    backend = {
        "kind": "openai_http",
        "target": url,
        "model": model,
        "validate_backend": False,
        "http2": False,
        "extras": {"body": body},
    }
    spec = {
        "backend": backend,
        "profile": {"kind": "concurrent", "streams": list(clients)},
        "constraints": [{"kind": "max_duration", "seconds": seconds}],
        "tokenizer": {"kind": "huggingface_auto", "model": str(folder / TOKENIZER)},
        "data": [{"kind": "json_file", "path": str(folder / PROMPTS)}],
        "metrics": {"kind": "generative", "sample_size": 0},
        "outputs": [{"kind": "json", "path": str(folder / REPORT)}],
    }
    return json.dumps({"spec": spec})


def prompts_text(words: int, count: int, written: int, seed: int) -> str:
    """So many prompts of so many words, each another text."""
    lines = []
    for number in range(count):
        prompt = filler(words, seed + number)
        lines.append(json.dumps({"prompt": prompt, "output_tokens_count": written}))
    return "\n".join(lines) + "\n"


def levels_in(report: Any) -> list[Level]:
    """What each number of clients saw; raises ``UnknownReportError`` where the report does not say it."""
    try:
        return [_level(one) for one in report["benchmarks"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownReportError(f"guidellm does not report what it has measured: {error!r}") from error


def _level(said: Mapping[str, Any]) -> Level:
    requests = said["requests"]
    failed = requests["errored"]
    return Level(
        clients=int(said["config"]["strategy"]["streams"]),
        began_s=float(said["start_time"]),
        ended_s=float(said["end_time"]),
        requests=tuple(_requests(requests["successful"])),
        failed=len(failed),
        error=str(failed[0]["info"].get("error") or "") if failed else "",
        warnings=tuple(f"{one['message']} {one['note']}" for one in said["warnings"]),
    )


def _requests(said: Sequence[Mapping[str, Any]]) -> Iterator[Request]:
    for one in said:
        yield Request(
            began_s=float(one["request_start_time"]),
            first_s=float(one["time_to_first_token_ms"]) / MILLI,
            whole_s=float(one["request_latency"]),
            prompt=int(one["prompt_tokens"]),
            tokens=int(one["output_tokens"]),
        )
