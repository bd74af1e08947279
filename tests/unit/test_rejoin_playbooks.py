"""What the playbooks of a rejoin must never be without: each line of these was once a lost afternoon."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.values import paths

FOLDER = paths.playbooks() / "repair"
NAMES = ("stale-corosync-behind", "stale-corosync-rejoin")


def plays(name: str) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return content


def tasks(name: str) -> list[dict[str, Any]]:
    return [{**task, "on": play["hosts"]} for play in plays(name) for task in play["tasks"]]


def position(name: str, words: str) -> int:
    return next(number for number, task in enumerate(tasks(name)) if words in task["name"])


@pytest.mark.parametrize("name", NAMES)
def test_what_fails_on_one_node_stops_the_other(name: str) -> None:
    assert [play["name"] for play in plays(name) if play.get("any_errors_fatal") is not True] == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_the_node_and_the_lead_is_touched(name: str) -> None:
    assert {play["hosts"] for play in plays(name)} == {"lead", "node"}
    assert [task["name"] for task in tasks(name) if "delegate_to" in task or "run_once" in task] == []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_changed_before_the_backup_is_there(name: str) -> None:
    before = tasks(name)[: position(name, "backup | Refuse")]
    modules = {key.removeprefix("ansible.builtin.") for task in before for key in task if "builtin" in key}
    assert modules <= {"assert", "command", "slurp", "stat"}
    assert all(task["changed_when"] is False for task in before if "ansible.builtin.command" in task)


def test_corosync_is_stopped_and_proved_stopped_before_the_join() -> None:
    name = "stale-corosync-rejoin"
    order = [position(name, one) for one in ("| Stop corosync", "| Prove that none runs", "| Join the cluster")]
    assert order == sorted(order)
    proof = tasks(name)[order[1]]
    assert proof["failed_when"] == "__stopped.rc != 1"


def test_the_join_has_a_limit_no_input_another_folder_and_is_believed_by_its_words() -> None:
    (join,) = [task for task in tasks("stale-corosync-rejoin") if "pvecm" in str(task) and task["on"] == "node"]
    command = join["ansible.builtin.command"]
    assert "'timeout', '180', 'pvecm', 'add'" in " ".join(command["argv"].split())
    assert (command["stdin"], command["chdir"]) == ("", "/tmp")  # noqa: S108 - not in /etc/pve
    assert "successfully added node" in join["failed_when"]
    assert "rc" not in join["failed_when"]


def test_the_light_repair_restarts_one_service_or_none() -> None:
    restarting = [task for task in tasks("stale-corosync-behind") if "restart" in task["name"].partition(" |")[0]]
    assert [task["when"].split()[-1] for task in restarting] == ['"corosync"', '"corosync"', '"pve-cluster"']
    assert all(task["when"].startswith("repair_plan.restarts == ") for task in restarting)


def test_only_a_member_by_another_address_is_removed_from_the_list() -> None:
    (delnode,) = [task for task in tasks("stale-corosync-rejoin") if "delnode" in str(task)]
    assert delnode["on"] == "lead"
    assert "repair_plan.forgets_address" in delnode["when"]


def test_the_saved_copy_keeps_its_mode_when_it_is_put_back() -> None:
    (copy,) = [task for task in tasks("stale-corosync-rejoin") if "ansible.builtin.copy" in task]
    assert "validate" not in copy["ansible.builtin.copy"], "Ansible gives the source itself the new mode then"
