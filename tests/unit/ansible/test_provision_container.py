"""The module's plan and its effect, on a host in memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from provisioner.ansible.modules.provision_container import HOST, OPTIONS, run, wanted_instance
from provisioner.hosts.fake import FakeProvider
from provisioner.values.errors import PreflightError, ProviderError
from provisioner.values.state import Device, InstanceKind, Status

DEFAULTS = {name: option.get("default") for name, option in OPTIONS.items()}
DEVICE = {
    "name": None,
    "volume": None,
    "path": None,
    "readonly": True,
    "listen": None,
    "connect": None,
    "protocol": None,
}


@pytest.fixture
def host() -> FakeProvider:
    return FakeProvider(HOST)


def options(**given: Any) -> dict[str, Any]:
    return {**DEFAULTS, "name": "one", "lab": "lab", "image": "debian/12", **given}


def task(host: FakeProvider, *, check: bool = False, **given: Any) -> dict[str, Any]:
    """What the module answers."""
    answer: dict[str, Any] = run(SimpleNamespace(params=options(**given), check_mode=check), host)
    return answer


def status(host: FakeProvider) -> Status | None:
    found = host.observe("lab").instance("one")
    return found.status if found else None


def test_sizes_and_devices_become_values() -> None:
    wanted = wanted_instance(
        options(
            memory="2GiB",
            disk="10GiB",
            devices=[
                {**DEVICE, "kind": "volume", "volume": "model-x", "path": "/srv/x"},
                {**DEVICE, "kind": "publish", "listen": "0.0.0.0:443", "connect": "127.0.0.1:80"},
            ],
        )
    )
    assert (wanted.memory, wanted.disk) == (2 * 2**30, 10 * 2**30)
    assert wanted.devices == (
        Device("model-x", "volume", {"volume": "model-x", "path": "/srv/x", "readonly": "true"}),
        Device("publish-443", "publish", {"listen": "0.0.0.0:443", "connect": "127.0.0.1:80"}),
    )


@pytest.mark.parametrize(
    ("before", "state", "after", "changes"),
    [
        (None, "started", Status.RUNNING, True),
        (None, "present", Status.RUNNING, True),
        (None, "stopped", Status.STOPPED, True),
        (None, "absent", None, False),
        ("started", "started", Status.RUNNING, False),
        ("started", "present", Status.RUNNING, False),
        ("started", "stopped", Status.STOPPED, True),
        ("started", "absent", None, True),
        ("stopped", "started", Status.RUNNING, True),
        ("stopped", "present", Status.STOPPED, False),
        ("stopped", "stopped", Status.STOPPED, False),
        ("stopped", "absent", None, True),
    ],
)
def test_every_state_from_every_other(
    host: FakeProvider, before: str | None, state: str, after: Status | None, *, changes: bool
) -> None:
    if before:
        task(host, state=before)
    was = status(host)
    planned = task(host, state=state, check=True)
    assert status(host) == was, "check mode changes nothing"
    done = task(host, state=state)
    assert status(host) == after
    assert planned["changed"] is done["changed"] is changes
    assert planned["diff"] == done["diff"]
    assert bool(done["diff"]) is changes
    assert task(host, state=state)["changed"] is False


def test_the_diff_is_the_plan(host: FakeProvider) -> None:
    diff = task(host, memory="1GiB", check=True)["diff"][0]
    assert f"memory: {2**30}" in diff["after"]
    assert "memory: None" in diff["before"]
    assert "create" in diff["after_header"]


def test_a_change_in_place_is_made(host: FakeProvider) -> None:
    task(host, memory="1GiB")
    assert task(host, memory="2GiB", check=True)["changed"] is True
    assert task(host, memory="2GiB")["changed"] is True
    assert task(host, memory="2GiB")["changed"] is False


def test_data_is_lost_only_when_that_was_said(host: FakeProvider) -> None:
    task(host)
    host.containers["one"].files["/kept"] = b"x"
    with pytest.raises(PreflightError, match="without losing what is in it"):
        task(host, image="debian/13")
    assert host.containers["one"].files
    assert task(host, image="debian/13", replace=True)["changed"] is True
    assert host.containers["one"].instance.image == "debian/13"
    assert not host.containers["one"].files


def test_only_this_container_is_looked_at(host: FakeProvider) -> None:
    leftover = replace(wanted_instance(options(name="build")), kind=InstanceKind.BUILDER)
    host.create(leftover)
    task(host)
    task(host, state="absent")
    assert set(host.containers) == {"build"}


def test_a_stranger_s_name_is_refused(host: FakeProvider) -> None:
    host.create(wanted_instance(options(lab="another")))
    with pytest.raises(PreflightError, match="the name is taken"):
        task(host)
    assert task(host, state="absent")["changed"] is False
    assert set(host.containers) == {"one"}


def test_a_host_that_does_not_tell_its_room_is_warned_of_and_the_container_made(
    host: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_changes: object) -> None:
        raise ProviderError("Unable to read the resources of the host", details="404")

    monkeypatch.setattr(host, "capacity", refuses)
    warned: list[str] = []
    run(SimpleNamespace(params=options(), check_mode=False, warn=warned.append), host)
    assert warned == ["Whether the host has room is not known: Unable to read the resources of the host"]
    assert status(host) is Status.RUNNING
