"""What quants have lost against their parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from provisioner.measuring.llama_perplexity import CONTEXT, Quality, logits_bytes
from provisioner.measuring.quality import Judged, Subject, warnings
from provisioner.report.style import PLAIN, Style, count_text, duration_text, safe_line, table
from provisioner.values.quantities import size_text

HEAD = ("MODEL", "BITS", "MEAN KLD", "MEDIAN", "99 %", "SAME TOKEN", "PERPLEXITY")

Found = Sequence[tuple[Judged, Quality]]


def foretold_text(subject: Subject, chunks: int) -> str:
    """What is about to be stopped, and what that takes."""
    service = subject.service
    names = ", ".join(safe_line(one.name) for one in subject.quants)
    waits = f"requests wait for up to {duration_text(service.queue_s)}, and are answered between two models"
    return (
        f"{service.address} is stopped while {safe_line(subject.parent.name)} and then {names} read "
        f"{count_text(chunks, 'chunk')} of {CONTEXT} tokens; "
        f"{waits if service.queue_s else 'requests are refused meanwhile'}. "
        f"{size_text(logits_bytes(subject.parent.header.tokens, chunks))} of disk are needed until it ends."
    )


def quality_text(subject: Subject, found: Found, style: Style = PLAIN) -> str:
    """A line for each quant, that of their parent, and what whoever serves them should know."""
    rows = [
        (
            safe_line(quant.name),
            bits_text(quant),
            f"{quality.mean:.4f}",
            f"{quality.median:.4f}",
            f"{quality.worst_percent:.3f}",
            f"{quality.same_top:.1f} %",
            f"{quality.perplexity:.3f}",
        )
        for quant, quality in found
    ]
    nothing = ("", "", "", "")
    rows.append((safe_line(subject.parent.name), bits_text(subject.parent), *nothing, f"{found[0][1].of_parent:.3f}"))
    lines = [table(HEAD, rows, style)]
    told = [safe_line(line) for one in found for line in warnings(*one)]
    return "\n".join([*lines, *([""] if told else []), *told])


def quality_content(subject: Subject, found: Found) -> dict[str, Any]:
    """All of it as values."""
    quants = [
        {"model": quant.name, "bits": quant.header.bits, **asdict(quality), "warnings": list(warnings(quant, quality))}
        for quant, quality in found
    ]
    return {"parent": subject.parent.name, "quants": quants}


def bits_text(model: Judged) -> str:
    """Bits of a weight."""
    return f"{model.header.bits:.2f}" if model.header.bits else "not told"
