"""A line of corosync's log counts while nothing later contradicts it, and one about a stranger while it is new."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from provisioner.cluster.facts import Signatures
from provisioner.cluster.read_corosync import RECENT_S, read_log

NOW = datetime.fromisoformat("2026-11-22T12:00:00+00:00")
HOSTS = {"10.0.0.1": 1, "10.0.0.2": 2, "10.0.0.3": 3}
START = "[MAIN  ] Corosync Cluster Engine 3.1.9 starting up"
RING = "[TOTEM ] A new membership (1.5) was formed. Members joined: 1 2"
AGAIN = "[TOTEM ] A new membership (1.19) was formed. Members"
LEFT = "[TOTEM ] A new membership (1.9) was formed. Members left: 3"
JOINED = "[TOTEM ] A new membership (1.d) was formed. Members joined: 3"
MTU = "[KNET  ] link: Resetting MTU for link 0 because host {} joined"
UP = "[KNET  ] rx: host: {} link: 0 is up"
ALONE = "[KNET  ] host: host: {} has no active links"
BEHIND = "[CMAP  ] Received config version (3) is different than my config version (2)! Exiting"
UNLOADING = "[SERV  ] Unloading all Corosync service engines."
REJECTED = "[KNET  ] rx: Packet rejected from {}:5405"
UNDECRYPTABLE = "[KNET  ] rx: Unable to decrypt packet from {}:5405 (size 80)!"
PACKETS = (REJECTED, UNDECRYPTABLE)


def log(*lines: str | tuple[float, str], own: int = 1) -> Signatures:
    """The lines, each as old as is said with it (0 s)."""
    return read_log([_line(one) for one in lines], HOSTS, NOW, own)


def senders(found: Signatures) -> set[str]:
    return {*found.rejected, *found.undecryptable}


def _line(one: str | tuple[float, str]) -> str:
    age, words = one if isinstance(one, tuple) else (0.0, one)
    return f"{(NOW - timedelta(seconds=age)).isoformat()} pve1 corosync[202]:   {words}"


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("later", [MTU.format(3), UP.format(3), JOINED, LEFT])
def test_packets_of_a_member_count_until_a_link_to_it_or_another_membership(packet: str, later: str) -> None:
    told = packet.format("10.0.0.3")
    assert senders(log(START, RING, told)) == {"10.0.0.3"}
    found = log(START, RING, told, later)
    assert (senders(found), [one for one in found.lines if "10.0.0.3" in one]) == (set(), [])
    assert senders(log(START, RING, told, later, told)) == {"10.0.0.3"}


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("later", [MTU.format(2), AGAIN, f"{UNLOADING}", ALONE.format(3)])
def test_other_lines_contradict_no_packets(packet: str, later: str) -> None:
    assert senders(log(START, RING, packet.format("10.0.0.3"), later)) == {"10.0.0.3"}


def test_links_that_are_taken_down_with_corosync_contradict_nothing() -> None:
    """When it unloads it writes "because host 3 joined" of each link."""
    found = log(START, RING, UNDECRYPTABLE.format("10.0.0.3"), ALONE.format(3), UNLOADING, MTU.format(3))
    assert (senders(found), found.unreachable) == ({"10.0.0.3"}, frozenset({3}))


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize(("age", "is_told"), [(RECENT_S - 1, True), (RECENT_S + 1, False), (1800.0, False)])
def test_packets_of_a_stranger_count_while_they_are_new(packet: str, age: float, *, is_told: bool) -> None:
    found = log(START, RING, (age, packet.format("10.7.7.7")))
    assert (senders(found) == {"10.7.7.7"}, bool(found.lines)) == (is_told, is_told)
    assert found.ages == ({"10.7.7.7": age} if is_told else {})


@pytest.mark.parametrize("now", [None, NOW])
def test_a_line_or_a_clock_without_a_time_is_believed(now: datetime | None) -> None:
    line = f"Nov 20 08:35:28 [105] n1 corosync error   {UNDECRYPTABLE.format('10.7.7.7')}"
    assert senders(read_log([line], HOSTS, now)) == {"10.7.7.7"}
    assert senders(read_log([_line((9999, REJECTED.format("10.7.7.7")))], HOSTS, None)) == {"10.7.7.7"}


def test_a_version_that_was_received_counts_until_the_next_start() -> None:
    assert log(START, RING, BEHIND, UNLOADING, MTU.format(2)).outdated == (3, 2)
    assert log(START, RING, BEHIND, UNLOADING, START, RING).outdated is None


@pytest.mark.parametrize(("later", "left"), [((), {3}), ((UP.format(3),), set()), ((JOINED,), set()), ((LEFT,), {3})])
def test_a_host_without_links_has_none_until_one_is_up(later: Sequence[str], left: set[int]) -> None:
    found = log(START, ALONE.format(1), RING, ALONE.format(3), *later)
    assert found.unreachable == left
    assert [line for line in found.lines if "no active links" in line] == [_line(ALONE.format(3))] * len(left)


@pytest.mark.parametrize(
    ("ages", "counted"),
    [((25.0, 15.0, 5.0), 3), ((200.0, 130.0, 25.0, 15.0, 5.0), 3), ((65.0, 55.0, 45.0), 0), ((5.0,), 0)],
)
def test_a_membership_that_nobody_joined_or_left_counts_while_it_goes_on(ages: Sequence[float], counted: int) -> None:
    formed = [(age, AGAIN) for age in ages]
    assert log(START, RING, *formed).reformed == counted
    assert log(START, RING, *formed, JOINED).reformed == 0
    assert log(START, RING, *formed, UNLOADING).reformed == 0


def test_a_host_that_corosync_first_speaks_of_after_another_left_was_added_since() -> None:
    before = (START, ALONE.format(2), ALONE.format(3), RING, JOINED, LEFT)
    assert log(*before).unchanged_since == {3}
    found = log(*before, ALONE.format(4), UP.format(4), JOINED.replace("3", "4"))
    assert (found.newcomers, found.unchanged_since) == ({3: frozenset({4})}, frozenset())
    again = log(*before, LEFT.replace("3", "2"), JOINED.replace("3", "2"))
    assert (again.newcomers, again.unchanged_since) == ({}, frozenset())
    cut = log(*before[1:], ALONE.format(4), JOINED.replace("3", "4"))
    assert (cut.newcomers, cut.unchanged_since) == ({}, frozenset())


def test_a_host_that_was_never_there_is_away_since_corosync_started() -> None:
    found = log(START, ALONE.format(2), ALONE.format(3), RING, UP.format(4), JOINED.replace("3", "4"))
    assert found.newcomers == {3: {4}}
