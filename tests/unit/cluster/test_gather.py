"""How hosts are named and who is asked: from one node on, by all lists; a silent one has a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cluster import gather as gathering
from provisioner.cluster.facts import CorosyncConf, Member, NodeFacts, Signatures
from provisioner.cluster.gather import Reach, clock_offset, gather, reach
from provisioner.hosts.proxmox.ssh import CommandTimeoutError, Shell, unreachable_error
from provisioner.report.messages import error_text
from provisioner.values.errors import ExitCode, InputError, PreflightError, UnavailableError
from provisioner.values.events import Event
from provisioner.values.state import Execution
from tests.cluster_facts import cluster, members, node

World = dict[str, NodeFacts]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Address → what answers there; nobody elsewhere."""
    there: World = {one.address: one for one in cluster().nodes}

    def look(reached: Reach, _emit: Callable[[Event], None] | None = None) -> NodeFacts:
        if reached.destination.host not in there:
            raise UnavailableError(f"Unable to reach {reached.destination} by ssh", details="ssh: timed out")
        return there[reached.destination.host]

    monkeypatch.setattr(gathering, "read_lists", look)
    monkeypatch.setattr(gathering, "observe_node", look)
    return there


def test_clock_is_compared_by_the_call_that_was_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call takes 8 s of which the node saw the beginning only, the second one 0.2 s."""
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    delays = iter([8.0, 0.2])

    def ask() -> bytes:
        said = now[0] + 60.1
        now[0] += next(delays)
        return f"{said:.9f}\n".encode()

    assert clock_offset(ask) == pytest.approx(60.0)


def test_a_node_whose_connection_hangs_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lost power: nobody closed the connection, and the first command on it takes for ever."""

    def hang(*_: object, **__: object) -> Execution:
        raise CommandTimeoutError("Unable to wait for date on root@10.0.0.1", details="It was killed after 10 s.")

    monkeypatch.setattr(Shell, "open", lambda _shell: None)
    monkeypatch.setattr(Shell, "run", hang)
    with pytest.raises(UnavailableError, match="the connection hangs") as caught:
        gather(Reach("x", "root@10.0.0.1"))
    assert caught.value.exit_code == ExitCode.REFUSED
    assert "killed after 10 s" in caught.value.details


def test_all_members_are_found_from_any_of_them(world: World) -> None:
    for address in world:
        found = gather(Reach("x", f"root@{address}"))
        assert [one.name for one in found.nodes] == ["pve1", "pve2", "pve3"]
        assert found.silent == ()


def test_all_members_are_asked_at_the_same_time_and_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them answers before all three were asked."""
    look, all_asked = gathering.observe_node, Barrier(3)
    asked = list[str]()

    def look_together(reached: Reach, emit: Callable[[Event], None]) -> NodeFacts:
        asked.append(reached.destination.host)
        all_asked.wait(timeout=20)
        return look(reached, emit)

    monkeypatch.setattr(gathering, "observe_node", look_together)
    assert [one.name for one in gather(Reach("x", "root@10.0.0.1")).nodes] == ["pve1", "pve2", "pve3"]
    assert sorted(asked) == sorted(world)


def test_who_does_not_answer_is_silent_with_the_reason(world: World) -> None:
    del world["10.0.0.3"]
    (silent,) = gather(Reach("x", "root@10.0.0.1")).silent
    assert (silent.name, silent.address) == ("pve3", "10.0.0.3")
    assert silent.why == "Unable to reach root@10.0.0.3 by ssh: ssh: timed out"


def test_a_node_with_another_host_key_says_how_keys_are_compared(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was installed anew; ssh ends its own lines in CRLF."""
    said = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.\r\n"

    def look(reached: Reach, _emit: Callable[[Event], None]) -> NodeFacts:
        host = reached.destination.host
        if host not in ("10.0.0.1", "10.0.0.2"):
            raise unreachable_error(reached.destination, said)
        return world[host]

    monkeypatch.setattr(gathering, "observe_node", look)
    (silent,) = gather(Reach("x", "root@10.0.0.1")).silent
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in silent.key_advice
    assert "ssh-keygen -R '10.0.0.3'" in silent.key_advice
    assert "\r" not in silent.why


