"""Which plays of a playbook are run on an inventory."""

from __future__ import annotations

import pytest
import yaml

from provisioner.runner.plays import PLAY_FOR_EACH_SERVICE, with_hosts
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
