"""The verb ``bench``: has the services of a lab that speak say the same texts, and takes the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from provisioner.bench import Ask, Bench, Run, Series, run_of
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import SPEECH_PROTOCOL
from provisioner.measuring.engines import Engine
from provisioner.measuring.history import Result, Setting
from provisioner.measuring.series import SECONDS, Trial
from provisioner.measuring.series import Series as Figure
from provisioner.providers.base import Provider
from provisioner.reconcile.effects import Effects
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench
from provisioner.values.address import Address
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.events import ApplyProgress, Diagnostic, Event
from provisioner.values.plain_data import Foreign, answer_value
from provisioner.workflow.endpoints import Load, NobodyTells
from provisioner.workflow.engine_benching import served_there

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
