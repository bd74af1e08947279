"""Nobody writes into a service whose container may go back: people are kept out from its snapshot to its proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.reconcile.runner import TaskEvent
from provisioner.values.errors import ProviderError
from provisioner.values.state import Snapshot
from tests.unit.cli.conftest import FILE, World

CHAT = """\
  chat:
    services:
      open_webui: { admin: penny@home.example, password: !secret webui_password, connect: [gateway/litellm] }
"""
OTHER = CHAT.replace("password:", "max_body: 2048, password:")
UNIT = "open-webui-closed.service"
PROOF = TaskEvent("failed", "chat", "open_webui", "open_webui : verify | Check", "it does not offer fast")


@pytest.fixture
def chat_there(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The lab with a chat, up, and a change of the chat in its file."""
    monkeypatch.setenv("PROVISION_SECRET_WEBUI_PASSWORD", "canary-webui-1c")
    lab.write_text(FILE + CHAT)
    made = world.done("up", "--yes", "--json")
    assert not [line for line in made.events if line.get("action") in ("close", "open")]
    lab.write_text(FILE + OTHER)
    return world


def closed_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether the chat is closed when a snapshot is taken and while the playbook runs, once that has happened."""
    seen: dict[str, bool] = {}
    take = world.host.snapshots.take

    def taken(*arguments: object) -> Snapshot:
        seen.setdefault("snapshot", UNIT in world.active)
        return take(*arguments)  # type: ignore[arg-type]  # as it is called

    monkeypatch.setattr(world.host.snapshots, "take", taken)
    world.then = lambda: seen.setdefault("playbook", UNIT in world.active)
    return seen


def test_it_is_closed_from_the_snapshot_until_it_is_proved(chat_there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = closed_meanwhile(chat_there, monkeypatch)
    done = chat_there.done("up", "--yes", "--json")
    assert seen == {"snapshot": True, "playbook": True}
    assert not chat_there.active
    steps = [(line["action"], line["target"]) for line in done.of("apply_complete")]
    assert steps == [
        ("close", "chat/open_webui"),
        ("snapshot", "chat"),
        ("configure", "chat"),
        ("open", "chat/open_webui"),
    ]
    assert chat_there.command("plan", "--detailed-exitcode").code == 0


def test_the_plan_of_its_container_alone_says_that_people_see_a_page(chat_there: World, lab: Path) -> None:
    lab.write_text(FILE + CHAT.replace("  chat:\n", "  chat:\n    memory: 3GiB\n"))
    assert chat_there.command("plan").printed == chat_there.snapshot
    lab.write_text(FILE + OTHER)
    assert chat_there.command("plan").printed == chat_there.snapshot


def test_it_is_said_in_words(chat_there: World) -> None:
    assert chat_there.command("up", "--yes").printed == chat_there.snapshot


def test_it_is_open_again_when_it_has_gone_back(chat_there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = closed_meanwhile(chat_there, monkeypatch)
    chat_there.failures["site.yml"] = (PROOF,)
    chat_there.changes = {"chat": 3}
    done = chat_there.command("up", "--yes", "--json")
    assert done.code == 3
    assert seen == {"snapshot": True, "playbook": True}
    steps = [(line["action"], line["target"]) for line in done.of("apply_complete")]
    assert steps.index(("rollback", "chat")) < steps.index(("open", "chat/open_webui"))
    assert not chat_there.active


def test_it_is_open_again_when_the_run_is_interrupted(chat_there: World) -> None:
    chat_there.raises = KeyboardInterrupt()
    assert chat_there.command("up", "--yes").code == 130
    assert not chat_there.active


def test_it_is_open_again_where_its_state_cannot_be_kept(chat_there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        assert UNIT in chat_there.active
        raise ProviderError("Unable to keep the state of container chat", details="No space left on device")

    monkeypatch.setattr(chat_there.host.snapshots, "take", full)
    assert chat_there.command("up", "--yes").code == 1
    assert not chat_there.active


def test_a_change_of_its_container_alone_closes_it_as_well(
    chat_there: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_text(FILE + CHAT.replace("  chat:\n", "  chat:\n    memory: 3GiB\n"))
    seen = closed_meanwhile(chat_there, monkeypatch)
    assert chat_there.command("up", "--yes").code == 0
    assert seen == {"snapshot": True}
    assert not chat_there.active


def test_where_nothing_goes_back_it_stays_open(chat_there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = closed_meanwhile(chat_there, monkeypatch)
    done = chat_there.done("up", "--yes", "--no-rollback", "--json")
    assert seen == {"playbook": False}
    assert not [line for line in done.events if line.get("action") in ("close", "open")]


def test_what_a_killed_run_has_left_closed_is_found_and_opened(chat_there: World, lab: Path) -> None:
    """Also by one that goes back to nothing, and where the file is what it was before the killed run."""
    lab.write_text(FILE + CHAT)
    chat_there.active.add(UNIT)
    assert chat_there.command("verify").ended(3) == chat_there.snapshot
    assert chat_there.command("status").printed == chat_there.snapshot
    (change,) = chat_there.command("plan", "--json").of("planned_change")
    assert (change["target"], change["action"]) == ("chat/open_webui", "configure")
    assert change["reason"].startswith("it keeps people out")
    assert chat_there.command("up", "--yes", "--no-rollback").code == 0
    assert not chat_there.active
    assert "it keeps people out" not in chat_there.command("verify").out


@pytest.mark.parametrize("code", [1, 5], ids=["fails", "has no such unit"])
def test_one_that_cannot_be_closed_is_told_and_changed_all_the_same(chat_there: World, code: int) -> None:
    """With 5 systemd ends where an older container has no such unit yet."""
    chat_there.systemctl_code = code
    assert chat_there.command("up", "--yes").ended(0) == chat_there.snapshot
