"""``top``: what the engines and gateways of a lab do at this moment; nobody is woken, and nothing is changed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from provisioner import agent, live_in_container
from provisioner.agent_answers import DamagedAnswerError, live_answer
from provisioner.carried import program_of
from provisioner.lab.opening import Lab
from provisioner.measuring.engines import switch_socket
from provisioner.measuring.live import CardUse, Look, Row, State, look_of, rates_between
from provisioner.providers.base import Provider
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.gather import COMMAND
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.values.address import Address
from provisioner.values.errors import InputError, ProvisionError
from provisioner.values.plain_data import answer_value, foreign
from provisioner.values.state import Execution, Fleet, Instance, Status

STAGES = ("engine", "team", "gateway")
"""Whoever answers requests of clients; people look at the others."""
LIVE = "live"
LONGEST_LOOK_S = 10.0
"""A container that has not answered by then is told as silent."""
LONGEST_WORDS = 200
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen in one look: a row for each service, and the cards of containers that have one."""

    rows: tuple[Row, ...]
    cards: tuple[CardUse, ...] = ()


@dataclass
class Watch:
    """Looks at the services of a lab again and again; from two looks at a counter follows how fast it grows."""

    lab: Lab
    effects: Effects
    services: Sequence[ResolvedService]
    _before: dict[Address, Look] = field(default_factory=dict)

    def picture(self) -> Picture:
        """Look once at all of them; raises ``ProvisionError`` where no host answers."""
        there, silent = self._observed()
        containers = dict.fromkeys(one.container for one in self.services)
        running = [name for name in containers if name in there and there[name].status is Status.RUNNING]
        answers = self._answers(there, running)
        rows, cards = [], []
        for service in self.services:
            look = self._look(service, there, silent, answers)
            rows.append(Row(service.address, look, rates_between(self._before.get(service.address), look)))
            self._before[service.address] = look
        for name in running:
            answer = answers.get(name)
            if isinstance(answer, dict):
                cards += [CardUse(name, *card) for card in answer["cards"]]
        return Picture(tuple(rows), tuple(cards))

    def _observed(self) -> tuple[dict[str, Instance], dict[str, str]]:
        """The containers that are there, by their names, and of hosts that do not answer why."""
        providers = self.effects.providers
        seen = _all_of(lambda host: providers[host].observe(self.lab.name, detailed=False), providers)
        errors = {host: found for host, found in seen.items() if isinstance(found, ProvisionError)}
        if errors and len(errors) == len(seen):
            raise next(iter(errors.values()))
        there: dict[str, Instance] = {}
        for found in seen.values():
            if isinstance(found, Fleet):
                there |= {one.name: one for one in found.instances}
        return there, {host: error.message for host, error in errors.items()}

    def _answers(self, there: Mapping[str, Instance], running: Sequence[str]) -> dict[str, dict[str, Any] | str]:
        """What each running container says, or why it says nothing; all hosts are asked at once."""
        by_host: dict[str, list[str]] = {}
        for name in running:
            by_host.setdefault(there[name].host, []).append(name)
        told = _all_of(lambda host: self._asked(host, by_host[host]), by_host)
        answers: dict[str, dict[str, Any] | str] = {}
        for host, found in told.items():
            if isinstance(found, ProvisionError):
                answers |= dict.fromkeys(by_host[host], found.message)
            else:
                answers |= found
        return answers

    def _asked(self, host: str, names: Sequence[str]) -> dict[str, dict[str, Any] | str]:
        """What each of these containers says, or why it says nothing: one run of a program in each, all at once."""
        provider: Provider = self.effects.providers[host]
        requests = {name: json.dumps(self._request(name)).encode() for name in names}
        looked = provider.look(COMMAND, requests, shared=program_text(), timeout_s=LONGEST_LOOK_S)
        found: dict[str, dict[str, Any] | str] = {name: error.message for name, error in looked.failures.items()}
        for name, ran in looked.executions.items():
            found[name] = _answer(ran, [str(one.address) for one in self._of(name)])
        return found

    def _of(self, container: str) -> list[ResolvedService]:
        return [one for one in self.services if one.container == container]

    def _request(self, container: str) -> dict[str, Any]:
        """What a container is asked."""
        asked = []
        for one in self._of(container):
            metrics = knowledge_of(one.role).metrics(one)
            engine: dict[str, Any] = {"address": str(one.address), "unit": one.page.unit, "socket": switch_socket(one)}
            engine |= {"port": one.own_port, "health": one.health or ""}
            asked.append({**engine, "metrics": asdict(metrics) if metrics else None})
        has_card = self.lab.spec.containers[container].gpu is not None
        return {"do": LIVE, "card": has_card, "services": asked}

    def _look(
        self,
        service: ResolvedService,
        there: Mapping[str, Instance],
        silent: Mapping[str, str],
        answers: Mapping[str, dict[str, Any] | str],
    ) -> Look:
        """What is seen of one service."""
        host = self.lab.resolved.containers[service.container].host
        instance = there.get(service.container)
        if instance is None:
            away = silent.get(host or "", next(iter(silent.values()), "") if host is None else "")
            return Look(State.NO_ANSWER, problem=away) if away else Look(State.NOT_THERE)
        if instance.status is not Status.RUNNING:
            return Look(State.STOPPED)
        answer = answers.get(service.container, "it was not asked")
        if isinstance(answer, str):
            return Look(State.NO_ANSWER, problem=answer)
        metrics = knowledge_of(service.role).metrics(service)
        tells_models = metrics is not None and (metrics.models or metrics.held)
        named = [] if tells_models else [service.name_of(name) for name in service.served_models]
        return look_of(answer["services"][service.address], metrics.series if metrics else {}, named)


def watch(lab: Lab, effects: Effects, targets: Sequence[str] = ()) -> Watch:
    """Who looks at the engines and gateways of these containers (none: of all); ``InputError`` where there are none."""
    found = []
    for service in lab.resolved.services.values():
        is_wanted = not targets or service.container in targets
        if is_wanted and service.page.stage in STAGES and service.page.unit:
            found.append(service)
    if not found:
        raise InputError(
            f"Unable to watch {' '.join(targets) or lab.name}: no container there has an engine or a gateway",
            resolution="Run: provision status, which says what runs in all containers.",
        )
    return Watch(lab, effects, found)


@cache
def program_text() -> bytes:
    """The program with what it needs, as it is sent: what follows it is the request."""
    texts = {}
    for module in (agent, live_in_container):
        texts[module.__name__.rpartition(".")[2]] = Path(str(module.__file__)).read_text(encoding="utf-8")
    return zlib.compress(program_of(texts["live_in_container"], {"agent": texts["agent"]}).encode())


def _answer(ran: Execution, addresses: Sequence[str]) -> dict[str, Any] | str:
    """What a container said, or why it said nothing that can be read."""
    if ran.returncode:
        last = ran.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"python3 ended with {ran.returncode}: {''.join(last)[:LONGEST_WORDS]}"
    try:
        return foreign(live_answer(answer_value(ran.stdout), addresses))
    except (DamagedAnswerError, ValueError) as error:
        return f"its answer is damaged: {str(error)[:LONGEST_WORDS]}"


def _all_of(ask: Callable[[str], Found], names: Iterable[str]) -> dict[str, Found | ProvisionError]:
    """What each gave, all asked at once; in the place of one that failed its error."""

    def caught(name: str) -> Found | ProvisionError:
        try:
            return ask(name)
        except ProvisionError as error:
            return error

    names = list(names)
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return dict(zip(names, pool.map(caught, names), strict=True))
