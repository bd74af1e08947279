"""The verbs ``runbook list`` and ``runbook show``: a page for people, the same for programs, and exit codes."""

from __future__ import annotations

import click
import pytest

from provisioner.cli import runbook
from provisioner.cli.cluster_check import check
from provisioner.cli.cluster_forget import forget
from provisioner.cli.cluster_rejoin import rejoin
from provisioner.cli.runbook import RUNS, run
from provisioner.cluster.rejoin import RejoinOptions
from provisioner.cluster.runbooks import known_runbooks
from tests.unit.cli.conftest import World


def test_the_list_names_every_runbook_with_what_it_is_for(world: World) -> None:
    answer = world.done("runbook", "list")
    listed = {line.split()[0] for line in answer.out.splitlines()[1:] if line and not line.startswith("One of")}
    assert listed == set(known_runbooks())
    (result,) = world.command("runbook", "list", "--json").of("result")
    assert [one["id"] for one in result["runbooks"]] == list(known_runbooks())


@pytest.mark.parametrize("name", known_runbooks())
def test_a_page_tells_everything_and_programs_get_the_same(world: World, name: str) -> None:
    answer = world.command("runbook", "show", name)
    (result,) = world.command("runbook", "show", name, "--json").of("result")
    told = " ".join(answer.out.split())
    page = result["runbook"]
    assert answer.code == 0
    assert max(len(line) for line in answer.out.splitlines()) <= 120
    for text in (page["title"], page["symptom"], page["danger"], page["undo"], page["after"]):
        assert " ".join(text.split()) in told
    for number, step in enumerate(page["steps"], 1):
        kind = "changes" if step["changes"] else "looks"
        assert f"{number}. {step['id']} ({kind}): {' '.join(step['does'].split())}" in told
    for sentence in page["preconditions"]:
        assert " ".join(sentence.split()) in told


NODE_WANTED = ("ghost-node", "power-on-check", "retired-node", "removed-node-leftovers")


@pytest.mark.parametrize(
    "line", ["show stale", "run lost-quorum --host box", *(f"run {name} --host root@192.0.2.1" for name in NODE_WANTED)]
)
def test_wrong_usage_says_what_is_missing(world: World, line: str) -> None:
    assert world.command("runbook", *line.split()).ended(64) == world.snapshot


def test_a_runbook_takes_what_its_advice_tells_people_to_say(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = list[RejoinOptions]()

    def run_rejoin(_session: object, _host: object, options: RejoinOptions, **_: object) -> int:
        chosen.append(options)
        return 0

    monkeypatch.setattr(runbook, "run_rejoin", run_rejoin)
    words = ("--host", "root@192.0.2.1", "--node", "pve3", "--give-up", "105", "--give-up", "106", "--restore-sshd")
    assert world.command("runbook", "run", "stale-corosync-rejoin", *words).code == 0
    assert chosen == [RejoinOptions("pve3", frozenset({105, 106}), restores_sshd=True)]


def test_runbook_run_has_the_options_of_the_verbs_whose_code_it_runs() -> None:
    own = {one.name for one in run.params}
    verbs = {one.name for verb in (rejoin, forget, check) for one in verb.params if isinstance(one, click.Option)}
    assert verbs - own == {"html"}, "a page of the check is written by the check"


def test_every_runbook_can_be_run() -> None:
    assert set(RUNS) == set(known_runbooks())
