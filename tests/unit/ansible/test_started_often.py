"""No role leaves a unit stopped because it was started often: systemd counts its starts with those after faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths

LIMITED = sorted(
    {
        page.parents[1].name
        for page in paths.roles().glob("*/templates/*.j2")
        if "StartLimitBurst" in page.read_text("utf-8")
    }
)
FORGET = ["systemctl", "reset-failed"]


def written(file: Path) -> list[Mapping[str, Any]]:
    """The tasks or handlers of a file."""
    return yaml.safe_load(file.read_text("utf-8")) or []


def unit_forgotten(task: Mapping[str, Any]) -> str:
    """The unit whose starts it has systemd forget; nothing where it does something else."""
    words = task.get("ansible.builtin.command", {}).get("argv", [])
    return str(words[2]) if words[:2] == FORGET else ""


def restarts_that_count(handlers: Iterable[Mapping[str, Any]]) -> list[str]:
    """The handlers that restart a unit whose earlier starts are not forgotten before."""
    counted, forgotten = [], set()
    for one in handlers:
        if unit_forgotten(one):
            forgotten.add((one.get("listen"), unit_forgotten(one).replace("_if_known", "")))
        service = one.get("ansible.builtin.systemd_service", {})
        is_timer = "due" in service.get("name", "")  # a timer has no limit of starts
        if service.get("state") == "restarted" and not is_timer and (one["name"], service["name"]) not in forgotten:
            counted.append(one["name"])
    return counted


def test_roles_with_such_units_are_found() -> None:
    assert {"door", "kokoro", "llama_cpp", "open_webui", "switch", "vllm"} <= set(LIMITED)


@pytest.mark.parametrize("role", LIMITED)
def test_a_changed_service_is_started_however_often_it_was_before(role: str) -> None:
    handlers = written(paths.roles() / role / "handlers/main.yml")
    assert restarts_that_count(handlers) == []
    assert any(unit_forgotten(one) for one in handlers)


@pytest.mark.parametrize("role", LIMITED)
def test_so_is_one_that_failed_too_often(role: str) -> None:
    files = (paths.roles() / role / "tasks").glob("*.yml")
    assert any("_if_known" in unit_forgotten(task) for file in files for task in written(file))


def test_a_restart_without_it_is_found() -> None:
    restart = {
        "name": "Restart it",
        "ansible.builtin.systemd_service": {"name": "{{ __it_unit }}", "state": "restarted"},
    }
    forget = {"ansible.builtin.command": {"argv": [*FORGET, "{{ __it_unit_if_known }}"]}}
    assert restarts_that_count([restart]) == ["Restart it"]
    assert restarts_that_count([{**forget, "listen": "Restart another"}, restart]) == ["Restart it"]
    assert restarts_that_count([restart, {**forget, "listen": "Restart it"}]) == ["Restart it"]
    assert restarts_that_count([{**forget, "listen": "Restart it"}, restart]) == []
