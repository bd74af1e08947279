"""How Open WebUI is told who makes documents searchable, and the proof that they are, against a stand-in for both."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ansible.open_webui_stand_in import KEY, MODEL, Engine, WebUI, serving

PROGRAMS = Path(__file__).resolve().parents[3] / "roles/open_webui/programs"
MODULES = ("settings", "documents", "client")
BESIDE = ("prove", "browse", "webdriver")
GATEWAY = {"name": "gateway/litellm", "protocol": "openai", "url": "http://gateway:4000/v1", "model": "fast"}


@dataclass
class Lab:
    """Open WebUI, its engine, and the role's programs."""

    ui: WebUI
    engine: Engine
    engine_url: str
    client: Any
    settings: Any
    documents: Any

    @property
    def service(self) -> dict[str, str]:
        """What the file names."""
        return {"url": f"{self.engine_url}/v1", "model": MODEL, "key": KEY}

    def search(self, **other: str) -> tuple[list[str], list[str]]:
        """Write it; what was changed and told."""
        answer: tuple[list[str], list[str]] = self.settings.search(self.client, {**self.service, **other})
        return answer

    def wrong(self) -> list[str]:
        """What the proof finds."""
        wanted = {name: self.service[name] for name in ("url", "model")}
        return list(self.documents.finds(self.client, wanted, 10.0))


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Lab]:
    """All of it; the programs find each other as in a container."""
    monkeypatch.syspath_prepend(PROGRAMS)
    settings, documents, client = (importlib.import_module(name) for name in MODULES)
    monkeypatch.setattr(settings, "OWN", tmp_path / "connections.json")
    engine = Engine()
    with serving(engine.answer) as engine_server:
        ui = WebUI(engine_server.url)
        with serving(ui.answer) as server:
            yield Lab(ui, engine, engine_server.url, client.Client(server.url, 10.0), settings, documents)
    for name in (*MODULES, *BESIDE):
        sys.modules.pop(name, None)


# What is written.


def test_it_is_written_once_and_what_people_said_of_batches_stays(lab: Lab) -> None:
    changed, told = lab.search()
    assert changed == ["embeddings"]
    assert told == ["Documents that people added before were read whole: to be searched they have to be added again."]
    assert lab.ui.rag["openai_config"] == {"url": lab.service["url"], "key": KEY}
    assert (lab.ui.rag["RAG_EMBEDDING_ENGINE"], lab.ui.rag["RAG_EMBEDDING_MODEL"]) == ("openai", MODEL)
    batches = {name: lab.ui.rag[name] for name in lab.settings.BATCHES}
    assert list(batches.values()) == [16, False, 2]
    assert lab.ui.retrieval == {"BYPASS_EMBEDDING_AND_RETRIEVAL": False, "TOP_K": 1}
    lab.ui.writes.clear()
    assert lab.search() == ([], [])
    assert lab.ui.writes == []


def test_without_it_nothing_is_asked_and_nothing_changes(lab: Lab) -> None:
    assert lab.settings.search(lab.client, {}) == ([], [])
    assert lab.ui.writes == []


def test_a_new_key_is_written_and_nobody_has_to_do_anything(lab: Lab) -> None:
    lab.search()
    lab.ui.writes.clear()
    assert lab.search(key="another") == (["embeddings"], [])
    assert lab.ui.writes == ["embedding"]


def test_another_model_is_told_and_names_of_knowledge_are_indexed_again(lab: Lab) -> None:
    lab.search()
    lab.ui.writes.clear()
    changed, told = lab.search(model="seek")
    assert changed == ["embeddings"]
    assert len(told) == 1
    assert f"made searchable by {MODEL}, and now are by seek" in told[0]
    assert "Reindex Knowledge and Memory Vectors" in told[0]
    assert lab.ui.writes == ["embedding", "names"]
    lab.ui.indexes_names = False
    _, told = lab.search()
    assert "Names of knowledge cannot be searched" in told[1]
    assert "no room" in told[1]


# What the proof finds.


def test_a_document_is_found_again_and_nothing_is_left(lab: Lab) -> None:
    lab.search()
    assert lab.wrong() == []
    assert (lab.ui.files, lab.ui.knowledge, lab.ui.collections) == (set(), set(), {})
    (form,) = lab.ui.uploads
    assert b'name="file"; filename="proof.txt"' in form
    assert lab.documents.KEPT.encode() in form


def test_documents_that_are_read_whole_are_found(lab: Lab) -> None:
    lab.search()
    lab.ui.retrieval["BYPASS_EMBEDDING_AND_RETRIEVAL"] = True
    (line,) = lab.wrong()
    assert "read whole" in line
    assert (lab.ui.files, lab.ui.knowledge) == (set(), set())


def test_another_service_than_that_of_the_file_is_found(lab: Lab) -> None:
    lab.search()
    for rag in ({"RAG_EMBEDDING_MODEL": "mine"}, {"RAG_EMBEDDING_ENGINE": ""}, {"openai_config": {"url": "http://x"}}):
        with_it = {**lab.ui.rag, **rag}
        lab.ui.rag, before = with_it, lab.ui.rag
        (line,) = lab.wrong()
        assert f"instead of {MODEL} at {lab.service['url']}: run up with --full" in line
        lab.ui.rag = before


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("down", ["500, message=", "itself says: POST /embeddings: status 500", "out of memory"]),
        ("grows", ["dimension of 9, got 10", "vectors of these lengths: 11, 11"]),
    ],
)
def test_an_engine_that_fails_is_found_with_what_it_says(lab: Lab, mode: str, words: list[str]) -> None:
    lab.search()
    lab.engine.mode = mode
    with pytest.raises(Exception, match="cannot be made searchable") as raised:
        lab.wrong()
    for word in words:
        assert word in str(raised.value)
    assert (lab.ui.files, lab.ui.knowledge, lab.ui.collections) == (set(), set(), {})


