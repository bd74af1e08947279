"""The programs of role ``ollama``: how models come and go, what their proof tells, which routes ask for no key."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.inside import exposure
from provisioner.values import paths
from tests.doubles.ollama.archive import registry_with
from tests.doubles.ollama.running import ollama
from tests.gguf_bytes import gguf_bytes, model_bytes
from tests.processes import completed
from tests.scenario_programs import module_at

PROGRAMS = paths.roles() / "ollama/programs"
MODELS = module_at(PROGRAMS / "models.py")
PROVE = module_at(PROGRAMS / "prove.py")
GGUF = model_bytes(context_length=2048)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A stand-in of the server, with a registry that has one model; its address."""
    registry_with(tmp_path / "registry", GGUF + b"\0", "small", "0.6b")
    settings = {"STAND_IN_REGISTRY": str(tmp_path / "registry"), "STAND_IN_VRAM_SHARE": "0.5"}
    with ollama(tmp_path, OLLAMA_MODELS=str(tmp_path / "store"), **settings) as (_, address):
        yield address


def asked(server: str, folder: Path, *models: Path, pull: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    """What the program is told: models named by their files."""
    (folder / "store").mkdir(exist_ok=True)
    return {
        "url": server,
        "models": [{"name": file.stem, "path": str(file), "context": 512} for file in models],
        "pull": list(pull),
        "record": str(folder / "record.json"),
        "store": str(folder / "store"),
        "stall_s": 30,
    }


def brought(told: dict[str, Any]) -> list[str]:
    """What the program says it has done."""
    return list(MODELS.bring(told))


def listed(server: str) -> set[str]:
    """The models that the server has."""
    return set(MODELS.Ollama(server, 30).listed())


def gguf(folder: Path, name: str, content: bytes = GGUF) -> Path:
    """A model's file."""
    file = folder / name
    file.write_bytes(content)
    return file


def test_a_file_is_imported_once_and_anew_when_it_is_another(server: str, tmp_path: Path) -> None:
    told = asked(server, tmp_path, gguf(tmp_path, "own.gguf"))
    assert brought(told) == ["imported own"]
    assert listed(server) == {"own:latest"}
    assert brought(told) == []
    gguf(tmp_path, "own.gguf", GGUF + b"\0\0")
    assert brought(told) == ["imported own"]
    told["models"][0]["context"] = 1024
    assert brought(told) == ["imported own"]
    assert brought(told) == []


def test_of_an_imported_file_no_second_copy_is_left(server: str, tmp_path: Path) -> None:
    """Ollama writes the file anew (server/create.go, copyLayerWithLlamaQuantize) and would keep both for an hour."""
    brought(asked(server, tmp_path, gguf(tmp_path, "own.gguf")))
    manifests = [
        file.read_text(encoding="utf-8") for file in (tmp_path / "store/manifests").rglob("*") if file.is_file()
    ]
    blobs = [file.name.replace("-", ":") for file in (tmp_path / "store/blobs").iterdir()]
    assert blobs
    assert [blob for blob in blobs if not any(blob in manifest for manifest in manifests)] == []


def test_a_manifest_beside_the_file_saves_counting(tmp_path: Path) -> None:
    file = gguf(tmp_path, "own.gguf")
    counted = hashlib.sha256(GGUF).hexdigest()
    assert MODELS.digest_of(file) == f"sha256:{counted}"
    (tmp_path / "MANIFEST.sha256").write_text(f"{'a' * 64}  other.gguf\n{'b' * 64}  own.gguf\n", encoding="utf-8")
    assert MODELS.digest_of(file) == f"sha256:{'b' * 64}"


def test_a_file_that_is_not_what_its_manifest_says_is_refused(server: str, tmp_path: Path) -> None:
    file = gguf(tmp_path, "own.gguf")
    (tmp_path / "MANIFEST.sha256").write_text(f"{'b' * 64}  own.gguf\n", encoding="utf-8")
    with pytest.raises(MODELS.FailedError, match=r"Unable to have Ollama serve own: take .*: HTTP 400"):
        brought(asked(server, tmp_path, file))
    assert listed(server) == set()


def test_what_is_no_gguf_is_refused_with_the_servers_words(server: str, tmp_path: Path) -> None:
    with pytest.raises(MODELS.FailedError, match="Unable to have Ollama serve own"):
        brought(asked(server, tmp_path, gguf(tmp_path, "own.gguf", b"no model at all")))
    assert listed(server) == set()


def test_what_has_no_room_is_refused_before_it_is_sent(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = MODELS.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(MODELS.shutil, "disk_usage", lambda _: usage._replace(free=2 * len(GGUF) - 1))
    with pytest.raises(MODELS.FailedError, match="bytes left, and importing it takes"):
        brought(asked(server, tmp_path, gguf(tmp_path, "own.gguf")))
    assert not list((tmp_path / "store/blobs").glob("sha256-*"))


def test_a_fetched_model_has_the_name_of_the_file_alone(server: str, tmp_path: Path) -> None:
    pull = {"name": "quick", "model": "library/small:0.6b"}
    assert brought(asked(server, tmp_path, pull=(pull,))) == ["pulled quick"]
    assert listed(server) == {"quick:latest"}
    digest = MODELS.Ollama(server, 30).listed()["quick:latest"]
    assert brought(asked(server, tmp_path, pull=({**pull, "digest": digest},))) == ["pulled quick"]
    assert brought(asked(server, tmp_path, pull=({**pull, "digest": digest},))) == []
    with pytest.raises(MODELS.FailedError, match=f"its registry has {digest} by now, and digest says cc"):
        brought(asked(server, tmp_path, pull=({**pull, "digest": "c" * 64},)))
    assert listed(server) == {"quick:latest"}


def test_a_fetched_model_may_keep_its_own_name(server: str, tmp_path: Path) -> None:
    registry_with(tmp_path / "registry", GGUF + b"\0", "small", "latest")
    pull = {"name": "small", "model": "small"}
    assert brought(asked(server, tmp_path, pull=(pull,))) == ["pulled small"]
    assert brought(asked(server, tmp_path, pull=(pull,))) == []
    assert listed(server) == {"small:latest"}


def test_what_the_registry_does_not_have_is_told(server: str, tmp_path: Path) -> None:
    with pytest.raises(MODELS.FailedError, match="Unable to have Ollama serve none: it said: pull model manifest"):
        brought(asked(server, tmp_path, pull=({"name": "none", "model": "nobody/none"},)))


def test_it_ends_with_one_line_however_many_others_have_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what it ended with, the last line is told."""

    def refused(_: Any) -> list[str]:
        raise MODELS.FailedError("Unable to have Ollama serve none: it said: no\nroom")

    monkeypatch.setattr(MODELS, "bring", refused)
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    with pytest.raises(SystemExit) as ended:
        MODELS.main()
    assert ended.value.code == "Unable to have Ollama serve none: it said: no room"


def test_only_what_the_role_has_brought_is_deleted_or_replaced(server: str, tmp_path: Path) -> None:
    own, other = gguf(tmp_path, "own.gguf"), gguf(tmp_path, "other.gguf", GGUF + b"\0")
    brought(asked(server, tmp_path, own, other))
    MODELS.Ollama(server, 30).copy("own", "mine")
    assert brought(asked(server, tmp_path, own)) == ["deleted other"]
    assert listed(server) == {"own:latest", "mine:latest"}
    with pytest.raises(MODELS.FailedError, match="it has a model of that name which the role did not bring"):
        brought(asked(server, tmp_path, own, gguf(tmp_path, "mine.gguf")))


def test_a_run_that_was_killed_is_gone_on_with(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is there already, and the record does not say of what it was made."""
    told = asked(server, tmp_path, gguf(tmp_path, "own.gguf"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MODELS, "_drop_unused", killed)
        with pytest.raises(KeyboardInterrupt):
            brought(told)
    assert listed(server) == {"own:latest"}
    assert brought(told) == ["imported own"]
    assert brought(told) == []


@pytest.mark.parametrize("name", ["small", "library/small:latest", "registry.ollama.ai/library/small"])
def test_a_model_of_the_usual_registry_is_listed_by_its_short_name(name: str) -> None:
    assert MODELS.full_name(name) == "small:latest"
    assert MODELS.full_name(f"hf.co/{name}") == f"hf.co/{name}" + ("" if ":" in name else ":latest")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("a.gguf", ["a.gguf"]),
        ("a-00001-of-00003.gguf", ["a-00001-of-00003.gguf", "a-00002-of-00003.gguf", "a-00003-of-00003.gguf"]),
        ("a-00002-of-00003.gguf", ["a-00002-of-00003.gguf"]),
    ],
)
def test_a_model_of_several_files_is_all_of_them(name: str, names: list[str]) -> None:
    assert [file.name for file in MODELS.files_of(Path("/srv") / name)] == names


def test_the_proof_tells_how_an_answer_ended_and_where_the_model_lies(server: str, tmp_path: Path) -> None:
    brought(asked(server, tmp_path, gguf(tmp_path, "own.gguf")))
    question = {"url": server, "door": server, "key": "", "models": ["own", "none"], "within_s": 30}
    own, none = PROVE.proofs(question)
    assert (own["status"], own["ended"], own["kind"]) == (200, "length", "chat")
    assert own["tokens"] > 0
    assert own["said"].startswith(f'asked "Say hello." it answers with {own["tokens"]} tokens, ended by length: ')
    assert not own["said"].endswith(": "), "the words of the answer"
    assert 0 < own["on_card"] < own["size"]
    assert none["error"].startswith("it does not know none: HTTP 404")
    (silent,) = PROVE.proofs({**question, "url": "http://127.0.0.1:1", "models": ["own"]})
    assert silent["error"].startswith("nobody answers")


def test_a_model_of_embeddings_is_asked_for_a_vector(server: str, tmp_path: Path) -> None:
    sizes = {"llama.context_length": 512, "llama.embedding_length": 16, "llama.pooling_type": 1}
    finder = gguf_bytes({"general.architecture": "llama", **sizes})
    brought(asked(server, tmp_path, gguf(tmp_path, "find.gguf", finder)))
    question = {"url": server, "door": server, "key": "", "models": ["find"], "within_s": 30}
    (proof,) = PROVE.proofs(question)
    assert (proof["kind"], proof["status"], proof["ended"]) == ("embedding", 200, "stop")
    assert proof["said"] == "a vector of 16 numbers"


def test_where_a_model_lies_is_seen_of_one_that_is_let_go_at_once(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought(asked(server, tmp_path, gguf(tmp_path, "own.gguf")))
    question = {"url": server, "door": server, "key": "", "models": ["own"], "within_s": 30}
    PROVE.asked_of(server, "/api/generate", {"model": "own", "keep_alive": 0}, 30)
    assert PROVE.place_of(question, "own") == {}
    answered = {"status": 200, "ended": "stop", "tokens": 1}
    monkeypatch.setattr(PROVE, "_chatted", lambda *_: answered)  # and the model has gone again
    (own,) = PROVE.proofs(question)
    assert 0 < own["on_card"] < own["size"]


def test_a_busy_server_is_asked_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[int, dict[str, Any]]] = [(503, {}), (200, {"choices": []})]
    monkeypatch.setattr(PROVE, "asked_of", lambda *_: answers.pop(0))
    monkeypatch.setattr(PROVE, "AGAIN_S", 0.01)
    assert PROVE.answered({"door": "", "key": "", "within_s": 5}, "/", {})[0] == 200
    answers = [(503, {})]
    assert PROVE.answered({"door": "", "key": "", "within_s": 0}, "/", {})[0] == 503


def test_the_routes_of_its_page_answer_everybody_without_a_switch(server: str) -> None:
    page = yaml.safe_load((paths.roles() / "ollama/meta/opens.yml").read_text(encoding="utf-8"))
    routes = [route.split(" ", 1) for route in page["asks"]]
    door = {"name": "ollama", "url": server, "routes": routes, "ways": {exposure.PLAIN: None}, "timeout_s": 10}
    (told,) = exposure.look({"doors": [door], "most": 100, "within_s": 60})["doors"]
    answered = [f"{method} {path}" for method, path, _, _ in told["answered"]]
    assert len(answered) > 20
    assert {"GET /api/tags", "POST /api/chat", "POST /api/pull", "POST /v1/chat/completions"} <= {*answered}


def test_the_program_ends_with_what_failed(tmp_path: Path) -> None:
    told = asked("http://127.0.0.1:1", tmp_path)
    done = completed([sys.executable, str(PROGRAMS / "models.py")], given=json.dumps(told), timeout_s=30)
    assert done.returncode == 1
    assert done.stderr.startswith("Unable to ask Ollama for its models:")


def test_where_a_model_lies_is_seen_while_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With others asking for another one it is gone as soon as it has answered, and loaded by itself it would wait."""
    looked, over = threading.Event(), threading.Event()

    def place(*_: object) -> dict[str, int]:
        looked.set()
        return {} if over.is_set() else {"size": 5, "on_card": 3}

    def answer() -> dict[str, int]:
        assert looked.wait(10)
        over.set()
        return {"status": 200}

    monkeypatch.setattr(PROVE, "place_of", place)
    assert PROVE.watched({}, "own", answer) == ({"status": 200}, {"size": 5, "on_card": 3})
