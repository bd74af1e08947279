"""What services wrote last to their journals, for an error that says that one does not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from provisioner.providers.base import Provider
from provisioner.values.errors import ProviderError
from provisioner.values.facts import ACTIVE, ContainerFact, UnitState, by_address
from provisioner.values.masking import masked
from provisioner.values.state import Finding, Instance, Service, secrets_of

LINES = 20
LINE_CHARACTERS = 240
MOST_CHARACTERS = 6000
TIMEOUT_S = 30.0
READ = (
    'systemctl show --property=ActiveState --value -- "$1"; '
    f'journalctl --quiet --no-pager --output=cat --lines={LINES} --unit="$1" | tail -c {MOST_CHARACTERS}'
)
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""What steers a terminal: colours, the cursor, its title."""


def plain_line(line: str) -> str:
    """``line`` without what steers a terminal, and without characters that cannot be seen."""
    text = _SEQUENCES.sub("", line)
    return "".join(character for character in text if character == "\t" or character.isprintable())


def last_words(service: Service, provider: Provider, *, although_it_runs: bool = False) -> str:
    """The last lines that the service's unit wrote, as words of its own; "" where it runs, or none can be had.

    They are few and short, and hold no secret that the service was given.
    """
    if not service.unit:
        return ""
    try:
        done = provider.execute(service.container, ["sh", "-c", READ, "sh", service.unit], timeout_s=TIMEOUT_S)
    except ProviderError:  # a reason less must not hide what failed
        return ""
    state, _, journal = done.stdout.partition(b"\n")
    runs = state == ACTIVE.encode()
    if done.returncode != 0 or (runs and not although_it_runs):
        return ""
    lines = [f"  | {line}" for line in _shown(journal, service)]
    if not lines:
        return ""
    does = "runs and does not answer" if runs else "does not run"
    head = f"{service.address} {does}. The last lines of its journal, in its own words:"
    return "\n".join([head, *lines])


def explained(
    findings: Iterable[Finding],
    instances: Iterable[Instance],
    providers: Mapping[str, Provider],
    facts: Iterable[ContainerFact],
) -> tuple[Finding, ...]:
    """The same findings, those of units that do not run with what these wrote last."""
    units = by_address(facts, UnitState)
    down = {address for address, unit in units.items() if not unit.is_well}
    services = _with_hosts(instances)
    explained_findings = list[Finding]()
    for finding in findings:
        if finding.subject in down and finding.subject in services and finding.message.startswith("unit "):
            service, host = services[finding.subject]
            explained_findings.append(_with_last_words(finding, service, providers[host]))
        else:
            explained_findings.append(finding)
    return tuple(explained_findings)


def _with_hosts(instances: Iterable[Instance]) -> dict[str, tuple[Service, str]]:
    """The services by their addresses, each with the host of its container."""
    services = dict[str, tuple[Service, str]]()
    for instance in instances:
        for service in instance.services:
            services[service.address] = service, instance.host
    return services


def _with_last_words(finding: Finding, service: Service, provider: Provider) -> Finding:
    """The finding with what the service's unit wrote last below its own details."""
    paragraphs = (finding.details, last_words(service, provider))
    return replace(finding, details="\n".join(filter(None, paragraphs)))


def _shown(journal: bytes, service: Service) -> Sequence[str]:
    """The last lines of the journal that say something, without secrets and cut to a length that can be read."""
    text = journal[-MOST_CHARACTERS:].decode(errors="replace")
    if len(journal) >= MOST_CHARACTERS:
        text = text.partition("\n")[2]  # it was cut, perhaps within a secret
    clean = masked(text, secrets_of(service.variables).values())
    shown = list[str]()
    for line in clean.splitlines():
        shortened = plain_line(line).rstrip()[:LINE_CHARACTERS]
        if shortened.strip():
            shown.append(shortened)
    return shown[-LINES:]
