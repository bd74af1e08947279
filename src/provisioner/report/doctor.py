"""What was seen of the hosts, a line for each thing, and below it what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.doctor import Diagnosis
from provisioner.report.messages import check_text, finding_text
from provisioner.report.style import PLAIN, Style, count_text


def diagnoses_text(diagnoses: Sequence[Diagnosis], style: Style = PLAIN) -> str:
    """All of it; what is wrong is told a second time, with what to do."""
    lines = [check_text(one.check, style) for one in diagnoses]
    findings = [one.finding for one in diagnoses if one.finding is not None]
    if not findings:
        return "\n".join([*lines, style.paint("Healthy: nothing is in the way of this lab.", "green")])
    told = [finding_text(one, style) for one in findings]
    return "\n".join([*lines, "", *told, f"{count_text(len(findings), 'finding')}."])
