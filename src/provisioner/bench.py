"""How fast services speak: what is asked of them, what the answers' times come to, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

SHORT = "Good morning to you all. The kettle has boiled, and the bread is still warm on the table."
_PARAGRAPH = (
    "A house that runs its own machines keeps a small book of what it learned. "
    "The first page says which cable goes where. "
    "The second page says what was tried, and in which order, before the lights went on again. "
    "Nobody reads the book while everything works, and everybody looks for it when something does not. "
    "So it lies beside the door, not in a drawer. "
)
LONGEST = 20_000
FORMATS = ("pcm", "wav", "mp3")
USUAL_FORMAT = "mp3"
WORTH_IT = 1.5
"""How many times as fast something has to be before anybody notices."""

Chunk = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Ask:
    """One text in one format by one voice; ``text`` is what the table calls it."""

    text: str
    words: str
    format: str
    voice: str


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: seconds to its first and last byte, its bursts, and the time and size of each piece."""

    first_s: float
    last_s: float
    bursts: int
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """All answers to one question; times are medians.

    ``waited``: the part of their time in which something of the host waited for a processor, -1 where nobody tells.
    """

    ask: Ask
    runs: tuple[Run, ...]
    waited: float = -1.0

    @property
    def first_s(self) -> float:
        """Seconds until the first audio."""
        return median(run.first_s for run in self.runs)

    @property
    def total_s(self) -> float:
        """Seconds until the last."""
        return median(run.last_s for run in self.runs)

    @property
    def share(self) -> float:
        """The part of the whole time after which something is heard."""
        return self.first_s / self.total_s

    @property
    def characters_per_s(self) -> float:
        """How fast the text was spoken."""
        return len(self.ask.words) / self.total_s

    @property
    def typical(self) -> Run:
        """The run whose first audio is nearest to the median."""
        return min(self.runs, key=lambda run: abs(run.first_s - self.first_s))


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured of one container: bytes of memory that its service and its card used (None: nobody tells)."""

    container: str
    device: str
    series: tuple[Series, ...]
    ram: int | None = None
    vram: int | None = None
    cold: Run | None = None
    """A first answer, in which what was made ready for it may be; it counts for nothing else."""

    def of(self, text: str) -> Series | None:
        """What was measured with that text in the usual format and the first voice."""
        found = [one for one in self.series if one.ask.text == text and one.ask.format == USUAL_FORMAT]
        return found[0] if found else None


def asks(voices: Sequence[str], long: int) -> tuple[Ask, ...]:
    """What is asked: the short text in all formats and by all voices, a long one of ``long`` characters once."""
    short = [
        Ask("short", SHORT, form, voice)
        for voice, form in product(voices, FORMATS)
        if voice == voices[0] or form == USUAL_FORMAT
    ]
    return (*short, *([Ask("long", long_text(long), USUAL_FORMAT, voices[0])] if long else []))


def long_text(characters: int) -> str:
    """Whole sentences, about so many characters of them."""
    text = (_PARAGRAPH * (characters // len(_PARAGRAPH) + 1))[:characters]
    return text[: text.rfind(".") + 1] or text


def run_of(answer: Mapping[str, Any]) -> Run:
    """What role ``kokoro``'s ``speak.py`` answered."""
    chunks = tuple((float(at), int(size)) for at, size in answer.get("chunks", ()))
    return Run(float(answer["first_s"]), float(answer["last_s"]), int(answer["bursts"]), chunks)


def verdict(benches: Sequence[Bench]) -> tuple[str, ...]:
    """What follows from the figures, one sentence each."""
    said = [_streams(one) for one in benches if one.of("short")]
    cpu = next((one for one in benches if one.device == "cpu"), None)
    gpu = next((one for one in benches if one.device == "gpu"), None)
    return (*said, *(_compared(cpu, gpu) if cpu and gpu else ()))


def _streams(bench: Bench) -> str:
    short = bench.of("short")
    assert short  # noqa: S101  # asked by the only caller
    return f"{bench.container}: two sentences are heard after {short.share:.2f} of the time that all of them take."


def _compared(cpu: Bench, gpu: Bench) -> Sequence[str]:
    said = []
    for text, use in (("short", "For talks and chats"), ("long", "For long texts")):
        slow, fast = cpu.of(text), gpu.of(text)
        if slow is None or fast is None:
            continue
        times = slow.first_s / fast.first_s if text == "short" else slow.total_s / fast.total_s
        what = "first audio comes" if text == "short" else "it is done"
        choice = f"take {gpu.container}" if times >= WORTH_IT else f"{cpu.container} will do"
        said.append(f"{use} {choice}: on the card {what} {times:.1f} times as early as on the CPU.")
    return said
