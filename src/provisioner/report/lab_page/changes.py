"""What differs from the file, what ``up`` would do, and what the last runs did."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.report.elements import Markup, moment, opened, quiet, state, table, tag
from provisioner.report.lab_page.content import LabContent
from provisioner.values.state import Run


def changes(content: LabContent) -> Iterator[Markup]:
    """Drift, the plan, and the runs."""
    yield tag("h3", "Drift")
    yield from _drift(content)
    yield tag("h3", "What up would do")
    yield from _pending(content)
    yield tag("h3", "Last runs")
    yield from _runs(content)


def _drift(content: LabContent) -> Iterator[Markup]:
    rows = []
    for container in content.containers:
        rows += [(container.name, difference) for difference in container.drift]
        if container.orphan:
            rows.append((container.name, "it is an orphan: the file does not name it"))
    if rows:
        yield table("Drift", ("container", "what differs from the file"), rows)
    elif content.containers and content.pending is not None:
        yield tag("p", state("good", "None, "), moment(content.at))
    else:
        yield tag("p", state("dim", "not known: nothing could be looked at, "), moment(content.at))


def _pending(content: LabContent) -> Iterator[Markup]:
    if content.pending is None:
        yield tag("p", state("mind", "not known"), f": {content.pending_unknown}, ", moment(content.at))
    elif not content.pending:
        yield tag("p", state("good", "Nothing: all is as the file says, "), moment(content.at))
    else:
        rows = [(one.action, one.target, one.reason) for one in content.pending]
        yield table("What up would do", ("action", "target", "why"), rows)
        yield quiet("Planned ", moment(content.at), "; nothing of it was done.")


def _runs(content: LabContent) -> Iterator[Markup]:
    if not content.runs:
        yield quiet("No run from this machine is known.")
        return
    rows = [(one.verb, moment(one.began), _ended(one), _outcome(one), _steps(one)) for one in content.runs]
    yield table("Last runs", ("verb", "began", "ended", "outcome", "steps"), rows)


def _ended(run: Run) -> Markup:
    return moment(run.ended) if run.ended else state("bad", "never")


def _outcome(run: Run) -> Markup:
    if run.outcome == "done" and not run.failed:
        return state("good", "done")
    return state("bad", run.outcome)


def _steps(run: Run) -> Markup:
    if not run.done and not run.failed:
        return state("dim", "none")
    lines = [tag("li", words) for words in run.done]
    lines += [tag("li", state("bad", words)) for words in run.failed]
    failed = f", {len(run.failed)} failed" if run.failed else ""
    return opened(f"{len(run.done)} done{failed}", tag("ul", *lines))
