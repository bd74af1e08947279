"""``bench --kind tts``: services that speak say the same texts, and the time of that is taken; as text and picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median
from typing import Any

from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import SPEECH_PROTOCOL
from provisioner.measuring.endpoints import Load, NobodyTells
from provisioner.measuring.engine import served_there
from provisioner.measuring.history import SECONDS, Result, Setting, Trial
from provisioner.measuring.history import Series as Figure
from provisioner.measuring.pause import Engine
from provisioner.reconcile.effects import Effects
from provisioner.report.style import aligned
from provisioner.report.svg import STYLE, Rectangle, escaped, rectangle, ticks
from provisioner.report.svg import text as svg_text
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench
from provisioner.values.address import Address
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.values.plain_data import Foreign, answer_value

# Questions to services that speak, what the answers' times come to, and what follows. Pure.

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


# The measurement: services that speak say the texts, and the time of that is taken in their containers.

KIND = "tts"
PER_S = "characters/s"
ANSWER_TIMEOUT_S, LOOK_TIMEOUT_S = 3600, 30.0
VALUE = "tr '\\0' '\\n' < /proc/$(systemctl show --property=MainPID --value \"$0\")/environ | sed -n \"s/^$1=//p\""
"""The value of a variable, $1, in the environment of a unit, $0."""
VRAM = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
UNKNOWN = "?"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Speaker:
    """A service of the file that speaks."""

    address: Address
    unit: str
    port: int
    voices: tuple[str, ...]
    program: str
    """The program in the container that asks it and takes the time."""
    card_variable: str = ""
    """The variable of its unit's environment that says whether it computes on a card."""

    @property
    def container(self) -> str:
        """The container in which it runs."""
        return self.address.container


def speakers_of(lab: Lab, names: Sequence[str]) -> tuple[Speaker, ...]:
    """Those in the containers of these names, all where there are none; raises ``InputError`` where nobody speaks."""
    found = []
    for service in lab.resolved.speakers:
        speech = knowledge_of(service.role).speech(service)
        is_meant = not names or service.container in names
        if is_meant and speech.program:
            unit, port = service.page.unit or "", service.port or 0
            voices, program = speech.voices, speech.program
            found.append(Speaker(service.address, unit, port, voices, program, speech.card_variable))
    silent = [name for name in names if name not in {one.container for one in found}]
    if silent or not found:
        example = lab.resolved.catalog.example(SPEECH_PROTOCOL)
        other = " --kind says what else is measured." if silent else ""
        raise InputError(
            f"Unable to measure {', '.join(silent) or lab.name}: no service there speaks",
            resolution=f"Add a service that does{example}, or name a container that has one.{other}",
        )
    return tuple(found)


def setting_of(engine: Engine, effects: Effects, asks: Sequence[Ask], *, on_card: bool | None) -> Setting:
    """On what a service that speaks is measured, as it is served in its container, and with texts of which length.

    ``on_card``: whether it computes on a card; where it does not, a card that is there says nothing of it.
    """
    served = served_there(engine, EngineBench("-"), effects)
    return Setting(
        host=engine.instance.host,
        processor=f"{served.processor}, {served.threads} of them",
        card="" if on_card is False else served.card,
        driver="" if on_card is False else served.driver,
        build=served.build,
        model=served.model,
        options={ask.text: str(len(ask.words)) for ask in asks},
    )


def result_of(bench: Bench, at: str, address: Address, where: Setting) -> Result:
    """What is kept of it: of each text, format and voice the first audio, all of it, and characters in a second.

    The first answer is kept apart.
    """
    figures: list[Figure] = []
    for series in bench.series:
        figures += _figures(series)
    cold = {"first audio": bench.cold.first_s, "all audio": bench.cold.last_s} if bench.cold is not None else {}
    return Result(at, KIND, str(address), where, tuple(figures), cold)