def test_a_node_whose_host_key_nobody_knows_is_silent_for_that_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other key was known of it: nothing says that it was installed anew."""

    def look(reached: Reach, _emit: Callable[[Event], None]) -> NodeFacts:
        host = reached.destination.host
        if host not in ("10.0.0.1", "10.0.0.2"):
            said = f"No ED25519 host key is known for {host} and you have requested strict checking.\r\n"
            raise unreachable_error(reached.destination, f"{said}Host key verification failed.\r\n")
        return world[host]

    monkeypatch.setattr(gathering, "observe_node", look)
    (silent,) = gather(Reach("x", "root@10.0.0.1")).silent
    assert silent.key_advice == ""
    assert "Its host key is not known here" in silent.why


def test_what_was_said_of_a_silent_node_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went off a moment ago: its peers saw it as joined when they were asked, and have noticed since."""
    del world["10.0.0.3"]
    first, later = gathering.observe_node, {one.address: one for one in cluster(off=("pve3",)).nodes}
    asked = set[str]()

    def look(reached: Reach, emit: Callable[[Event], None]) -> NodeFacts:
        host = reached.destination.host
        found = later[host] if host in asked else first(reached, emit)
        asked.add(host)
        return found

    monkeypatch.setattr(gathering, "observe_node", look)
    found = gather(Reach("x", "root@10.0.0.1"))
    assert [one.quorum and dict(one.quorum.present) for one in found.nodes] == [{1: 1, 2: 1}, {1: 1, 2: 1}]


def test_asked_host_that_does_not_answer_is_an_error(world: World) -> None:
    world.clear()
    with pytest.raises(UnavailableError):
        gather(Reach("x", "root@10.0.0.1"))


def test_asked_host_that_is_no_proxmox_is_refused(world: World) -> None:
    world["10.0.0.1"] = NodeFacts("web", "10.0.0.1", is_proxmox=False)
    with pytest.raises(PreflightError, match="is no Proxmox VE host"):
        gather(Reach("x", "root@10.0.0.1"))


def test_second_address_is_tried(world: World) -> None:
    of = (*members(2), Member("pve3", 3, 1, ("10.5.0.3", "10.0.0.3")))
    world["10.0.0.1"] = node("pve1", of)
    assert [one.name for one in gather(Reach("x", "root@10.0.0.1")).nodes] == ["pve1", "pve2", "pve3"]


def test_a_node_whose_address_changed_is_found_by_its_name(world: World) -> None:
    """No list has the new address; this machine's DNS or ssh_config may."""
    world["pve3"] = replace(world.pop("10.0.0.3"), address="pve3")
    found = gather(Reach("x", "root@10.0.0.1"))
    assert ([one.name for one in found.nodes], found.silent) == (["pve1", "pve2", "pve3"], ())
    world["pve3"] = NodeFacts("web", "pve3", is_proxmox=False)
    (silent,) = gather(Reach("x", "root@10.0.0.1")).silent
    assert silent.why == "Unable to reach root@10.0.0.3 by ssh: ssh: timed out"


def test_stale_node_leads_to_the_cluster_by_whose_packets_it_rejects(world: World) -> None:
    old = tuple(replace(one, addresses=(f"10.9.0.{one.nodeid}",)) if one.nodeid < 3 else one for one in members(3))
    log = Signatures(rejected={"10.0.0.1": 5})
    world["10.0.0.3"] = node("pve3", old, ["pve3"], signatures=log)
    found = gather(Reach("x", "root@10.0.0.3"))
    assert [one.name for one in found.nodes] == ["pve1", "pve2", "pve3"]


def test_address_that_is_another_machine_now_is_told(world: World) -> None:
    world["10.0.0.3"] = NodeFacts("web", "10.0.0.3", is_proxmox=False)
    (silent,) = gather(Reach("x", "root@10.0.0.1")).silent
    assert (silent.name, silent.why) == ("pve3", "at 10.0.0.3 is web, no Proxmox VE host")


