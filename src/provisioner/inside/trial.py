"""Tries one context of an engine in its container: starts it so, has it answer a prompt that nearly fills it, ends it.

It runs in a unit of its own (``trial_unit``), with other words in the engine's command.

Reads JSON: ``unit`` (the name of the engine's unit), ``without`` (lines that hold one of these are left out),
``changes`` (pairs of a pattern and what stands there in the trial), ``shows`` (words of its command line), ``health``
(an address), ``load_s``, ``answer_s``, ``no_room`` (what engines say when there is too little memory), ``placed``: a
pattern by whose two groups an engine says how many layers of how many lie on a card, or nothing, and ``ask``: ``path``
(``NATIVE``, that of llama-server, or ``OPENAI``), ``url``, ``key_file``, ``key_name`` (where that has a line for each
of several keys), ``model``, ``tokens`` (of a prompt), ``first`` and ``last`` (the numbers of the tokens that it is made
of), ``changed``: for each prompt the place of a token that is another one in it, or None; and ``encode``: where an
engine that takes text alone says how many tokens one has, or nothing. ``{port}`` in any of these becomes a port that is
free.

Answers as JSON: ``outcome`` (one of ``trial_unit.OUTCOMES``), ``words`` (what was said where it did not answer),
``load_s``, ``sent``: the tokens of a prompt; ``heard``: for each the engine's own count, and the log-probabilities of
the tokens that may follow; ``layers``: what it said of them, two numbers, zeros where it did not; and once it has
answered ``memory`` (bytes of its unit), ``left`` (bytes that the container has left beside it) and ``card`` (bytes in
use on its cards), -1 where nobody tells.
Python alone is enough, with ``trial_unit``; what it made is gone when it ends.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from provisioner.inside.trial_unit import (
    ANSWERED,
    COMMAND_S,
    HUNG,
    POLL_S,
    REFUSED,
    TRIAL,
    WORDS,
    FailedError,
    TrialUnit,
    journal,
    state_of,
    systemctl,
    trial_of,
    unit_text,
)

NATIVE, OPENAI = "/completion", "/v1/completions"
MEMORY = Path("/proc/meminfo")
LOOK_S = 2.0
MARGIN_S = 60.0
STEP = 31
"""From token to token: the same ones follow one another seldom."""
TEN = 10
FITTINGS = 5
"""So many texts are counted until one has as many tokens as are wanted."""
MOST_WORDS = 2
"""So many words for each token that is wanted are too many: whoever counts fewer tokens does not count."""
CLOSE = 0.99
"""Which part of them is enough."""
LIKELY = 20
"""So many tokens that may follow are told with how probable they are."""
LONGEST_ANSWER = 2**22
CARDS = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
KIB, MIB = 2**10, 2**20


def prompt_of(ask: Mapping[str, Any], changed: int | None) -> list[int]:
    """The same tokens each time, with ``last`` at that place; it stands nowhere else."""
    several = ask["last"] - ask["first"]
    tokens = [ask["first"] + (number * STEP + number // several) % several for number in range(ask["tokens"])]
    if changed is not None:
        tokens[changed] = ask["last"]
    return tokens


def text_of(words: int, changed: int | None) -> str:
    """The same digits each time, as words, with another one at that place: each is a token or two of any vocabulary."""
    digits = [(number * STEP + number // TEN) % TEN for number in range(words)]
    if changed is not None:
        digits[changed] = (digits[changed] + TEN // 2) % TEN
    return " ".join(map(str, digits))


def prompts_of(ask: Mapping[str, Any], count: Callable[[str], int]) -> tuple[int, list[str] | list[list[int]]]:
    """How many tokens each prompt has, and the prompts; ``count`` says it of a text where numbers are not taken."""
    wanted = ask["tokens"]
    if not ask["encode"]:
        return wanted, [prompt_of(ask, changed) for changed in ask["changed"]]
    words = wanted
    for _ in range(FITTINGS):
        sent = count(text_of(words, None))
        if wanted * CLOSE <= sent <= wanted:
            places = [None if changed is None else changed * words // wanted for changed in ask["changed"]]
            return sent, [text_of(words, place) for place in places]
        closer = int(words * wanted * (1 + CLOSE) / 2) // max(sent, 1)
        words = min(max(closer, 1), MOST_WORDS * wanted)
    raise FailedError(REFUSED, f"no text of {wanted} tokens could be made: one of {words} words had {sent}")


Answer = TypeVar("Answer")


class Trial(TrialUnit):
    """The unit that tries a context."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        super().__init__(asked["no_room"])
        self.asked = asked

    def load(self) -> float:
        """Start it, and wait until it is ready; the seconds that this took. ``FailedError`` where it is not."""
        self.make(self.text())
        began = time.monotonic()
        self.start()
        while time.monotonic() - began < self.asked["load_s"]:
            if _is_ready(self.asked["health"]):
                self.check_words()
                return time.monotonic() - began
            self.check_runs()
            time.sleep(POLL_S)
        raise FailedError(HUNG, f"it was not ready after {self.asked['load_s']:g} s")

    def text(self) -> str:
        """The unit that is started, of the engine's with another context."""
        answers = len(self.asked["ask"]["changed"]) + (FITTINGS if self.asked["ask"]["encode"] else 0)
        seconds = self.asked["load_s"] + answers * self.asked["answer_s"] + MARGIN_S
        engine = self.asked["unit"]
        return trial_of(unit_text(engine), engine, self.asked["without"], self.asked["changes"], seconds)

    def check_words(self) -> None:
        """Raise ``FailedError`` where the process that runs was started with something else."""
        process = state_of()["MainPID"]
        command = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
        missing = [word for word in self.asked["shows"] if word not in command]
        if missing:
            raise FailedError(REFUSED, f"it runs without {' '.join(missing)}")

    def prompts(self) -> tuple[int, list[str] | list[list[int]]]:
        """How many tokens each prompt has, and the prompts; ``FailedError`` where none can be made."""
        return prompts_of(self.asked["ask"], lambda text: self._answered(counted, text))

    def hear(self, prompt: str | Sequence[int]) -> dict[str, Any]:
        """What it says to a prompt; ``FailedError`` where it does not answer."""
        return self._answered(heard, prompt)

    def _answered(self, asked: Callable[..., Answer], what: str | Sequence[int]) -> Answer:
        """What it answers; ``FailedError`` where it does not."""
        try:
            return asked(self.asked["ask"], what, self.asked["answer_s"])
        except urllib.error.HTTPError as refusal:
            with refusal:
                words = refusal.read(WORDS).decode(errors="replace")
            raise FailedError(REFUSED, f"HTTP {refusal.code}, {' '.join(words.split())}") from None
        except TimeoutError:
            raise FailedError(HUNG, f"no answer came in {self.asked['answer_s']:g} s") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            self.wait_for_its_end()
            self.check_runs()
            raise FailedError(REFUSED, f"{type(error).__name__}: {error}") from None

    def layers(self) -> list[int]:
        """How many layers of how many lie on a card, as it said last; zeros where it did not, or is not asked."""
        pattern = self.asked["placed"]
        said = re.findall(pattern, journal(state_of()["InvocationID"])) if pattern else []
        return [int(number) for number in said[-1]] if said else [0, 0]

    def memory(self) -> int:
        """Bytes that its processes take; -1 where systemd does not tell."""
        shown = systemctl("show", TRIAL, "--property=MemoryCurrent", "--value").strip()
        return int(shown) if shown.isdecimal() else -1


