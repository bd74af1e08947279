"""Which plays of a playbook are run on an inventory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.reconcile.inventory import NEW
from provisioner.reconcile.runner import (
    BEFORE_ENGINES,
    GO_ON,
    PLAY_FOR_EACH_SERVICE,
    PROVES_LATER,
    PlaybookResult,
    TaskEvent,
    run_playbook,
    with_hosts,
)
from provisioner.values import paths

PLAYS = [{"hosts": name, "roles": [name]} for name in ("containers", "service_one", "service_two")]
PLAYBOOK = yaml.safe_dump(PLAYS)


@pytest.mark.parametrize(
    ("groups", "kept"),
    [
        ({"containers": {}, "service_two": {}}, ["containers", "service_two"]),
        ({"service_two": None, "containers": {"hosts": {"service_one": {}}}}, ["containers", "service_two"]),
        ({}, ["containers", "service_one", "service_two"]),
    ],
)
def test_plays_of_groups_that_are_in_the_inventory_are_kept_in_their_order(
    groups: dict[str, object], kept: list[str]
) -> None:
    inventory = yaml.safe_dump({"all": {"children": groups}})
    assert [play["hosts"] for play in yaml.safe_load(with_hosts(PLAYBOOK, inventory))] == kept


@pytest.mark.parametrize(
    ("taking", "one_by_one"),
    [
        (None, []),
        (["a"], []),
        (["a", "c"], []),
        (["a", "b"], ["service_one"]),
        (["a", "b", "c", "d"], ["service_one", "service_two"]),
    ],
)
def test_containers_that_take_turns_on_a_card_are_gone_through_one_after_the_other(
    taking: list[str] | None, one_by_one: list[str]
) -> None:
    """Where several of them have the same service, for else Ansible has each wait until the other is proved."""
    groups = {"containers": ["a", "b", "c", "d"], "service_one": ["a", "b"], "service_two": ["c", "d"]}
    if taking is not None:
        groups["taking_turns"] = taking
    children = {name: {"hosts": dict.fromkeys(hosts, 0)} for name, hosts in groups.items()}
    plays = yaml.safe_load(with_hosts(PLAYBOOK, yaml.safe_dump({"all": {"children": children}})))
    assert [play["hosts"] for play in plays if play.get("serial") == 1] == one_by_one
    assert len(plays) == len(PLAYS)


@pytest.mark.parametrize("inventory", ["all:\n", "", "all: {hosts: {here: {}}}", "all: {children: [service_one]}"])
def test_an_inventory_without_groups_leaves_the_playbook_as_it_is(inventory: str) -> None:
    assert yaml.safe_load(with_hosts(PLAYBOOK, inventory)) == PLAYS


@pytest.mark.parametrize("name", sorted(PLAY_FOR_EACH_SERVICE))
def test_such_a_playbook_names_groups_and_roles_and_no_file_beside_it(name: str) -> None:
    plays = yaml.safe_load((paths.playbooks() / name).read_text(encoding="utf-8"))
    for play in plays:
        assert play["hosts"] == "containers" or play["hosts"].startswith("service_")
        assert set(play) <= {"name", "hosts", "gather_facts", "roles", "tasks"}
        for task in play.get("tasks", []):
            assert set(task) <= {"name", "ansible.builtin.include_role"}


HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
SITE = [
    {"name": f"Configure {name}", "hosts": name, "gather_facts": False, "roles": [name.removeprefix("service_")]}
    for name in ("containers", "service_gpu_userspace", "service_engine", "service_gateway")
]


def _site(proved_later: tuple[str, ...] = ("engine", "gateway"), /, **groups: list[str]) -> str:
    """The playbook for containers of these groups, whose roles of these names can be proved later."""
    children = {name: {"hosts": dict.fromkeys(hosts, HERE)} for name, hosts in groups.items()}
    return with_hosts(yaml.safe_dump(SITE), yaml.safe_dump({"all": {"children": children}}), proved_later)


@pytest.mark.parametrize(
    ("new", "plays"),
    [
        ([], ["containers", "service_gpu_userspace", "service_engine", "service_gateway"]),
        (["b"], ["containers", "service_gpu_userspace", "service_engine", "service_gateway"]),
        (
            ["b", "c"],
            [
                *("containers", "service_gpu_userspace", "b:c", "containers"),
                *("service_engine:!b", "b", "c"),
            ],
        ),
    ],
)
def test_several_new_containers_are_made_at_once_and_proved_in_order(new: list[str], plays: list[str]) -> None:
    groups = {"containers": ["a", "b", "c"], "service_engine": ["a", "b"], "service_gateway": ["c"], NEW: new}
    made = yaml.safe_load(_site(**groups, service_gpu_userspace=["a", "b"]))
    assert [play["hosts"] for play in made] == plays
    proofs = [play["tasks"][0]["ansible.builtin.include_role"] for play in made if play["hosts"] in ("b", "c")]
    assert proofs == [{"name": name, "tasks_from": "verify"} for name in ("engine", "gateway") if len(new) > 1]


def test_a_role_that_proves_itself_at_once_waits_for_what_is_before_it() -> None:
    groups = {"containers": ["a", "b"], "service_engine": ["a"], "service_gateway": ["b"], NEW: ["a", "b"]}
    made = yaml.safe_load(_site(("engine",), **groups))
    assert [play["hosts"] for play in made] == ["containers", "service_engine", "service_gateway"]


@pytest.mark.parametrize("play", yaml.safe_load((paths.playbooks() / "site.yml").read_text(encoding="utf-8")))
def test_every_role_of_ours_can_be_proved_later_but_those_that_others_need_at_once(play: dict[str, Any]) -> None:
    (role,) = play["roles"]
    text = (paths.roles() / role / "tasks/main.yml").read_text(encoding="utf-8")
    assert (PROVES_LATER in text) == (play["hosts"] not in ("containers", BEFORE_ENGINES))


def _run(folder: Path, engine: dict[str, object]) -> tuple[PlaybookResult, list[str]]:
    """Ansible itself in two new containers whose roles each wait for the other's first task; ``engine``: its second."""
    met = {
        name: {"ansible.builtin.file": {"path": str(folder / name), "state": "touch"}} for name in ("engine", "gateway")
    }
    for role, other in (("engine", "gateway"), ("gateway", "engine")):
        wait = {"ansible.builtin.wait_for": {"path": str(folder / other), "timeout": 60}}
        proof = {"name": "Prove", "ansible.builtin.debug": {}, "when": "not provision_proves_later | default(false)"}
        tasks = {"main": [met[role], wait, *([engine] if role == "engine" else []), proof], "verify": [proof]}
        (folder / f"roles/{role}/tasks").mkdir(parents=True)
        for name, content in tasks.items():
            (folder / f"roles/{role}/tasks/{name}.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    groups = {"containers": ["a", "b", "c"], "service_engine": ["a"], "service_gateway": ["b"], NEW: ["a", "b"]}
    (folder / "roles/containers/tasks").mkdir(parents=True)
    (folder / "roles/containers/tasks/main.yml").write_text("[]", encoding="utf-8")
    (folder / "made.yml").write_text(_site(**groups), encoding="utf-8")
    hosts = {name: {"hosts": dict.fromkeys(names, HERE)} for name, names in groups.items()}
    told: list[str] = []

    def note(event: TaskEvent) -> None:
        if event.status not in {"start", "skipped"}:
            told.append(f"{event.host} {event.status} {event.task}")

    inventory = yaml.safe_dump({"all": {"children": hosts}})
    return run_playbook(str(folder / "made.yml"), inventory, folder=folder / "lab", on_task=note), told


def test_roles_of_new_containers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each waits in its own for what the other does first; the gateway is proved last."""
    result, told = _run(tmp_path, {"ansible.builtin.debug": {}})
    assert result.returncode == 0, result
    assert [line for line in told if line.endswith(" Prove")] == ["a ok Prove", "b ok Prove"]


def test_nothing_is_proved_where_a_new_container_could_not_be_made(tmp_path: Path) -> None:
    result, told = _run(tmp_path, {"name": "Break", "ansible.builtin.fail": {"msg": "no network"}})
    assert [line for line in told if line.endswith(" Prove")] == []
    failures = result.without(GO_ON).failures
    assert [(failure.host, failure.message) for failure in failures] == [("a", "no network")]
    assert {failure.host for failure in result.failures} == {"a", "b", "c"}, "nor goes on what was there before"
