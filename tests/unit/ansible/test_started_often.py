"""No role leaves a unit stopped because it was started often: systemd counts its starts with those after faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from tests.plays import run_cases

LIMITED = sorted(
    {
        page.parents[1].name
        for page in paths.roles().glob("*/templates/*.j2")
        if "StartLimitBurst" in page.read_text("utf-8")
    }
)
FORGET = ["systemctl", "--all", "reset-failed"]
"""With a pattern systemctl passes over a unit that was stopped between two attempts, but for ``--all``."""


def written(file: Path) -> list[Mapping[str, Any]]:
    """The tasks or handlers of a file."""
    return yaml.safe_load(file.read_text("utf-8")) or []


def unit_forgotten(task: Mapping[str, Any]) -> str:
    """The unit whose starts it has systemd forget; nothing where it does something else."""
    words = task.get("ansible.builtin.command", {}).get("argv", [])
    return str(words[3]) if words[:3] == FORGET else ""


def restarts(handlers: Iterable[Mapping[str, Any]], timers: frozenset[str] = frozenset()) -> dict[str, str]:
    """The units that handlers restart, each by its handler's name; a timer has no limit of starts."""
    services = {one["name"]: one.get("ansible.builtin.systemd_service", {}) for one in handlers}
    restarted = {name: service["name"] for name, service in services.items() if service.get("state") == "restarted"}
    return {name: unit for name, unit in restarted.items() if unit not in timers}


def restarts_that_count(handlers: list[Mapping[str, Any]], timers: frozenset[str] = frozenset()) -> list[str]:
    """The handlers that restart a unit whose earlier starts are not forgotten before."""
    wanted = restarts(handlers, timers)
    counted, forgotten = [], set()
    for one in handlers:
        if unit_forgotten(one):
            forgotten.add((one.get("listen"), unit_forgotten(one)))
        name = one["name"]
        if name in wanted and (name, if_known(wanted[name])) not in forgotten:
            counted.append(name)
    return counted


def if_known(unit: str) -> str:
    """The pattern by which a role means a unit where systemd knows it."""
    return unit.replace(" }}", "_if_known }}")


def timers_of(role: str) -> frozenset[str]:
    """The role's units that are timers."""
    names = yaml.safe_load((paths.roles() / role / "vars/main.yml").read_text("utf-8"))
    return frozenset(f"{{{{ {name} }}}}" for name, value in names.items() if str(value).endswith(".timer"))


def test_roles_with_such_units_are_found() -> None:
    assert {"door", "kokoro", "llama_cpp", "open_webui", "switch", "vllm"} <= set(LIMITED)


@pytest.mark.parametrize("role", LIMITED)
def test_a_changed_service_is_started_however_often_it_was_before(role: str) -> None:
    handlers = written(paths.roles() / role / "handlers/main.yml")
    assert restarts(handlers, timers_of(role))
    assert restarts_that_count(handlers, timers_of(role)) == []


@pytest.mark.parametrize("role", LIMITED)
def test_so_is_one_that_failed_too_often(role: str) -> None:
    files = (paths.roles() / role / "tasks").glob("*.yml")
    forgotten = {unit_forgotten(task) for file in files for task in written(file)}
    units = restarts(written(paths.roles() / role / "handlers/main.yml"), timers_of(role)).values()
    assert {if_known(unit) for unit in units} <= forgotten


@pytest.mark.parametrize(("before", "idle", "count"), [(False, "5m", 0), (True, "5m", 2), (True, "0s", 0)])
def test_a_keeper_is_started_again_only_where_there_was_one(
    tmp_path: Path, before: bool, idle: str, count: int
) -> None:
    (unit,) = [one for one in written(paths.roles() / "switch/tasks/keeper.yml") if "notify" in one]
    handlers = written(paths.roles() / "switch/handlers/main.yml")
    notified = [one for one in handlers if unit["notify"] in (one["name"], one.get("listen"))]
    tasks = [{"set_fact": {"did": "{{ did + 1 }}"}, "when": one["when"]} for one in notified]
    there = {"/etc/systemd/system/switch-engine-keeper.service": {"exists": before}}
    case = {"did": 0, "ansible_check_mode": False, "switch_name": "engine", "switch_idle": idle}
    case["__switch_there"] = {"paths": there}
    assert run_cases(paths.roles().parent, tmp_path, "switch", {"case": case}, tasks)["case"].get("did", 0) == count


def test_a_restart_without_it_is_found() -> None:
    restart = {
        "name": "Restart it",
        "ansible.builtin.systemd_service": {"name": "{{ __it_unit }}", "state": "restarted"},
    }
    forget = {"name": "Forget", "ansible.builtin.command": {"argv": [*FORGET, "{{ __it_unit_if_known }}"]}}
    assert restarts_that_count([restart]) == ["Restart it"]
    assert restarts_that_count([{**forget, "listen": "Restart another"}, restart]) == ["Restart it"]
    assert restarts_that_count([restart, {**forget, "listen": "Restart it"}]) == ["Restart it"]
    assert restarts_that_count([{**forget, "listen": "Restart it"}, restart]) == []
