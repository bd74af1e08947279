"""The pages of runbooks: each is whole, belongs to a playbook with the same steps, and a wrong one is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.cluster.facts import Condition
from provisioner.cluster.runbooks import Runbook, known_runbook, known_runbooks
from provisioner.values import paths
from provisioner.values.errors import InputError, ProvisionError
from tests.case_files import read_cases

CASES = read_cases("cluster/runbooks")

PLAYBOOKS = paths.playbooks() / "repair"
READING = {"-p", "-c", "-r", "--flash-name"}
"""The options of flashrom that we use."""
PAGE: dict[str, Any] = CASES["page"]


def page(folder: Path, **changes: Any) -> Path:
    """A folder with one page, which is right but for ``changes`` (None: the key is left out)."""
    content = {key: value for key, value in {**PAGE, **changes}.items() if value is not None}
    (folder / "odd-page.yml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


def tasks(playbook: Path) -> list[dict[str, Any]]:
    """All tasks of a playbook in their order, also those in blocks."""
    plays = yaml.safe_load(playbook.read_text(encoding="utf-8"))
    listed = [play.get(key, []) for play in plays for key in ("pre_tasks", "tasks", "post_tasks")]
    return [task for one in listed for top in one for task in _within(top)]


def _within(task: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = [inner for key in ("block", "rescue", "always") for inner in task.get(key, [])]
    return [one for inner in blocks for one in _within(inner)] if "block" in task else [task]


def prefixes(playbook: Path) -> list[str]:
    """The steps' ids that the tasks' names begin with, each once, in order."""
    return list(dict.fromkeys(task["name"].split(" | ")[0] for task in tasks(playbook)))


def command_words(task: dict[str, Any]) -> list[str]:
    """Every word of a task's command."""
    argv = (task.get("ansible.builtin.command") or {}).get("argv", [])
    return re.findall(r"[^\s\[\]{}',\"]+", argv) if isinstance(argv, str) else [str(one) for one in argv]


@pytest.mark.parametrize("name", known_runbooks())
def test_a_runbook_speaks_of_conditions_that_there_are(name: str) -> None:
    assert set(known_runbook(name).conditions) <= {one.value for one in Condition}


def test_every_playbook_of_a_repair_has_its_page_and_every_page_its_playbook_or_a_reason() -> None:
    with_playbook = {one.id for one in known_runbooks().values() if one.file is not None}
    assert {one.stem for one in PLAYBOOKS.glob("*.yml")} == with_playbook


@pytest.mark.parametrize("runbook", [one for one in known_runbooks().values() if one.file], ids=lambda one: one.id)
def test_the_steps_of_a_page_are_those_of_its_playbook_in_their_order(runbook: Runbook) -> None:
    assert runbook.file is not None
    assert prefixes(runbook.file) == [one.id for one in runbook.steps]


@pytest.mark.parametrize("runbook", [one for one in known_runbooks().values() if one.file], ids=lambda one: one.id)
def test_a_playbook_refuses_to_run_without_what_was_proved(runbook: Runbook) -> None:
    assert runbook.file is not None
    first = tasks(runbook.file)[0]
    assert "repair_plan is defined" in first["ansible.builtin.assert"]["that"]


@pytest.mark.parametrize("runbook", [one for one in known_runbooks().values() if one.file], ids=lambda one: one.id)
def test_a_command_has_a_time_limit_and_nobody_types_into_it(runbook: Runbook) -> None:
    assert runbook.file is not None
    for task in tasks(runbook.file):
        assert "ansible.builtin.shell" not in task
        assert "ignore_errors" not in task
        if "ansible.builtin.command" in task:
            assert command_words(task)[0] == "timeout", task["name"]
            assert task["ansible.builtin.command"]["stdin"] == "", task["name"]


def flashrom_options(text: str) -> list[list[str]]:
    """The options of each call of flashrom in a text, whatever is quoted."""
    calls = re.findall(r"\bflashrom['\",]?(?:[ ,]+\S+)*", text.replace("\\\n", " "))
    return [re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", call) for call in calls]


def test_nothing_of_ours_writes_to_a_firmware_chip() -> None:
    folders = (paths.playbooks(), paths.roles(), paths.PACKAGE)
    files = [one for folder in folders for one in folder.rglob("*") if one.suffix in {".yml", ".sh", ".py", ".j2"}]
    calls = [options for one in files for options in flashrom_options(one.read_text(encoding="utf-8")) if options]
    assert {one for options in calls for one in options} == READING
    assert sorted(one for one in calls if len(one) > 1) == [["-p", "-c", "--flash-name"], ["-p", "-c", "-r"]]


@pytest.mark.parametrize(
    "text",
    ["flashrom -p internal -w image", "- flashrom --write=image", '["flashrom", "-E"]', "flashrom \\\n  --erase"],
)
def test_a_call_that_writes_would_be_seen(text: str) -> None:
    (options,) = flashrom_options(text)
    assert set(options) - READING


@pytest.mark.parametrize(("changes", "said"), CASES["a wrong page is named with what is wrong"])
def test_a_wrong_page_is_named_with_what_is_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ProvisionError) as caught:
        known_runbooks(page(tmp_path, **changes))
    assert caught.value.message == "Unable to read the page of runbook odd-page"
    assert said in caught.value.details
    assert str(tmp_path / "odd-page.yml") in caught.value.resolution


@pytest.mark.parametrize("text", ["- a list\n", "", "a: [\n", "text\n"])
def test_a_file_that_is_no_page_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.yml").write_text(text)
    with pytest.raises(ProvisionError, match="Unable to read the page of runbook odd"):
        known_runbooks(tmp_path)


def test_a_page_is_read_as_it_stands(tmp_path: Path) -> None:
    (found,) = known_runbooks(page(tmp_path)).values()
    assert found.model_dump(mode="json") == {"id": "odd-page", **PAGE, "playbook": "own", "reason": ""}


def test_an_unknown_runbook_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(InputError) as caught:
        known_runbook("ghost")
    assert "ghost-node" in caught.value.details
