"""``cluster check`` and ``cluster watch`` on a cluster in memory: what is printed, and the exit codes."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.app import run
from provisioner.cluster import gather as gathering
from provisioner.cluster.facts import NodeFacts
from provisioner.cluster.gather import Reach
from provisioner.values.errors import ExitCode, ProviderError, ProvisionError, UnavailableError
from provisioner.values.events import Event
from tests.cluster_facts import cluster, dead

World = dict[str, NodeFacts]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Address → what answers there; nobody elsewhere."""
    there: World = {one.address: one for one in cluster().nodes}

    def look(reached: Reach, _emit: Callable[[Event], None] | None = None) -> NodeFacts:
        if reached.destination.host not in there:
            raise UnavailableError(f"Unable to reach {reached.destination} by ssh", details="ssh: timed out")
        return there[reached.destination.host]

    monkeypatch.setattr(gathering, "read_lists", look)
    monkeypatch.setattr(gathering, "observe_node", look)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return there


def lose(world: World, name: str) -> None:
    """The node is switched off, and the others have seen it."""
    world.clear()
    world.update({one.address: one for one in cluster(off=(name,)).nodes})


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = run(["cluster", *words])
    return code, capsys.readouterr().out


def stream(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    code, out = answer(capsys, *words, "--json")
    return code, [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(("version", "code"), [(7, ExitCode.DONE), (6, ExitCode.VERIFICATION_FAILED)])
def test_finding_is_told_with_proof_advice_and_runbook(
    world: World, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion, version: int, code: ExitCode
) -> None:
    world["10.0.0.3"] = replace(world["10.0.0.3"], running_version=version)
    ended, out = answer(capsys, "check", "root@10.0.0.1")
    assert ended == code
    assert out == snapshot


def test_stream_has_all_of_it_in_one_result(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world["10.0.0.3"] = dead(world["10.0.0.3"])
    code, lines = stream(capsys, "check", "root@10.0.0.1")
    (result,) = [one for one in lines if one["type"] == "result"]
    assert code == ExitCode.VERIFICATION_FAILED
    assert (lines[0]["type"], lines[-1]["type"], lines[-1]["exit_code"]) == ("version", "summary", 3)
    assert result["votes"] == {"present": 3, "expected": 3, "needed": 2}
    assert [one["name"] for one in result["nodes"]] == ["pve1", "pve2", "pve3"]
    assert all(
        {"condition", "node", "message", "evidence", "runbook", "advice"} == one.keys() for one in result["diagnoses"]
    )


@pytest.mark.usefixtures("world")
def test_page_is_written_beside_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "check", "root@10.0.0.1", "--html", "page.html")[0] == ExitCode.DONE
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Cluster homelab" in page
    assert "pve3" in page
    assert answer(capsys, "check", "root@10.0.0.1", "--html", "no/such/page.html")[0] == ExitCode.USAGE


def test_last_version_is_passed_on(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    lose(world, "pve3")
    assert "2 versions behind" in answer(capsys, "check", "root@10.0.0.1", "--last-version", "pve3=5")[1]
    assert "FAIL pve3: do-not-power-on" not in answer(capsys, "check", "root@10.0.0.1", "--last-version", "7")[1]


def test_the_power_on_check_takes_the_version_that_its_advice_asks_for(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(world, "pve3")
    words = ["runbook", "run", "power-on-check", "--host", "root@10.0.0.1", "--node", "pve3"]
    assert run(words) == ExitCode.VERIFICATION_FAILED
    assert "--last-version pve3=N" in capsys.readouterr().out
    assert run([*words, "--last-version", "pve3=5"]) == ExitCode.VERIFICATION_FAILED
    assert "2 versions behind" in capsys.readouterr().out
    assert run([*words, "--last-version", "x"]) == ExitCode.USAGE


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    "line",
    [
        *("check", "check pve1", "check root@10.0.0.1 root@10.0.0.2", "check root@10.0.0.1 --last-version pve3"),
        *("check root@10.0.0.1 --last-version pve3=-1", "check no.yml", "watch root@10.0.0.1 --interval 0", "chekc"),
    ],
)
def test_wrong_usage(line: str) -> None:
    assert run(["cluster", *line.split()]) == ExitCode.USAGE


@pytest.mark.usefixtures("world")
def test_file_is_positional_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = '{proxmox: "https://x:8006", user: root@pam, password: !secret p, ssh: root@10.0.0.1}'
    text = f"name: lab\nhosts:\n  one: {host}\ncontainers: {{}}\n"
    (tmp_path / "mine.yml").write_text(text, encoding="utf-8")
    for words in (("mine.yml",), ("mine.yml", "one"), ("-f", "mine.yml", "one"), ("-f", "mine.yml")):
        assert answer(capsys, "check", *words)[0] == ExitCode.DONE, words


@pytest.mark.usefixtures("world")
def test_host_that_does_not_answer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "check", "root@10.0.0.99")[0] == ExitCode.REFUSED
    assert answer(capsys, "watch", "root@10.0.0.99", "--once")[0] == ExitCode.REFUSED


def test_watch_tells_what_changed_since_the_last_run(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    once = ("watch", "root@10.0.0.1", "--once")
    code, out = answer(capsys, *once)
    assert (code, out.count("\n")) == (ExitCode.DONE, 1)
    assert "the first look" in out
    assert answer(capsys, *once)[0] == ExitCode.DONE
    lose(world, "pve3")
    code, out = answer(capsys, *once)
    assert code == ExitCode.VERIFICATION_FAILED
    assert "worse membership: pve3: left: 2 of 3 votes, 2 needed" in out
    assert answer(capsys, *once)[0] == ExitCode.DONE  # it was told
    world.update({one.address: one for one in cluster().nodes})
    code, lines = stream(capsys, *once)
    assert code == ExitCode.DONE
    changes = [(one["kind"], one["node"], one["is_worse"]) for one in lines if one["type"] == "change"]
    assert changes == [("membership", "pve3", False), ("answer", "pve3", False)]


def test_watch_goes_on_with_the_other_nodes_when_its_own_is_lost(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    once = ("watch", "root@10.0.0.3", "--once")
    assert answer(capsys, *once)[0] == ExitCode.DONE
    lose(world, "pve3")
    code, out = answer(capsys, *once)
    assert code == ExitCode.VERIFICATION_FAILED
    assert "pve3: left" in out


@pytest.mark.parametrize("kind", [UnavailableError, ProviderError])
def test_watch_outlives_whatever_a_node_that_loses_power_does(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[ProvisionError]
) -> None:
    """Its connection hangs, or ends in the middle of an answer; the others are asked then, and then nobody is left."""
    look = gathering.observe_node

    def failing(reached: Reach, emit: Callable[[Event], None]) -> NodeFacts:
        if reached.destination.host not in world:
            raise kind("Unable to tell how sh ended")
        return look(reached, emit)

    steps = iter([lambda: lose(world, "pve1"), world.clear])

    def next_step(seconds: float) -> None:
        assert seconds == 5
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(gathering, "observe_node", failing)
    monkeypatch.setattr("time.sleep", next_step)
    code, lines = stream(capsys, "watch", "root@10.0.0.1", "--interval", "5")
    assert code == ExitCode.INTERRUPTED
    kinds = [one["type"] for one in lines if one["type"] in ("look", "change", "diagnostic")]
    assert kinds == ["look", "change", "change", "diagnostic", "diagnostic"]
    assert any(one.get("node") == "pve1" and one.get("kind") == "membership" for one in lines)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99}', '{"format": 1, "snapshot": {}}'])
def test_state_is_kept_for_this_user_only_and_is_as_none_where_it_cannot_be_read(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, "watch", "root@10.0.0.1", "--once")[0] == ExitCode.DONE
    file = tmp_path / "state/provisioner/clusters/homelab/watch.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_text(content, encoding="utf-8")
    code, out = answer(capsys, "watch", "root@10.0.0.1", "--once")
    assert code == ExitCode.DONE
    assert "the first look" in out


@pytest.mark.usefixtures("world")
def test_names_from_a_node_cannot_steer_the_terminal(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world["10.0.0.1"] = replace(world["10.0.0.1"], guests={"\x1b[2Jold": ()})
    out = answer(capsys, "check", "root@10.0.0.1")[1]
    assert "\x1b" not in out
    assert "\\x1b[2Jold" in out
