"""A play that runs in the tests' own process comes to what ``ansible-playbook`` comes to."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.ansible_environment import ansible_environment
from tests.plays import rendered, rescued, run_cases, run_tasks
from tests.processes import completed

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "roles/llama_cpp/templates/models.ini.j2"
MODEL = {"alias": "twice", "path": "/srv/models/a/large über.gguf", "context": 512}
MANIFEST = {"paths": {"/srv/models/a/MANIFEST.sha256": {"sha256": "0123"}}}


def test_a_refusal_and_a_file_are_those_of_ansible_playbook(tmp_path: Path) -> None:
    preflight = rescued({"include_role": {"name": "llama_cpp", "tasks_from": "preflight_models"}})
    text = {"set_fact": {"text": rendered(TEMPLATE)}}
    case = {"llama_cpp_models": [MODEL, MODEL], "llama_cpp_context": 1024, "__llama_cpp_seen": MANIFEST}
    facts = run_cases(ROOT, tmp_path, "llama_cpp", {"case": case}, [preflight, text])["case"]
    assert "`models` names one twice" in facts["said"]
    assert "large über.gguf" in facts["text"]

    (play,) = yaml.safe_load((tmp_path / "play.yml").read_text(encoding="utf-8"))
    compare = {"assert": {"that": "said == wanted"}, "vars": {"wanted": facts["said"]}}
    write = {"template": {"src": str(TEMPLATE), "dest": f"{tmp_path}/models.ini", "mode": "0600"}}
    play["tasks"] = [preflight, compare, write]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    done = completed(
        ["ansible-playbook", "play.yml", "-i", "hosts.yml"],
        cwd=tmp_path,
        env={**os.environ, **ansible_environment(ROOT)},
        timeout_s=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert (tmp_path / "models.ini").read_bytes() == facts["text"].encode()


def test_each_host_sees_a_task_anew(tmp_path: Path) -> None:
    cases = {name: {"llama_cpp_alias": name} for name in ("one", "two")}
    tasks = [{"set_fact": {"alias": "{{ llama_cpp_alias }}"}}, {"set_fact": {"twice": "{{ alias * 2 }}"}}]
    facts = run_cases(ROOT, tmp_path, "llama_cpp", cases, tasks)
    assert facts == {"one": {"alias": "one", "twice": "oneone"}, "two": {"alias": "two", "twice": "twotwo"}}


def test_a_task_that_fails_fails_the_test_and_the_process_is_as_before(tmp_path: Path) -> None:
    before = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), os.get_inheritable(1)]
    with pytest.raises(AssertionError, match="on purpose"):
        run_tasks(ROOT, tmp_path, [{"fail": {"msg": "on purpose"}}])
    assert [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT), os.get_inheritable(1)] == before
