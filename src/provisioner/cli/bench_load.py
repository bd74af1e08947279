"""``bench --kind load``: what many clients of a service see at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from provisioner.cli.bench_options import Asked
from provisioner.cli.bench_results import Told, check_accepted, judge
from provisioner.cli.bench_subject import subject_of
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.measuring import endpoints
from provisioner.measuring.gate import BUDGET_S
from provisioner.measuring.history import accepted_file_of, file_of, keep
from provisioner.measuring.llm import Depth, check_context
from provisioner.measuring.load import (
    KIND,
    TOOL,
    Judged,
    Objective,
    foretold_text,
    load_content,
    load_text,
    measure_load,
    options_of,
    seconds_each,
)
from provisioner.measuring.load import Asked as Load
from provisioner.measuring.tools import is_made
from provisioner.values.errors import VerificationError


def bench_load(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure what is named, after a question; 3 where ``--gate`` finds it slower."""
    from provisioner.cli.confirm import require_yes

    lab = session.open_lab(words.existing(), with_secrets=True)
    subject = subject_of(session, lab, words, asked)
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
        check_accepted(KIND, accepted, subject.address, wanted, f"provision bench {subject.words} --kind {KIND}")
    endpoints.check_reached(endpoint)
    if not asked.yes:
        question = foretold_text(
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
        session.console.result(told.text, kind=KIND, **told.values)
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
