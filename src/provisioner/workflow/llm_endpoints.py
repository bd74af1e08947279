"""Where what answers chats is reached, and what is known of it: a service of the lab, an upstream, any address."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from provisioner import load_in_container
from provisioner.agent_answers import DamagedAnswerError, load_answer
from provisioner.cpu_waits import Waits
from provisioner.forwarder import HTTP, Target
from provisioner.lab.aliases import ENGINE_STAGE, flatten
from provisioner.lab.opening import Lab
from provisioner.lab.resolved import ENGINE_PROTOCOL, ResolvedLab
from provisioner.labfile.spec import OLLAMA, Upstream, provider_of
from provisioner.measuring.engines import Engine
from provisioner.measuring.history import Setting
from provisioner.measuring.llm_bench import Depth
from provisioner.page.clients import models_of
from provisioner.reconcile.effects import Effects
from provisioner.services import knowledge_of
from provisioner.services.base import EngineBench, ResolvedService
from provisioner.services.routed import CHAT
from provisioner.values.address import Address
from provisioner.values.errors import InputError, PreflightError, ProviderError
from provisioner.values.state import Secret
from provisioner.workflow.endpoints import Endpoint, Load
from provisioner.workflow.engine_benching import served_there
from provisioner.workflow.engine_pauses import SPARE_S, asked_there, look_at

VERB, LOAD = "bench", "load"
UPSTREAM, URL = "_upstream", "_url"
"""In the place of a container's name, which has no such character."""
ONLY_OURS = frozenset({"return_token_ids", "cache_prompt", "min_tokens", "ignore_eos"})
"""What others may refuse in the body of a request."""
REACH_S = 10.0
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]+")
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class _HostLoad:
    """The load of the host of an engine of ours, from a moment on."""

    engine: Engine
    effects: Effects
    began: tuple[Waits, int]

    def share_until_now(self, own: int) -> tuple[float, int]:
        """As ``Load`` has it."""
        (before, answered), (after, answered_now) = self.began, _looked(self.engine, self.effects)
        others = answered_now - answered - own
        is_counted = answered >= 0 and answered_now >= answered
        return before.share_until(after), others if is_counted else -1


def host_load(engine: Engine, effects: Effects) -> Load:
    """The load of the host of an engine of ours, from now on."""
    return _HostLoad(engine, effects, _looked(engine, effects))


def _looked(engine: Engine, effects: Effects) -> tuple[Waits, int]:
    """What is in the way there now, and how many requests were led to it so far."""
    answer = asked_there(
        engine, load_in_container, {"do": LOAD, "socket": engine.switch}, "a look", effects, within_s=SPARE_S
    )
    try:
        said = load_answer(answer)
    except DamagedAnswerError as error:
        raise ProviderError(f"Unable to look what is in the way of {engine.service.address}: {error}") from error
    answered = int(said.pop("answered"))
    return Waits(**said), answered


def chat_service(lab: ResolvedLab, name: str) -> ResolvedService:
    """The engine or gateway of that name, CONTAINER or CONTAINER/SERVICE; ``InputError`` where it names not one."""
    found = [service for address, service in lab.services.items() if name in (address, service.container)]
    chats = [
        one for one in found if one.page.protocol == ENGINE_PROTOCOL and knowledge_of(one.role).answers(one) == CHAT
    ]
    if len(chats) != 1:
        raise InputError(
            f"Unable to measure {name}: it names {len(chats)} services that answer chats, and one is wanted",
            resolution="Name it as CONTAINER/SERVICE, or name an upstream of the file.",
        )
    return chats[0]


def measured_address(lab: ResolvedLab, name: str) -> Address:
    """Under which address the results of what is called so are kept; raises ``InputError`` where nothing is."""
    found = [one for address, one in lab.services.items() if name in (address, one.container)]
    if not found and name in lab.upstreams:
        return Address.of(UPSTREAM, name)
    engines = [one for one in found if one.page.stage == ENGINE_STAGE] or found
    if len(engines) != 1:
        raise InputError(
            f"Unable to show what was measured of {name}: it names {len(engines)} services of the file",
            resolution="Name it as CONTAINER/SERVICE, or name an upstream of the file.",
        )
    return engines[0].address


