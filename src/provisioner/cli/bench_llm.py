"""``bench --kind llm`` and ``--kind load``: what clients of a service see, of the lab's own ones and of others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from provisioner.cli.bench_options import Asked
from provisioner.cli.bench_results import Told, check_accepted, judge
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.measuring import endpoints
from provisioner.measuring.endpoints import Endpoint
from provisioner.measuring.history import BUDGET_S, LEAST_TRIALS, accepted_file_of, file_of, keep
from provisioner.measuring.llm import KIND, Depth, check_context, foretold_text, measure_llm
from provisioner.measuring.load import KIND as LOAD
from provisioner.measuring.load import (
    TOOL,
    Judged,
    Objective,
    load_content,
    load_text,
    measure_load,
    options_of,
    seconds_each,
)
from provisioner.measuring.load import Asked as Load
from provisioner.measuring.load import foretold_text as foretold_load_text
from provisioner.measuring.tools import is_made
from provisioner.values.address import Address
from provisioner.values.errors import InputError, VerificationError
from provisioner.values.state import Secret


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: where, under which address it is kept, and by which words it is named.

    ``alone``: nobody changes it meanwhile.
    """

    endpoint: Endpoint
    address: Address
    words: str
    alone: AbstractContextManager[object]


def bench_llm(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure what is named, after a question; 3 where ``--gate`` finds it slower."""
    from provisioner.cli.confirm import require_yes

    lab = session.open_lab(words.existing(), with_secrets=True)
    subject = _subject_of(session, lab, words, asked)
    endpoint = subject.endpoint
    depths = [Depth(depth, *asked.tokens) for depth in asked.depth]
    check_context(endpoint, depths)
    accepted = accepted_file_of(lab.name, subject.address)
    if asked.gate:
        wanted = [endpoint.measured_with(one.options(endpoint.model)) for one in depths]
        check_accepted(KIND, accepted, subject.address, wanted, f"provision bench {subject.words} --kind {KIND}")
    endpoints.check_reached(endpoint)
    trials = asked.trials or (0 if endpoint.is_ours else LEAST_TRIALS)
    if not asked.yes:
        require_yes(
            session.console, foretold_text(endpoint.name, depths, trials, costs=not endpoint.is_ours), "Not measured"
        )
    with subject.alone:
        results = measure_llm(endpoint, depths, trials, session.console.emit)
        for result in results:
            keep(file_of(lab.name, subject.address), result)
    return judge(session, accepted, results, asked, plot)


def _subject_of(session: Session, lab: Lab, words: Words, asked: Asked) -> Subject:
    """What is named, or the address that is given; raises ``InputError`` where that is nothing that answers chats."""
    if asked.url is not None:
        return _of_url(session, lab, asked, asked.url)
    _refuse("key", asked.key)
    (name,) = words.names
    if name in lab.resolved.upstreams and name not in lab.resolved.containers:
        _refuse("model", asked.model)
        endpoint = endpoints.endpoint_of_upstream(name, lab.resolved.upstreams[name])
        return Subject(endpoint, Address.of(endpoints.UPSTREAM, name), name, nullcontext())
    return _of_lab(session, lab, name, asked)


def _of_url(session: Session, lab: Lab, asked: Asked, url: str) -> Subject:
    """Any address; its key is a secret as the file would name it."""
    if not asked.model:
        raise InputError(f"Unable to measure {url}: nobody says which model is asked", resolution="Say --model.")
    endpoint = endpoints.elsewhere(url, url, asked.model, _key(session, lab, asked.key) if asked.key else None)
    words = f"--url {url} --model {asked.model}"
    return Subject(endpoint, endpoints.address_of_url(url), words, nullcontext())


def _key(session: Session, lab: Lab, name: str) -> Secret:
    from provisioner.labfile.loader import named_secret

    secret = named_secret(lab.loaded, name)
    session.console.hide([secret])
    return secret


def _of_lab(session: Session, lab: Lab, name: str, asked: Asked) -> Subject:
    from provisioner.cli.gateways import address_of

    service = endpoints.chat_service(lab.resolved, name)
    effects = session.effects(lab)

    def found(container: str, is_on_lan: bool) -> str:
        return address_of(session, lab, container, is_on_lan=is_on_lan)

    endpoint = endpoints.endpoint_of_service(lab, effects, service, asked.model, found)
    alone = effects.locked(lab.name, endpoints.VERB)
    return Subject(endpoint, service.address, service.address, alone)


def _refuse(name: str, value: object) -> None:
    """Raise ``InputError`` where an option was given that says nothing of what is measured."""
    if value is not None:
        raise InputError(f"Unable to measure that with --{name}", resolution="Leave it out, or say --url.")


def bench_load(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure what is named, after a question; 3 where ``--gate`` finds it slower."""
    from provisioner.cli.confirm import require_yes

    lab = session.open_lab(words.existing(), with_secrets=True)
    subject = _subject_of(session, lab, words, asked)
    endpoint = subject.endpoint
    read, written = asked.tokens
    load = Load(asked.clients, seconds_each(BUDGET_S, len(asked.clients)), read, written, Objective(*asked.within))
    check_context(endpoint, [Depth(0, read, written)])
    accepted = accepted_file_of(lab.name, subject.address)
    if asked.gate:
        wanted = []
        for clients in asked.clients:
            options = options_of(endpoint.model, asked.tokens, clients)
            wanted.append(endpoint.measured_with(options))
        check_accepted(LOAD, accepted, subject.address, wanted, f"provision bench {subject.words} --kind {LOAD}")
    endpoints.check_reached(endpoint)
    if not asked.yes:
        question = foretold_load_text(
            endpoint.name, load.clients, load.seconds, costs=not endpoint.is_ours, is_made=is_made(TOOL)
        )
        require_yes(session.console, question, "Not measured")
    with subject.alone:
        found = measure_load(endpoint, load, session.console.emit)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        results = []
        for one in found:
            where = endpoint.measured_with(options_of(endpoint.model, asked.tokens, one.level.clients))
            results.append(one.result(at, endpoint.name, where))
            keep(file_of(lab.name, subject.address), results[-1])
    told = Told(load_text(found, session.console.style), {"levels": load_content(found)})
    if (asked.gate or asked.accept) and any(one.level.failed for one in found):
        session.console.result(told.text, kind=LOAD, **told.values)
        _check_answered(found)
    return judge(session, accepted, results, asked, plot, told=told)


def _check_answered(found: Sequence[Judged]) -> None:
    """Raise ``VerificationError`` where requests failed: those that were answered may be faster for it."""
    for one in found:
        if one.level.failed:
            raise VerificationError(
                f"Unable to judge {one.level.clients} clients: {one.level.failed} of their requests failed",
                details=one.level.error,
                resolution="What was measured is kept. Look at what the service logs, or ask with fewer clients.",
            )