def counted(ask: Mapping[str, Any], text: str, within_s: float) -> int:
    """How many tokens the engine makes of a text."""
    return int(_answer(ask, ask["encode"], {"text": text}, within_s)["length"])


def heard(ask: Mapping[str, Any], prompt: str | Sequence[int], within_s: float) -> dict[str, Any]:
    """The engine's own count of a prompt, and the log-probabilities of what may follow, by its interface."""
    if ask["path"] == NATIVE:
        body = {"prompt": prompt, "n_predict": 1, "n_probs": LIKELY, "cache_prompt": False, "temperature": 0}
        said = _answer(ask, ask["path"], body, within_s)
        (first, *_) = said["completion_probabilities"]
        likely = {str(one["id"]): float(one["logprob"]) for one in first["top_logprobs"]}
        return {"tokens": int(said["tokens_evaluated"]), "following": likely}
    body = {"model": ask["model"], "prompt": prompt, "max_tokens": 1, "logprobs": LIKELY, "temperature": 0}
    if ask["encode"]:
        body["top_logprobs"] = LIKELY  # tabbyAPI's word for how many tokens are told
    said = _answer(ask, ask["path"], body, within_s)
    (likely, *_) = said["choices"][0]["logprobs"]["top_logprobs"]
    return {"tokens": int(said["usage"]["prompt_tokens"]), "following": likely}


def key_of(ask: Mapping[str, Any]) -> str:
    """The engine's key: the first line of its file, or the JSON string in the line of that name."""
    lines = Path(ask["key_file"]).read_text(encoding="utf-8").splitlines()
    if not ask["key_name"]:
        return lines[0]
    (named,) = (line for line in lines if line.startswith(f"{ask['key_name']}: "))
    return str(json.loads(named.partition(": ")[2]))


def _answer(ask: Mapping[str, Any], path: str, body: Mapping[str, Any], within_s: float) -> Any:
    headers = {"Content-Type": "application/json"}
    if ask.get("key_file"):
        headers["Authorization"] = f"Bearer {key_of(ask)}"
    address = ask["url"] + path
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # noqa: S310  # of 127.0.0.1
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=within_s) as answer:
            return json.loads(answer.read(LONGEST_ANSWER))
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TimeoutError from None
        raise


def _is_ready(address: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=LOOK_S) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004  # HTTP's word for well
    except OSError:
        return False


def tried(asked: Mapping[str, Any]) -> dict[str, Any]:
    """How one context went."""
    found: dict[str, Any] = {"outcome": ANSWERED, "words": "", "load_s": 0.0, "sent": 0, "heard": []}
    found |= {"layers": [0, 0], "memory": -1, "left": -1, "card": -1}
    with Trial(asked) as trial:
        try:
            found["load_s"] = trial.load()
            found["layers"] = trial.layers()
            found["sent"], prompts = trial.prompts()
            found["heard"] = [trial.hear(prompt) for prompt in prompts]
            found["memory"], found["left"], found["card"] = trial.memory(), memory_left(), used_on_cards()
        except FailedError as error:
            found["outcome"], found["words"] = error.outcome, str(error)
    return found


def memory_left() -> int:
    """Bytes that can be had in the container, and its limit counts; -1 where nobody tells."""
    for line in MEMORY.read_text(encoding="ascii").splitlines():
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            return int(size.split()[0]) * KIB
    return -1


def used_on_cards() -> int:
    """Bytes in use on all cards of the container together; -1 where there is none that tells."""
    try:
        done = subprocess.run(CARDS, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except OSError:
        return -1
    numbers = done.stdout.split()
    is_told = done.returncode == 0 and bool(numbers) and all(number.isdecimal() for number in numbers)
    return sum(map(int, numbers)) * MIB if is_told else -1


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main(request: bytes) -> None:
    """Answer one request, given as it is sent."""
    text = request.decode().replace("{port}", str(free_port()))
    json.dump(tried(json.loads(text)), sys.stdout)


if __name__ == "__main__":
    main(sys.stdin.buffer.read())
