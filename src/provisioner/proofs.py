"""What the last proof of each service asked and what came of it, kept beside the lab's measurements."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from provisioner.labfile.whole_files import replace_text
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.facts import ContainerFact, Proof, ProofStep, by_address, of_kind
from provisioner.values.masking import masked
from provisioner.values.plain_data import json_value
from provisioner.values.regular_files import text_of
from provisioner.values.state import Secret

FILE = "proofs.json"
MOST_STEPS = 100
"""Of one proof; the longest of our roles has fewer than 60."""
MOST_CHARACTERS = 1600
"""Of what a task said, more than ``runner.events`` lets through of one that went well: the word of a container is not
trusted with the controller's disk."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The last proof of a service: when it ended (ISO 8601), of which verb, its steps, and why it failed, if it did."""

    at: str
    verb: str
    steps: tuple[ProofStep, ...]
    failure: str = ""


def ended_proofs(
    verb: str, at: str, facts: Iterable[ContainerFact], failed: Collection[str] = ()
) -> dict[Address, Proved]:
    """The proofs of services that were asked something, by what was found out about them.

    ``failed``: containers whose run failed; where nothing judged a service of theirs, its first failed step says why,
    and one without such a step is left out: it is not proved by what went well before.
    """
    known = tuple(facts)
    outcomes = by_address(known, Proof)
    steps: dict[Address, list[ProofStep]] = {}
    for step in of_kind(known, ProofStep):
        steps.setdefault(step.address, []).append(step)
    found = {}
    for address in dict.fromkeys((*steps, *outcomes)):
        own = steps.get(address, [])
        outcome = outcomes.get(address)
        failure = outcome.failure if outcome else ""
        if outcome is None and address.container in failed:  # elsewhere a role has made up for it
            failure = _words_of_failed(own)
            if not failure:  # nobody knows whether its proof came to its end
                continue
        found[address] = Proved(at, verb, tuple(own[:MOST_STEPS]), failure)
    return found


def _words_of_failed(steps: Sequence[ProofStep]) -> str:
    for step in steps:
        if not step.well:
            return step.words or f"{step.asked}: failed"
    return ""


def remember(lab: str, ended: Mapping[Address, Proved], secrets: Sequence[Secret] = ()) -> None:
    """Keep these instead of older ones of the same services; raises ``OSError`` or ``InputError`` where that fails.

    No value of ``secrets`` is written, whoever said it.
    """
    if not ended:
        return
    content = _read(lab)
    for address, one in ended.items():
        content[str(address)] = {
            "at": one.at,
            "verb": one.verb,
            "failure": masked(one.failure, secrets)[:MOST_CHARACTERS],
            "steps": [_plain_step(step, secrets) for step in one.steps],
        }
    folder = paths.state(lab)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(folder / FILE, json.dumps(content, indent=1, sort_keys=True))


def _plain_step(step: ProofStep, secrets: Iterable[Secret]) -> dict[str, Any]:
    plain = asdict(replace(step, words=masked(step.words, secrets)[:MOST_CHARACTERS]))
    del plain["address"]
    return plain


def proofs_in(lab: str) -> dict[Address, Proved]:
    """The last proofs of a lab's services; nothing of those whose record cannot be read."""
    try:
        content = _read(lab)
    except OSError:
        return {}
    found = {}
    for name, one in content.items():
        try:
            address = Address(name)
            steps = tuple(_step(address, step) for step in one["steps"])
            found[address] = Proved(str(one["at"]), str(one["verb"]), steps, str(one["failure"]))
        except (AttributeError, KeyError, TypeError, ValueError):  # another version wrote it: it is proved again
            continue
    return found


def _step(address: Address, said: Mapping[str, Any]) -> ProofStep:
    return ProofStep(address, str(said["asked"]), said["well"] is True, str(said["words"]), float(said["took_s"]))


def _read(lab: str) -> dict[str, Any]:
    try:
        content = json_value(text_of(paths.state(lab) / FILE))
    except FileNotFoundError:
        return {}
    except ValueError:  # cut off, or not ours: what it held is proved again
        return {}
    return content if isinstance(content, dict) else {}