def _figures(series: Series) -> Iterator[Figure]:
    ask = series.ask
    behind = f" @ {ask.text} {ask.format} {ask.voice}"
    first, whole, rate = list[Trial](), list[Trial](), list[Trial]()
    for run in series.runs:
        first.append(Trial(run.first_s, series.waited))
        whole.append(Trial(run.last_s, series.waited))
        rate.append(Trial(len(ask.words) / run.last_s, series.waited))
    yield Figure(f"first audio{behind}", SECONDS, tuple(first))
    yield Figure(f"all audio{behind}", SECONDS, tuple(whole))
    yield Figure(f"characters{behind}", PER_S, tuple(rate))


def measure(
    speaker: Speaker,
    provider: Provider,
    asks: Sequence[Ask],
    *,
    runs: int,
    emit: Callable[[Event], None],
    look: Callable[[], Load] = NobodyTells,
    is_warm: bool = False,
) -> Bench:
    """Have it speak, one text after the other; raises ``ProvisionError`` with what was wrong with an answer.

    ``look``: begins to look at what is in the way there. A first answer is kept apart, unless it ``is_warm`` already.
    """
    series = []
    cold = None
    if not is_warm:
        emit(ApplyProgress(speaker.container, "a first answer, which is kept apart"))
        cold = run_of(_spoken(speaker, provider, asks[0]))
    for ask in asks:
        load = look()
        made: list[Run] = []
        for number in range(1, runs + 1):
            text = f"the {ask.text} text, {ask.format}, {ask.voice}: {number} of {runs}"
            emit(ApplyProgress(speaker.container, text, goes_on=bool(made)))
            made.append(run_of(_spoken(speaker, provider, ask)))
        waited, others = load.share_until_now(runs)
        if others > 0:
            message = f"{others} requests of others came meanwhile: {speaker.address} may have been slower for it"
            emit(Diagnostic("warning", message))
        series.append(Series(ask, tuple(made), waited))
    uses_card = computes_on_card(speaker, provider)
    shown = _said(provider, speaker, ("systemctl", "show", "--property=MemoryCurrent", "--value", speaker.unit))
    return Bench(
        speaker.container,
        {None: UNKNOWN, True: "gpu", False: "cpu"}[uses_card],
        tuple(series),
        int(shown) if shown.isdecimal() else None,
        _vram(provider, speaker) if uses_card else None,
        cold,
    )


def computes_on_card(speaker: Speaker, provider: Provider) -> bool | None:
    """Whether the server that runs computes on a card; None where its environment does not tell."""
    if not speaker.card_variable:
        return None
    return _said(provider, speaker, ("sh", "-c", VALUE, speaker.unit, speaker.card_variable)) == "true"


def _vram(provider: Provider, speaker: Speaker) -> int | None:
    """Bytes in use on all cards of the container, one line each; None where one of them does not tell."""
    lines = _said(provider, speaker, VRAM).split()
    return sum(map(int, lines)) * _MIB if lines and all(map(str.isdecimal, lines)) else None


def _spoken(speaker: Speaker, provider: Provider, ask: Ask) -> dict[str, object]:
    fields = {"port": speaker.port, "input": ask.words, "voice": ask.voice, "format": ask.format}
    asked = {**fields, "stream": True, "keep_chunks": True, "timeout_s": ANSWER_TIMEOUT_S}
    done = provider.execute(
        speaker.container, ["python3", speaker.program], stdin=json.dumps(asked).encode(), timeout_s=ANSWER_TIMEOUT_S
    )
    answer: dict[str, object] = {"problem": Foreign.of_output(done.stderr)}
    if done.returncode == 0:
        answer = _answer(done.stdout)
    if answer["problem"]:
        raise ProvisionError(
            f"Unable to measure {speaker.address}: it does not speak",
            details=str(answer["problem"]),
            resolution=f"Run: provision verify {speaker.container}   or look at: provision logs {speaker.container}",
        )
    return answer


def _answer(said: bytes) -> dict[str, object]:
    """What the program said, of its types; its problem where that is not so."""
    try:
        answer = answer_value(said)
        problem = answer["problem"]
        if not problem:
            run_of(answer)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        return {"problem": f"its answer is damaged: {error}"}
    return {**answer, "problem": problem}


