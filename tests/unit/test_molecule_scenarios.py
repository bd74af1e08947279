"""Which scenarios a run takes: those whose inputs have changed, as long as there is time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inputs.digests import Digests
from tests.inputs.graph import Graph
from tests.inputs.parts import SCENARIOS
from tests.inputs.tree import Tree
from tests.molecule import scenarios, test_scenarios
from tests.molecule.scenarios import Record, reason_to_skip

REACHES = ("molecule",)

TREE = {
    "molecule/gateway/molecule.yml": "platforms: []",
    "molecule/gateway/converge.yml": "roles: [engine, gateway]",
    "molecule/gateway/lab.yml": "models: {}",
    "molecule/other/molecule.yml": "platforms: []",
    "molecule/shared/create.yml": "[]",
    "roles/gateway/tasks/main.yml": "- provision_ours: {}",
    "roles/engine/tasks/main.yml": "[]",
    "roles/base/tasks/main.yml": "[]",
    "roles/model_store/tasks/build.yml": "[]",
    "roles/other/tasks/main.yml": "[]",
    "src/provisioner/ansible/modules/provision_ours.py": "def main():\n    from provisioner.plan import make_plan\n",
    "src/provisioner/ansible/modules/provision_other.py": "",
    "src/provisioner/plan.py": "from provisioner import state",
    "src/provisioner/state.py": "",
    "src/provisioner/cli.py": "",
    "tests/requirements.txt": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def digest(tree: Path) -> str:
    files = Tree(tree)
    return files.digest_of(scenarios.inputs(Graph(files), "gateway"))


@pytest.mark.parametrize(
    "changed",
    [
        "molecule/gateway/converge.yml",
        "molecule/shared/create.yml",
        "roles/gateway/tasks/main.yml",
        "roles/engine/tasks/main.yml",
        "roles/base/tasks/main.yml",
        "roles/model_store/tasks/build.yml",
        "src/provisioner/ansible/modules/provision_ours.py",
        "src/provisioner/plan.py",
        "src/provisioner/state.py",
        "tests/requirements.txt",
    ],
)
def test_a_changed_input_changes_the_digest(tree: Path, changed: str) -> None:
    before = digest(tree)
    path = tree / changed
    path.write_text(f"{path.read_text()}# changed\n")
    assert digest(tree) != before


@pytest.mark.parametrize(
    "changed",
    [
        "roles/other/tasks/main.yml",
        "molecule/other/molecule.yml",
        "src/provisioner/ansible/modules/provision_other.py",
        "src/provisioner/cli.py",
    ],
)
def test_what_is_no_input_does_not(tree: Path, changed: str) -> None:
    before = digest(tree)
    path = tree / changed
    path.write_text(f"{path.read_text()}# changed\n")
    assert digest(tree) == before


@pytest.fixture(scope="module")
def graph(root: Path) -> Graph:
    """What leads to what in this checkout."""
    return Graph(Tree(root))


@pytest.mark.parametrize(
    ("scenario", "part"),
    [
        ("base", "values/state.py"),
        ("base", "plan.py"),
        ("base", "labfile/spec.py"),
        ("model_store", "labfile/loader.py"),
        ("model_store", "inventory.py"),
        ("model_store", "runner"),
        ("kokoro", "stamp.py"),
        ("kokoro", "agent.py"),
    ],
)
def test_what_a_scenario_goes_through_is_its_input(graph: Graph, scenario: str, part: str) -> None:
    place = f"src/provisioner/{part}"
    files = graph.tree.below(place) or (place,)
    assert set(files) <= scenarios.inputs(graph, scenario)


def test_a_new_file_changes_the_digest(tree: Path) -> None:
    before = digest(tree)
    (tree / "roles/gateway/tasks/more.yml").write_text("")
    assert digest(tree) != before


def test_every_scenario_is_found(tree: Path) -> None:
    assert sorted(scenarios.names(tree)) == ["gateway", "other"]


def test_a_record_survives(tmp_path: Path) -> None:
    assert scenarios.read_record(tmp_path, "gateway") is None
    scenarios.write_record(tmp_path / "new", "gateway", Record("abc", 61.5))
    assert scenarios.read_record(tmp_path / "new", "gateway") == Record("abc", 61.5)


@pytest.mark.parametrize(
    ("record", "elapsed_s", "taken"),
    [
        (None, 0, True),
        (None, 3000 - scenarios.USUAL_S, True),
        (None, 3000 - scenarios.USUAL_S + 1, False),
        (Record("now", 10), 0, False),
        (Record("before", 10), 2990, True),
        (Record("before", 10), 2991, False),
    ],
)
def test_a_run_takes_what_is_due_and_fits(record: Record | None, elapsed_s: float, taken: bool) -> None:
    reason = reason_to_skip("gateway", "now", record, elapsed_s=elapsed_s, budget_s=3000)
    assert (reason is None) is taken
    assert reason is None or "gateway" in reason


def test_a_lab_that_is_up_is_no_input_of_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has it up at another moment, and ran every scenario again that had passed before."""
    part = f"{SCENARIOS}::test_scenario[base]"
    before, naive = test_scenarios.scenario_digests().digest(part), Digests(test_scenarios.ROOT).digest(part)
    monkeypatch.setenv("INCUS_DIR", "/var/lib/somewhere")
    assert test_scenarios.scenario_digests().digest(part) == before
    assert Digests(test_scenarios.ROOT).digest(part) != naive


def test_what_failed_is_told_and_not_how_its_containers_are_deleted() -> None:
    log = "\n".join(
        [
            *(f"line {number}" for number in range(500)),
            "\x1b[2m\x1b[32m└─ Return code: 0 ────\x1b[0m",
            "\x1b[31mfatal: no such model\x1b[0m",
            "\x1b[2m\x1b[31m└─ Return code: 2 ────\x1b[0m",
            *(f"deleting {number}" for number in range(500)),
            "\x1b[2m\x1b[31m└─ Return code: 1 ────\x1b[0m",
        ]
    )
    told = scenarios.what_failed(log).splitlines()
    assert told[-3:] == ["└─ Return code: 0 ────", "fatal: no such model", "└─ Return code: 2 ────"]
    assert len(told) == scenarios.TOLD_LINES


@pytest.mark.parametrize("log", ["", "one\ntwo"])
def test_of_a_log_without_a_failed_step_the_end_is_told(log: str) -> None:
    assert scenarios.what_failed(log) == log
