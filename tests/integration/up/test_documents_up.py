"""Documents of a chat, whole: a real Open WebUI has them made searchable by a real engine, through a gateway.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY, Lab, sh
from tests.integration.up.webdriver import program
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "papers"
ADMIN, PASSWORD = "penny@home.example", "CANARY3-{{7*7}}-$x"
PORT = 8090
FILE = lab_text("documents")
GATEWAY, ENGINE = "papers-gateway/litellm", "papers-embeds/llama_cpp"
TEXT = "The boiler is serviced every second autumn by the people from the harbour."
CHROMA = "/var/lib/open-webui/vector_db/chroma.sqlite3"


def write(lab: Lab, who: str) -> None:
    """The lab's file, with who makes documents searchable."""
    lab.write(FILE.replace("WHO", who))
    with (lab.folder / "secrets.env").open("a", encoding="utf-8") as file:
        file.write(f"webui_password={PASSWORD}\n")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: what its first ``up`` said is its first run."""
    lab = Lab(tmp_path_factory.mktemp(NAME), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    write(lab, GATEWAY)
    with lab.brought_up():
        yield lab


@pytest.fixture
def penny(lab: Lab) -> Any:
    """The administrator of the file, signed in."""
    client = program("client").Client(f"http://{lab.address('papers-web')}:{PORT}", 120.0)
    client.sign_in(ADMIN, PASSWORD)
    return client


def kept(lab: Lab) -> set[str]:
    """The collections of its vectors, without that of the names of knowledge."""
    names_in = "SELECT name FROM collections"
    query = f"import sqlite3; names = sqlite3.connect('{CHROMA}').execute('{names_in}')"
    names = sh(lab, "papers-web", f'python3 -c "{query}; print(*(row[0] for row in names))"')
    return set(names.split()) - {"knowledge-bases"}


def found(penny: Any, file: str) -> list[str]:
    """What a search in a document finds."""
    asked = {"collection_name": f"file-{file}", "query": "Who services the boiler?"}
    documents: list[list[str]] = penny.ask("POST", "/api/v1/retrieval/query/doc", asked)["documents"]
    return documents[0]


def test_it_is_proved_and_leaves_nothing_and_the_next_run_has_nothing_to_do(lab: Lab) -> None:
    assert lab.runs[0].checks["papers-web/open_webui"] is True
    lab.succeeded("plan", "--detailed-exitcode")
    lab.succeeded("verify")
    assert kept(lab) == set()
    assert sh(lab, "papers-web", "ls /var/lib/open-webui/uploads") == ""


def test_people_are_offered_chats_alone(penny: Any) -> None:
    assert [model["id"] for model in penny.mapping("GET", "/api/models")["data"]] == ["fast"]


def test_a_document_of_people_is_made_searchable_through_the_gateway(lab: Lab, penny: Any) -> None:
    now = penny.mapping("GET", "/api/v1/retrieval/embedding")
    assert (now["RAG_EMBEDDING_MODEL"], now["openai_config"]["key"]) == ("find", MASTER_KEY)
    file = penny.upload("/api/v1/files/?process_in_background=false", "house.txt", TEXT)["id"]
    about = penny.mapping("GET", f"/api/v1/files/{file}")["data"]
    assert (about["status"], about.get("error")) == ("completed", None)
    assert found(penny, file) == [TEXT]
    assert kept(lab) == {f"file-{file}"}


def test_an_engine_that_is_gone_is_found_with_what_is_said(lab: Lab) -> None:
    sh(lab, "papers-embeds", "systemctl stop llama-server switch-llama-server")
    failed = lab.provision("verify", "papers-web", "--json")  # of all, the engine's own proof would fail before it
    sh(lab, "papers-embeds", "systemctl start llama-server switch-llama-server")
    said = " ".join(failed.out.split())
    assert failed.code != 0
    assert "a document cannot be made searchable" in said
    assert "/v1 itself says: POST /embeddings: status 5" in said


def test_the_engine_itself_is_asked_where_the_file_says_so_and_people_are_told(lab: Lab, penny: Any) -> None:
    write(lab, ENGINE)
    lab.succeeded("up", "--yes")
    logs = "".join(log.read_text(encoding="utf-8") for log in (lab.folder / ".provision").rglob("*.log"))
    assert "Documents were made searchable by find, and now are by vectors" in " ".join(logs.split())
    now = penny.mapping("GET", "/api/v1/retrieval/embedding")
    assert now["openai_config"] == {"url": "http://papers-embeds.incus:8080/v1", "key": ENGINE_KEY}
    (document,) = penny.mapping("GET", "/api/v1/files/")["items"]
    assert found(penny, document["id"]) == [TEXT], "it is the same model"
    lab.succeeded("plan", "--detailed-exitcode")


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of("CANARY", MASTER_KEY, ENGINE_KEY)
