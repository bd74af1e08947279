"""An answer is data from the engine to the page: no template, no tag, no control character, and no secret."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.hosts.fake import FakeProvider
from provisioner.page.page import lab_page
from provisioner.reconcile.configure import prove
from provisioner.reconcile.prove import FILE, ended_proofs, proofs_in, remember
from provisioner.reconcile.runner import LONGEST_SAID, PlaybookResult, TaskEvent, run_playbook
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.events import Event
from provisioner.values.facts import Proof, ProofStep, of_kind
from provisioner.values.state import Instance, Secret, Service
from tests.http_servers import HERE, QuietHandler, served
from tests.lab_pages import full_lab

CANARY = "sk-canary-0b71-5d2c"
ENGINE = Address("llama/llama_cpp")
HOSTILE = f"{{{{ 7*7 }}}} {{% raw %}}\x1b[31m\u202e<b onclick=x>hi</b>\n{CANARY} {{# no #}}" + "x" * 500
AT = "2026-11-28T12:00:00+00:00"


class Engine(QuietHandler):
    """Answers every completion with the hostile words."""

    def do_POST(self) -> None:
        """Answer as llama-server does."""
        self.content()
        choice = {"finish_reason": "length", "message": {"content": HOSTILE}}
        answer = {"model": "tiny", "choices": [choice], "usage": {"completion_tokens": 8}}
        self.give(200, json.dumps(answer).encode(), ("Content-Type", "application/json"))


@pytest.fixture
def port() -> Iterator[int]:
    with served(ThreadingHTTPServer(HERE, Engine)) as server:
        yield server.server_port


class Here(FakeProvider):
    """A host whose containers are this machine, for Ansible."""

    def connection_variables(self, name: str) -> dict[str, str]:
        """No way but Ansible's own."""
        assert name
        return {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def runs(folder: Path, play: dict[str, Any]) -> Callable[..., PlaybookResult]:
    """Ansible itself, on this play in the place of the proofs of all roles."""
    (folder / "verify.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")

    def run(
        playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], secrets: Sequence[Secret]
    ) -> PlaybookResult:
        file = str(folder / playbook)
        return run_playbook(file, inventory, folder=folder / "lab", on_task=on_task, secrets=secrets)

    return run


def test_an_answer_comes_to_the_page_as_it_is_and_does_nothing(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    secret = Secret("llama_cpp_api_key", CANARY)
    options = {"llama_cpp_alias": "tiny", "llama_cpp_port": port - 10000, "llama_cpp_api_key": secret}
    engine = Service("llama_cpp", "llama", "engine", options)
    role = {"ansible.builtin.include_role": {"name": "llama_cpp", "tasks_from": "verify_chat"}}
    run = runs(tmp_path, {"hosts": "llama", "gather_facts": False, "tasks": [role]})
    instance = Instance("llama", "box", "lab", "debian/13", services=(engine,))
    said: list[Event] = []
    facts = prove([instance], {"box": Here("box")}, run_playbook=run, emit=said.append)
    assert of_kind(facts, Proof) == [Proof(ENGINE)]
    asked, judged = of_kind(facts, ProofStep)
    assert (asked.asked, asked.words) == ("Ask for a completion", ""), "it has a key: what it said is hidden"
    heard = "(HTTP 200), tiny answers with 8 tokens, ended by length: {{ 7*7 }} {% raw %} [31m <b onclick=x>hi</b>"
    first, second = judged.words.split("\n")
    assert first.endswith(heard), judged
    assert second.startswith("******** {# no #}xxx")
    assert len(second) == LONGEST_SAID
    assert "7*7" not in str(said), "a terminal shows it nowhere"

    remember("lab", ended_proofs("verify", AT, facts), [secret])
    kept = paths.state("lab") / FILE
    for file in (kept, *(tmp_path / "lab").rglob("*.log")):
        assert CANARY not in file.read_text(encoding="utf-8"), file
    assert "7*7" not in "".join(log.read_text(encoding="utf-8") for log in (tmp_path / "lab").rglob("*.log"))
    content = replace(full_lab(), proofs=proofs_in("lab"))
    page = lab_page(content, [secret])
    assert "{{ 7*7 }} {% raw %} [31m &lt;b onclick=x&gt;hi&lt;/b&gt;<br>******** {# no #}" in page
    assert all(word not in page for word in (CANARY, "\x1b", "\u202e", "<b onclick"))