def test_a_wrong_key_is_found_and_not_shown(lab: Lab) -> None:
    lab.search(key="wrong-canary")
    with pytest.raises(Exception, match="401") as raised:
        lab.wrong()
    assert "Invalid API Key: Bearer ********" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_an_engine_that_is_gone_is_found(lab: Lab) -> None:
    lab.search(url="http://127.0.0.1:9/v1")
    wanted = {"url": "http://127.0.0.1:9/v1", "model": MODEL}
    with pytest.raises(Exception, match="Connection refused"):
        list(lab.documents.finds(lab.client, wanted, 10.0))


def test_an_engine_that_has_one_vector_for_all_is_found(lab: Lab) -> None:
    lab.search()
    lab.engine.mode = "same"
    (line,) = lab.wrong()
    assert "have the same vector" in line


def test_a_search_in_vectors_of_another_length_is_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open WebUI says 200 and nothing then."""
    lab.search()
    processed = lab.ui.process
    routes = importlib.import_module("tests.unit.ansible.open_webui_stand_in").ROUTES

    def last_one(_: WebUI, asked: Any) -> tuple[int, Any]:
        said = processed(asked)
        if asked["content"] == lab.documents.OTHER:
            lab.engine.mode = "grows"
        return said

    monkeypatch.setitem(routes, "POST /api/v1/retrieval/process/file", last_one)
    (line,) = lab.wrong()
    assert "is not found: the vector of a search has not the length" in line
    assert "vectors of these lengths: 12, 12" in line


def proved(lab: Lab, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch, role: str = "admin") -> list[str]:
    """What the role's proof finds that is signed in with that role, and has nothing else to find."""
    prove = importlib.import_module("prove")
    for name in ("strangers", "offers", "talks"):
        monkeypatch.setattr(prove, name, lambda *_: iter(()))
    monkeypatch.setattr(prove, "wait_until_ready", lambda *_: None)
    monkeypatch.setattr(prove, "technical_signed_in", lambda _: "password")
    monkeypatch.setattr(prove, "Client", lambda *_: type("Asked", (), {"ask": lambda *_: {}, "role": role})())
    monkeypatch.setattr(prove.browse, "forget", lambda: None)
    monkeypatch.setattr(lab.documents, "finds", lambda _, wanted, __: iter([f"not found by {wanted['model']}"]))
    addresses = dict.fromkeys(("url", "door", "inside", "unit"), "x")
    wanted = {**addresses, "within_s": 1, "answer_s": 1, "models": ["fast"], "embeddings": asked, "browser": False}
    return list(prove.wrong(wanted, []))


@pytest.mark.parametrize("asked", [{"url": "http://engine/v1", "model": MODEL}, {}])
def test_the_role_s_proof_looks_for_a_document_where_the_file_names_who_finds_it(
    lab: Lab, asked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proved(lab, asked, monkeypatch) == ([f"not found by {MODEL}"] if asked else [])


def test_a_technical_user_that_lost_its_rights_is_told_before_it_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = proved(lab, {"url": "http://engine/v1", "model": MODEL}, monkeypatch, role="user")
    assert line.startswith("its technical user is no administrator any more: run up with --full")


# Which models people are offered.


def configs(lab: Lab) -> list[dict[str, Any]]:
    """What it says of each connection."""
    return [
        lab.ui.openai["OPENAI_API_CONFIGS"][str(place)] for place in range(len(lab.ui.openai["OPENAI_API_CONFIGS"]))
    ]


def test_people_are_offered_the_chats_of_a_gateway_that_has_more(lab: Lab) -> None:
    wanted = [{**GATEWAY, "models": ["fast", "slow"]}]
    assert lab.settings.connect(lab.client, wanted) == ["connections"]
    assert configs(lab) == [{"model_ids": ["fast", "slow"], "enable": True}]
    assert lab.settings.connect(lab.client, wanted) == []
    lab.ui.openai["OPENAI_API_CONFIGS"]["0"] |= {"model_ids": ["fast", "find"], "tags": ["mine"]}
    assert lab.settings.connect(lab.client, wanted) == ["connections"]
    assert configs(lab) == [{"model_ids": ["fast", "slow"], "tags": ["mine"], "enable": True}]


def test_a_list_that_the_file_gives_no_more_goes_and_that_of_people_stays(lab: Lab) -> None:
    lab.settings.connect(lab.client, [{**GATEWAY, "models": ["fast"]}])
    assert lab.settings.connect(lab.client, [GATEWAY]) == ["connections"]
    assert configs(lab)[0].get("model_ids") == []
    lab.ui.openai["OPENAI_API_CONFIGS"]["0"]["model_ids"] = ["fast"]
    assert lab.settings.connect(lab.client, [GATEWAY]) == []
    assert configs(lab)[0]["model_ids"] == ["fast"]


def test_what_earlier_versions_wrote_is_read(lab: Lab) -> None:
    """They kept the addresses alone: such a connection is ours, and goes when the file has another one."""
    lab.settings.OWN.write_text(json.dumps(["http://old/v1"]), encoding="utf-8")
    lab.ui.openai = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": ["http://old/v1", "http://theirs/v1"],
        "OPENAI_API_KEYS": ["", ""],
        "OPENAI_API_CONFIGS": {},
    }
    lab.settings.connect(lab.client, [GATEWAY])
    assert lab.ui.openai["OPENAI_API_BASE_URLS"] == [GATEWAY["url"], "http://theirs/v1"]