def _said(provider: Provider, speaker: Speaker, command: Sequence[str]) -> str:
    """What a command says there, nothing where it cannot be run."""
    done = provider.execute(speaker.container, command, timeout_s=LOOK_TIMEOUT_S)
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


# Results as text and as values: a table, when the audio arrived, and what follows from it.

HEADINGS = ("container", "on", "text", "format", "voice", "first audio", "all of it", "share", "bursts", "chars/s")
COLUMNS = 60


def bench_text(benches: Sequence[Bench]) -> str:
    """All of it for a terminal."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for bench in benches:
        rows += [_row(bench, series) for series in bench.series]
    return "\n".join([*aligned(rows), "", *_memory(benches), "", *plot(benches), "", *verdict(benches)])


def bench_content(benches: Sequence[Bench]) -> dict[str, Any]:
    """All of it as values: seconds, bytes, characters in a second."""
    return {"benches": list(map(_content, benches)), "verdict": list(verdict(benches))}


def plot(benches: Sequence[Bench]) -> Iterator[str]:
    """When audio arrived, a line for each container and text: ``#`` where a piece came, all on one scale of time."""
    for text in ("short", "long"):
        runs = _typical_runs(benches, text)
        longest = max((run.last_s for _, run in runs), default=0.0)
        if not longest:
            continue
        yield f"When audio of the {text} text arrived, in {longest:.2f} s:"
        width = max(len(container) for container, _ in runs)
        for container, run in runs:
            yield f"  {container.ljust(width)} |{timeline(run, longest)}|"


def _typical_runs(benches: Sequence[Bench], text: str) -> list[tuple[str, Run]]:
    """The containers that read this text ("short", "long"), each with its typical run."""
    runs = []
    for bench in benches:
        series = bench.of(text)
        if series is not None:
            runs.append((bench.container, series.typical))
    return runs


def timeline(run: Run, longest: float) -> str:
    """One line of the plot: ``.`` before anything is heard, ``#`` pieces, ``-`` between them, blanks after them."""
    columns = {min(COLUMNS - 1, int(at / longest * COLUMNS)) for at, _ in run.chunks}
    if not columns:
        return "." * COLUMNS
    first, last = min(columns), max(columns)
    heard = "".join("#" if column in columns else "-" for column in range(first, last + 1))
    return f"{'.' * first}{heard}".ljust(COLUMNS)


def _row(bench: Bench, series: Series) -> tuple[str, ...]:
    return (
        bench.container,
        bench.device,
        f"{series.ask.text} ({len(series.ask.words)})",
        series.ask.format,
        series.ask.voice,
        f"{series.first_s:.2f} s",
        f"{series.total_s:.2f} s",
        f"{series.share:.2f}",
        str(series.typical.bursts),
        f"{series.characters_per_s:.0f}",
    )


def _memory(benches: Sequence[Bench]) -> Iterator[str]:
    for bench in benches:
        card = "" if bench.device != "gpu" else f", of the card {_mib(bench.vram)}"
        yield f"{bench.container}: memory {_mib(bench.ram)}{card}"
        if bench.cold is not None:
            first, last = bench.cold.first_s, bench.cold.last_s
            yield f"{bench.container}: the first answer of all came after {first:.2f} s, all of it after {last:.2f} s"


def _mib(size: int | None) -> str:
    return f"{size / _MIB:.0f} MiB" if size else "not told"


def _content(bench: Bench) -> dict[str, Any]:
    return {
        "container": bench.container,
        "device": bench.device,
        "ram": bench.ram,
        "vram": bench.vram,
        "cold": asdict(bench.cold) if bench.cold is not None else None,
        "series": list(map(_series_content, bench.series)),
    }


def _series_content(series: Series) -> dict[str, Any]:
    return {
        "text": series.ask.text,
        "characters": len(series.ask.words),
        "format": series.ask.format,
        "voice": series.ask.voice,
        "first_s": series.first_s,
        "total_s": series.total_s,
        "characters_per_s": series.characters_per_s,
        "runs": list(map(asdict, series.runs)),
    }


# The picture of when audio arrived: a row for each answer, those of a text on one scale of time.

