"""Tasks: waited for to their end, whatever it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from provisioner.hosts.proxmox import api, failures
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError
from provisioner.values.errors import ProviderError
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.errors import died
from tests.doubles.proxmox.tasks import Task


@pytest.fixture
def begin(pve: Double) -> Callable[[Callable[[Task], None]], str]:
    """Starts a task on another node than the one that is asked, as the token."""

    def begun(work: Callable[[Task], None]) -> str:
        return pve.world.tasks.begin("pve2", "vzcreate", "105", "root@pam!ci", work)

    return begun


Begin = Callable[[Callable[[Task], None]], str]


def test_a_good_task_gives_its_last_words(client: Client, begin: Begin) -> None:
    assert client.task(begin(lambda task: task.say("one\ntwo\n"))) == "two"
    assert client.task(begin(lambda _: None)) == ""


def test_warnings_are_success_and_come_back(client: Client, begin: Begin) -> None:
    """Facts: ``WARNINGS: 1`` is success."""

    def work(task: Task) -> None:
        task.warn("Systemd 252 detected. You may need to enable nesting.")
        task.say("done")

    assert client.task(begin(work)) == "WARN: Systemd 252 detected. You may need to enable nesting."


def test_a_task_that_failed_is_an_error_with_its_log(client: Client, begin: Begin) -> None:
    """Facts: 200 and a UPID, then an exit status that is neither OK nor WARNINGS."""

    def work(task: Task) -> None:
        task.say("extracting archive\ntar: short read")
        raise died("unable to create CT 105 - command 'tar' failed: exit code 2")

    with pytest.raises(PveError) as caught:
        client.task(begin(work))
    assert caught.value.message == "unable to create CT 105 - command 'tar' failed: exit code 2"
    assert "tar: short read\nTASK ERROR: unable to create CT 105" in caught.value.log
    with pytest.raises(ProviderError) as worded, failures.worded("Unable to create container c"):
        raise caught.value
    assert "tar: short read" in worded.value.details


def test_a_task_that_takes_long_says_what_it_does(
    client: Client, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "REPORT_S", 0.2)
    told: list[tuple[str, str]] = []

    def work(task: Task) -> None:
        for number in range(1, 5):
            task.say(f"{number * 25} %")
            task.pause(0.25)

    client.task(begin(work), name="c", on_progress=lambda *said: told.append(said))
    assert 2 <= len(told) <= 6
    assert all(name == "c" and text.endswith(" %") for name, text in told)


def test_a_quick_task_says_nothing(client: Client, begin: Begin) -> None:
    told: list[str] = []
    client.task(begin(lambda task: task.say("quick")), on_progress=lambda _, text: told.append(text))
    assert not told


def test_a_task_that_hangs_is_left(client: Client, begin: Begin) -> None:
    def work(task: Task) -> None:
        task.say("waiting")
        task.pause(30)

    upid = begin(work)
    with pytest.raises(PveError, match=f"still runs after 0 s: {upid}") as caught:
        client.task(upid, timeout_s=0.3)
    assert caught.value.log == "waiting"


def test_it_is_asked_often_at_first_and_seldom_later(
    client: Client, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    original = client.get

    def noted(*path: object, **query: object) -> Any:
        if path[-1] == "status":
            asked.append(time.monotonic())
        return original(*path, **query)

    monkeypatch.setattr(client, "get", noted)
    client.task(begin(lambda task: task.pause(3)))
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[0] < 0.25
    assert pauses[-1] > 0.6
    assert len(asked) <= 12


def test_a_long_log_is_read_whole(client: Client, begin: Begin) -> None:
    def work(task: Task) -> None:
        task.say("\n".join(str(number) for number in range(1200)))
        raise died("too long")

    with pytest.raises(PveError) as caught:
        client.task(begin(work))
    lines = caught.value.log.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (1201, "0", "TASK ERROR: too long")
    assert failures.details(caught.value).splitlines()[1] == "(1161 lines before these)"


def test_a_connection_that_drops_while_waiting_is_nothing(pve: Double, client: Client, begin: Begin) -> None:
    pve.world.faults.drop("GET", "/nodes/pve2/tasks/.*", times=2)
    assert client.task(begin(lambda task: task.say("done"))) == "done"
