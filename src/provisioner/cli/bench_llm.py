"""``bench --kind llm``: what clients of a service see, of the lab's own ones and of others."""

from __future__ import annotations

from pathlib import Path

from provisioner.cli.bench_options import Asked
from provisioner.cli.bench_results import check_accepted, judge
from provisioner.cli.bench_subject import subject_of
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.measuring import endpoints
from provisioner.measuring.gate import LEAST_TRIALS
from provisioner.measuring.history import accepted_file_of, file_of, keep
from provisioner.measuring.llm import KIND, Depth, check_context, foretold_text, measure_llm


def bench_llm(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure what is named, after a question; 3 where ``--gate`` finds it slower."""
    from provisioner.cli.confirm import require_yes

    lab = session.open_lab(words.existing(), with_secrets=True)
    subject = subject_of(session, lab, words, asked)
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