WIDTH = 960
LEFT, RIGHT = 300, 740
"""Where time begins, and where the longest answer of a text ends."""
EDGE = 40
ROW, BAR = 26, 3
TOP = 76
GROUP_HEAD, AXIS, GAP = 34, 34, 22
LINE = 20
COLOURS = 6
TITLE = "When audio arrived"

Row = tuple[Bench, Series]


def bench_svg(benches: Sequence[Bench]) -> str:
    """The whole picture, well-formed whatever the names are; the same bytes for the same figures."""
    colours = {bench.container: f"c{number % COLOURS}" for number, bench in enumerate(benches)}
    parts: list[str] = []
    y = float(TOP)
    for rows in _by_text(benches):
        parts += _group(rows, y, colours)
        y += _height(rows) + AXIS + GAP
    for words in verdict(benches):
        parts.append(f'<text x="{EDGE}" y="{y:.1f}">{escaped(words)}</text>')
        y += LINE
    size = f'width="{WIDTH}" height="{y + LINE:.0f}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {y + LINE:.0f}" role="img">',
        f"<title>{TITLE}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" {size} rx="10"/>',
        svg_text(EDGE, 44, TITLE, "title"),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _by_text(benches: Sequence[Bench]) -> Iterable[list[Row]]:
    """The rows of each text, in the order in which the texts were read first."""
    groups: dict[str, list[Row]] = {}
    for bench in benches:
        for series in bench.series:
            groups.setdefault(series.ask.text, []).append((bench, series))
    return groups.values()


def place_of(seconds: float, longest: float) -> float:
    """Where a moment stands from left to right."""
    return LEFT + (RIGHT - LEFT) * seconds / longest


def _height(rows: Sequence[Row]) -> float:
    """Of a text's name, a line for each container and one for each answer."""
    return GROUP_HEAD + ROW * (len({bench.container for bench, _ in rows}) + len(rows))


def _group(rows: Sequence[Row], top: float, colours: dict[str, str]) -> Iterator[str]:
    """All answers to one text, below each other, and the time below them."""
    longest = max(series.typical.last_s for _, series in rows)
    ask = rows[0][1].ask
    yield svg_text(EDGE, top + 14, f"{ask.text} text, {len(ask.words)} characters", "strong")
    below = top + _height(rows)
    for moment in ticks(longest):
        x = place_of(moment, longest)
        yield f'<path class="line" stroke-opacity="0.3" d="M{x:.1f} {top + GROUP_HEAD:.1f} V{below:.1f}"/>'
        yield svg_text(x, below + 18, f"{moment:g} s", "quiet", "middle")
    middle, before = top + GROUP_HEAD - ROW / 2, ""
    for bench, series in rows:
        if bench.container != before:
            middle, before = middle + ROW, bench.container
            yield svg_text(EDGE, middle + 4, f"{bench.container}, {bench.device}", "strong")
        middle += ROW
        yield f'<g class="{colours[bench.container]}">'
        yield from _answer_row(series, middle, longest)
        yield "</g>"


def _answer_row(series: Series, middle: float, longest: float) -> Iterator[str]:
    """The format and the voice, the wait, the audio with a dot for each piece, and both times."""
    yield svg_text(LEFT - 14, middle + 4, f"{series.ask.format}, {series.ask.voice}", "quiet", "end")
    yield from _arrivals(series.typical, middle, longest)
    times = f"{series.first_s:.2f} of {series.total_s:.2f} s, {series.share:.2f}"
    yield svg_text(RIGHT + 14, middle + 4, times, "quiet")


def _arrivals(run: Run, middle: float, longest: float) -> Iterator[str]:
    first, last = place_of(run.first_s, longest), place_of(run.last_s, longest)
    yield f'<path class="line fallback" d="M{LEFT} {middle:.1f} H{first:.1f}"/>'
    yield rectangle(Rectangle(first, middle - BAR / 2, last - first, BAR), "head", 2)
    for x in sorted({round(place_of(at, longest)) for at, _ in run.chunks}):
        yield f'<circle class="dot" cx="{x}" cy="{middle:.1f}" r="4"/>'
