"""Turns: one at a time on each storage of each node."""

from __future__ import annotations

import threading
import time

import pytest

from provisioner.hosts.proxmox.host import storage_turn

URL = "https://192.0.2.1:8006"


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        ((URL, "pve1", "lvm"), True),
        ((f"{URL}/", "pve1", "lvm"), True),
        ((URL, "pve2", "lvm"), False),
        ((URL, "pve1", "zfs"), False),
        (("https://192.0.2.2:8006", "pve1", "lvm"), False),
    ],
)
def test_only_the_same_place_is_waited_for(other: tuple[str, str, str], *, waits: bool) -> None:
    entered = threading.Event()

    def enter() -> None:
        with storage_turn(*other):
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    with storage_turn(URL, "pve1", "lvm"):
        thread.start()
        assert entered.wait(0.2) != waits
    thread.join(2)
    assert entered.is_set()


def test_of_many_each_has_its_turn_alone() -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with storage_turn(URL, "pve1", "lvm"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert most == [1] * 8


def test_a_turn_within_a_turn_is_the_same_one_and_ends_with_an_error() -> None:
    with pytest.raises(KeyError), storage_turn(URL, "pve1", "lvm"), storage_turn(URL, "pve1", "lvm"):
        raise KeyError
    done = threading.Event()

    def enter() -> None:
        with storage_turn(URL, "pve1", "lvm"):
            done.set()

    threading.Thread(target=enter, daemon=True).start()
    assert done.wait(2)
