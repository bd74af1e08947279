"""What a search for the longest context may take, and what it has found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provisioner.report.style import PLAIN, Style, count_text, duration_text, safe_line, table

if TYPE_CHECKING:
    from provisioner.measuring.trials import Probed, Subject

MIB = 2**20
HEAD = ("TOKENS", "OUTCOME", "LOADED IN", "ALL OF IT", "MEMORY", "CARD", "")


def foretold_text(subject: Subject, tries: int) -> str:
    """How often it is started, for how long, and what becomes of requests meanwhile."""
    service = subject.service
    first, last = subject.contexts.low, subject.contexts.high
    starts = f"{service.address} is started {count_text(tries, 'time')} at most, with {first:,} to {last:,} tokens."
    taken = (
        f"By its last starts one takes {duration_text(subject.start_s)}"
        if subject.start_s
        else "How long one takes is not known"
    )
    waits = f"requests wait for up to {duration_text(service.queue_s)}, and are answered between two of them"
    if subject.estimates:
        starts += f" By the sums of fit its card holds {max(subject.estimates):,}."
    return f"{starts} {taken}, and five prompts each; {waits if service.queue_s else 'requests are refused meanwhile'}."


def probed_text(found: Probed, style: Style = PLAIN) -> str:
    """Each context that was tried, the shortest first, and the longest that answers with what to write."""
    rows = []
    for one in sorted(found.tries, key=lambda tried: tried.context):
        loaded = duration_text(one.load_s) if one.load_s else "-"
        sizes = [f"{size // MIB:,} MiB" if size >= 0 else "-" for size in (one.memory, one.card)]
        rows.append((f"{one.context:,}", one.outcome, loaded, duration_text(one.took_s), *sizes, safe_line(one.words)))
    option = found.subject.trial.option
    address = found.subject.service.address
    if found.longest:
        last = f"The longest that answers: {found.longest:,}. Write {option}: {found.longest} for {address}."
    else:
        last = f"None of them answers: {address} cannot be used with {found.subject.contexts.low:,} tokens."
    return f"{table(HEAD, rows, style)}\n\n{style.paint(last, 'bold')}"