def endpoint_of_service(
    lab: Lab, effects: Effects, service: ResolvedService, model: str | None, address_of: Callable[[str, bool], str]
) -> Endpoint:
    """A service of the lab, reached from this machine; ``address_of``: of a container, in the LAN if it is there."""
    models = models_of(lab.with_headers, service)
    name = chosen_model(service.address, tuple(models), model)
    engine, _ = look_at(lab, effects, service, VERB)
    served = served_there(engine, EngineBench("-"), effects)
    may_cost = costs(lab.resolved, service, name)
    written = service.models.get(service.served_models[0]) if len(service.served_models) == 1 else None
    where = Setting(
        host=engine.instance.host,
        processor=f"{served.processor}, {served.threads} of them",
        card=served.card,
        driver=served.driver,
        build=served.build,
        model=served.model or (written.sha256 if written else None) or "",
        options={},
    )
    address = address_of(service.container, service.is_on_lan)
    without = ONLY_OURS if may_cost else frozenset()
    target = Target(f"http://{address}:{service.port}/v1", service.key, without=without)
    return Endpoint(
        str(service.address),
        target,
        name,
        models[name].context,
        not may_cost,
        where,
        "Write expose: lan for it, or run this on its host.",
        lambda: host_load(engine, effects),
        _ways_of_writing(service),
    )


def _ways_of_writing(service: ResolvedService) -> dict[str, str]:
    """By which of its options the results of a service are told apart, with what it is; empty where by none."""
    ways = knowledge_of(service.role).ways_of_writing(service)
    return {"engine": service.role, **ways} if ways else {}


def costs(lab: ResolvedLab, service: ResolvedService, model: str) -> bool:
    """Whether somebody may be paid for what a gateway is asked by that alias."""
    return any(name in lab.upstreams for name in flatten(service.aliases, model)) if service.aliases else False


def endpoint_of_upstream(name: str, upstream: Upstream) -> Endpoint:
    """An upstream of the file; raises ``InputError`` where only its provider's library knows its address."""
    if upstream.base_url is None:
        raise InputError(
            f"Unable to measure {name}: the file does not say where {provider_of(upstream.model)} answers",
            resolution="Say it: provision bench --kind llm --url https://…/v1 --key SECRET --model NAME",
        )
    url = str(upstream.base_url).rstrip("/")
    if provider_of(upstream.model) in OLLAMA:
        url += "/v1"
    model = upstream.model.partition("/")[2]
    key = upstream.api_key if isinstance(upstream.api_key, Secret) else None
    return elsewhere(name, url, model, key)


def elsewhere(name: str, url: str, model: str, key: Secret | None) -> Endpoint:
    """Any address; ``name``: how it is called."""
    target = Target(url, key, without=ONLY_OURS)
    where = Setting(urlsplit(url).hostname or "", "", "", "", "", "", {})
    return Endpoint(name, target, model, None, False, where, "Look at its address.")


def address_of_url(url: str) -> Address:
    """Under which address the results of a URL are kept."""
    parts = urlsplit(url)
    name = NOT_IN_A_NAME.sub("-", parts.netloc + parts.path).strip("-")[:LONGEST_NAME]
    return Address.of(URL, f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}")


def check_reached(endpoint: Endpoint) -> None:
    """Raise ``PreflightError`` where nobody listens there."""
    parts = urlsplit(endpoint.target.url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or HTTP[parts.scheme]), REACH_S):
            pass
    except OSError as error:
        raise PreflightError(
            f"Unable to measure {endpoint.name}: this machine does not reach {parts.netloc}",
            details=str(error),
            resolution=endpoint.hint,
        ) from error


def chosen_model(name: str, models: Sequence[str], wanted: str | None) -> str:
    """The model that is asked: the wanted one, else the only one; raises ``InputError`` where that is none."""
    if wanted is None and len(models) == 1:
        return models[0]
    if wanted in models and wanted is not None:
        return wanted
    offered = ", ".join(models) or "none"
    problem = f"it has no {wanted}" if wanted else f"it has {len(models)} models"
    raise InputError(f"Unable to measure {name}: {problem}", resolution=f"Say --model, one of: {offered}.")


def check_context(endpoint: Endpoint, depths: Sequence[Depth]) -> None:
    """Raise ``InputError`` where a request would be longer than the service takes."""
    longest = max(one.longest for one in depths)
    if endpoint.context is not None and longest > endpoint.context:
        raise InputError(
            f"Unable to measure {endpoint.name}: a request may have {longest} tokens, and it takes {endpoint.context}",
            resolution="Say less with --depth or --tokens, or write a longer context.",
        )
