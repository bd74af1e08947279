"""Tags that the datacenter does not let us set are named before anything is made, with what to do about it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from provisioner.hosts.proxmox import ProxmoxProvider, rights
from provisioner.hosts.proxmox.access import Access
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.health import examine
from provisioner.hosts.proxmox.preflight import review_plan
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.facts import of_kind
from provisioner.values.host_facts import TagRules
from provisioner.values.plan import Change
from provisioner.values.state import Instance
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.client import root
from tests.unit.hosts.proxmox.plans import creation, limited, step, there, update, wanted

OURS = {"provisioner", "provisioner-homelab"}
CLOSED: list[dict[str, Any]] = [
    {"user-tag-access": {"user-allow": "none"}},
    {"user-tag-access": {"user-allow": "none", "user-allow-list": ["provisioner", "provisioner-homelab"]}},
    {"user-tag-access": {"user-allow": "list", "user-allow-list": ["prod"]}},
    {"user-tag-access": {"user-allow": "existing"}},
    {"user-tag-access": {"user-allow": "list", "user-allow-list": ["provisioner", "provisioner-LAB"]}},
    {"registered-tags": ["provisioner", "prod"]},
    {"registered-tags": ["provisioner"], "user-tag-access": {"user-allow": "list", "user-allow-list": ["prod"]}},
]
OPEN: list[dict[str, Any]] = [
    {},
    {"user-tag-access": {"user-allow": "free"}, "registered-tags": ["prod"]},
    {"user-tag-access": {"user-allow": "list", "user-allow-list": ["provisioner", "provisioner-homelab"]}},
]


def follow(pve: Double, advice: str) -> None:
    """Type the commands that an advice names, as root."""
    commands = re.findall(r"pvesh (set /cluster/options (?:--\S+ '[^']*'|--delete [\w-]+))", advice)
    assert commands
    for command in commands:
        _, path, option, value = shlex.split(command)
        done = root(pve).ask("PUT", path, **{option.removeprefix("--"): value})
        assert done.status == 200, done.reason


def noted(access: Access, *changes: Change) -> tuple[str, ...]:
    """The notes on a plan that is not refused."""
    return review_plan(Client(access), access, None, changes)


@pytest.mark.parametrize("options", CLOSED)
def test_a_plan_is_refused_where_up_would_be_until_the_advice_is_followed(
    pve: Double, access: Access, options: dict[str, Any]
) -> None:
    chosen = limited(pve, access)
    pve.world.datacenter = {**options}
    provider = ProxmoxProvider("pve", access=chosen)
    with pytest.raises(ProviderError, match=r"Sys.Modify for modifying tag 'provisioner"):
        provider.create(wanted())
    assert pve.world.guests == {}
    with pytest.raises(PreflightError) as caught:
        noted(chosen, creation(wanted()))
    refusal = "web: the datacenter lets nobody without Sys.Modify on / set tags provisioner"
    assert caught.value.details.startswith(refusal)
    follow(pve, caught.value.resolution)
    assert noted(chosen, creation(wanted())) == ()
    assert provider.create(wanted()).name == "web"
    kept = pve.world.datacenter.get("user-tag-access", {}).get("user-allow-list", [])
    assert "prod" in kept or "prod" not in options.get("user-tag-access", {}).get("user-allow-list", [])


@pytest.mark.parametrize("options", OPEN)
def test_nothing_is_refused_where_tags_may_be_set(pve: Double, access: Access, options: dict[str, Any]) -> None:
    pve.world.datacenter = {**options}
    chosen = limited(pve, access)
    assert noted(chosen, creation(wanted())) == ()
    assert ProxmoxProvider("pve", access=chosen).create(wanted()).name == "web"


def test_who_may_modify_the_datacenter_sets_any_tag(pve: Double, access: Access) -> None:
    pve.world.datacenter = {"user-tag-access": {"user-allow": "none"}}
    assert noted(access, creation(wanted())) == ()
    with pytest.raises(PreflightError) as caught:
        noted(limited(pve, access), creation(wanted()))
    assert "pveum acl modify / --users penny@pve --tokens 'penny@pve!lab'" in caught.value.resolution


def tagged(*names: str) -> Instance:
    """A container with tags of its user's."""
    return wanted(proxmox={"tags": list(names)})


def test_only_tags_that_come_or_go_count() -> None:
    before = there(tagged("prod", "web"))
    assert rights.tags_set_by([update(before, tagged("web", "new"))]) == {"web": {"prod", "new"}}
    assert rights.tags_set_by([step("adopt", before)]) == {"web": OURS}
    assert rights.tags_set_by([creation(tagged("new"))]) == {"web": {*OURS, "new"}}
    assert rights.tags_set_by([step("start", before), step("delete", before)]) == {}


@pytest.mark.parametrize("options", [*CLOSED, *OPEN])
def test_doctor_says_it_too(pve: Double, access: Access, options: dict[str, Any]) -> None:
    chosen = limited(pve, access)
    pve.world.datacenter = {**options}
    (said,) = of_kind(examine("pve", Client(chosen), None, (), "homelab"), TagRules)
    assert bool(said.problem) is (options in CLOSED)
    if said.problem:
        follow(pve, said.hint)
        assert noted(chosen, creation(wanted())) == ()
        (said,) = of_kind(examine("pve", Client(chosen), None, (), "homelab"), TagRules)
        assert said.problem == ""


def test_property_strings_are_read_as_well() -> None:
    class Answers:
        """A client of a release that does not take options apart."""

        def __init__(self, access: Access) -> None:
            self.access = access

        def get(self, *_: object, **query: object) -> object:
            """The datacenter's options; no right to change them."""
            if "path" in query:
                return {}
            return {"user-tag-access": "user-allow=list,user-allow-list=a;b", "registered-tags": "c;d"}

        def many(self, calls: list[Any]) -> list[Any]:
            """Their answers."""
            return [call() for call in calls]

    client: Any = Answers(Access("https://pve:8006", "penny@pve", "lab"))
    seen = rights.tag_access(client)
    assert (seen.mode, seen.listed, seen.registered) == ("list", ("a", "b"), ("c", "d"))
    assert seen.refused({"a", "c"}) == ["a", "c"], "what the answer does not allow is refused"
