"""A ``Record`` as JSON, and back: what a run leaves on the controller for people and for the next run. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from provisioner.repair.conditions import Condition, Diagnosis
from provisioner.repair.record import CommandRecord, Record, StepRecord, StepStatus
from provisioner.values.plain_data import json_value


def record_json(record: Record) -> str:
    """The whole record, readable, with a newline at its end."""
    return json.dumps(asdict(record), indent=2) + "\n"


def record_of(text: str) -> Record:
    """The record that ``record_json`` wrote; ``ValueError`` when it is none."""
    try:
        content = json_value(text)
        before = tuple(map(_diagnosis, content.pop("before")))
        after = tuple(map(_diagnosis, content.pop("after")))
        steps = tuple(map(_step, content.pop("steps")))
        begun = tuple(content.pop("begun", ()))
        return Record(**content, before=before, after=after, steps=steps, begun=begun)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not the record of a repair: {error!r}") from error


def _diagnosis(content: Mapping[str, Any]) -> Diagnosis:
    return Diagnosis(
        **{**content, "condition": Condition(content["condition"]), "evidence": tuple(content["evidence"])}
    )


def _step(content: Mapping[str, Any]) -> StepRecord:
    commands = tuple(map(_command, content["commands"]))
    return StepRecord(**{**content, "status": StepStatus(content["status"]), "commands": commands})


def _command(content: Mapping[str, Any]) -> CommandRecord:
    return CommandRecord(**{**content, "argv": tuple(content["argv"])})
