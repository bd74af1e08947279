"""What was seen of the hosts, a line for each thing, and below it what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.doctor import Diagnosis
from provisioner.report.messages import check_text, finding_text
from provisioner.report.style import PLAIN, Style, count_text


def diagnoses_text(diagnoses: Sequence[Diagnosis], style: Style = PLAIN) -> str:
    """All of it; what is wrong is told a second time, with what to do."""
    lines = [check_text(diagnosis.check, style) for diagnosis in diagnoses]
    findings = [diagnosis.finding for diagnosis in diagnoses if diagnosis.finding is not None]
    if findings:
        lines += ["", *(finding_text(finding, style) for finding in findings)]
        lines.append(f"{count_text(len(findings), 'finding')}.")
    else:
        lines.append(style.paint("Healthy: nothing is in the way of this lab.", "green"))
    return "\n".join(lines)
