"""``bench --kind engine``: what the program of an engine computes, without its server."""

from __future__ import annotations

from pathlib import Path

from provisioner.cli.bench_options import Asked
from provisioner.cli.bench_results import check_accepted, judge
from provisioner.cli.options import Words
from provisioner.cli.session import Session
from provisioner.measuring import engine
from provisioner.measuring.engine import KIND, arrangements, setting_of, sweeps
from provisioner.measuring.gate import BUDGET_S
from provisioner.measuring.history import accepted_file_of


def bench_engine(session: Session, words: Words, asked: Asked, plot: Path | None) -> int:
    """Measure the engine that is named, after a question; 3 where ``--gate`` finds it slower."""
    from provisioner.cli.confirm import require_yes

    lab = session.open_lab(words.existing(), with_secrets=True)
    effects = session.effects(lab)
    subject = engine.subject_of(lab, effects, words.names[0])
    address = subject.service.address
    arranged = arrangements(subject, asked.tokens, tuple(sweeps(asked.sweep)))
    accepted = accepted_file_of(lab.name, address)
    if asked.gate:
        wanted = [setting_of(subject, one.command) for one in arranged]
        check_accepted(KIND, accepted, address, wanted, f"provision bench {subject.container} --kind {KIND}")
    if not asked.yes:
        told = engine.foretold_text(subject, len(arranged), asked.trials, BUDGET_S)
        require_yes(session.console, told, "Not measured")
    results = engine.measure_engine(lab, effects, subject, arranged, trials=asked.trials or 0, may_refuse=asked.refuse)
    return judge(session, accepted, results, asked, plot)