def test_node_of_another_cluster_is_not_counted(world: World) -> None:
    conf = CorosyncConf("office", 3, members(3))
    world["10.0.0.3"] = replace(world["10.0.0.3"], local_conf=conf)
    found = gather(Reach("x", "root@10.0.0.1"))
    assert [one.name for one in found.nodes] == ["pve1", "pve2"]
    assert "of the cluster office" in found.silent[0].why


def test_heard_node_that_left_and_is_silent_is_kept_by_its_address(world: World) -> None:
    world["10.0.0.1"] = replace(world["10.0.0.1"], departed={4: 5}, heard={4: "10.0.0.4"})
    found = gather(Reach("x", "root@10.0.0.1"))
    assert [(one.name, one.address) for one in found.silent] == [("", "10.0.0.4")]


def test_a_list_that_names_ever_more_nodes_comes_to_an_end(world: World) -> None:
    for number in range(1, 60):
        of = tuple(Member(f"pve{one}", one, 1, (f"10.0.0.{one}",)) for one in (number, number + 1))
        world[f"10.0.0.{number}"] = node(f"pve{number}", of)
    assert 1 < len(gather(Reach("x", "root@10.0.0.1")).nodes) < 60


ONE = """\
name: lab
hosts:
  box: { incus: local }
  pve1: { proxmox: "https://10.0.0.1:8006", user: root@pam, password: !secret pw, ssh: "root@10.0.0.1:2222" }
containers: {}
"""


TWO = ONE.replace(
    "containers", '  pve2: { proxmox: "https://10.0.0.2:8006", user: root@pam, password: !secret pw }\ncontainers'
)


def file(folder: Path, text: str) -> Path:
    path = folder / "homelab.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_words_with_a_user_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SSH_CONFIG", "/x/config")
    assert reach("root@10.0.0.9:22", tmp_path / "no.yml") == Reach(
        "root@10.0.0.9:22", "root@10.0.0.9:22", Path("/x/config")
    )


def test_only_proxmox_host_of_the_file_needs_no_words_and_no_secrets(tmp_path: Path) -> None:
    assert reach("", file(tmp_path, ONE)).ssh == "root@10.0.0.1:2222"
    assert reach("pve1", file(tmp_path, TWO)).name == "pve1"


NOBODY: dict[str, tuple[str, str | None]] = {
    "none of two": ("", TWO),
    "another name": ("pve9", TWO),
    "a host of another kind": ("box", ONE),
    "an address": ("10.0.0.1", ONE),
    "no host": ("", "name: lab\ncontainers: {}\n"),
    "no file": ("", None),
    "a name without a file": ("pve1", None),
    "a host without ssh": ("pve2", TWO),
}


@pytest.mark.parametrize(("words", "text"), NOBODY.values(), ids=NOBODY)
def test_words_that_name_no_host_are_refused_with_those_that_there_are(
    words: str, text: str | None, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises((InputError, PreflightError)) as caught:
        reach(words, file(tmp_path, text) if text else tmp_path / "no.yml")
    assert error_text(caught.value) == snapshot


@pytest.mark.parametrize(
    "words", ["root@", "@host", "-oProxyCommand=x@host", "root@-oProxyCommand=x", "root@a b", "root@h:p"]
)
def test_words_that_ssh_would_misread_are_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, PreflightError)):
        reach(words, tmp_path / "no.yml")


@pytest.mark.parametrize(
    ("asked", "address", "expected"),
    [
        ("root@pve1", "10.0.0.2", "root@10.0.0.2"),
        ("root@10.0.0.1:2222", "10.0.0.2", "root@10.0.0.2:2222"),
        ("root@10.0.0.1:2222", "fd00::2", "root@[fd00::2]:2222"),
        ("pve1", "10.0.0.2", "10.0.0.2"),
    ],
)
def test_other_nodes_are_reached_with_the_same_user_and_port(asked: str, address: str, expected: str) -> None:
    assert Reach("x", asked).at(address).ssh == expected
