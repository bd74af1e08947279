"""A revision of a repository as a folder, asked of a stand-in for the hub with answers of the real one's shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from provisioner.models import folders
from provisioner.models.hub import Hub, HubError, HubFile, UnreachableHubError
from provisioner.models.hub.folder import find_folder
from provisioner.models.sources import ModelPart
from provisioner.values.state import Secret
from tests.file_server import FileServer, Page, Seen, serving
from tests.folder_files import CONFIG, INDEX, SHARDS, config, folder_files, index_of, sibling_of, taken

TOKEN = "hf_CANARY31ab"
COMMIT = "5f" * 20
REPOSITORY = "acme/Small-exl3"
REVISION = "4.00bpw"


def whole(content: bytes, _seen: Seen) -> Page:
    return 200, {}, content


class StandIn:
    """A hub of one repository with one branch."""

    def __init__(self, server: FileServer) -> None:
        self.server = server
        self.files = folder_files()
        self.told: dict[str, dict[str, Any]] = {}
        self.hub = Hub(server.address.rpartition("/models")[0])
        server.pages[f"/api/models/{REPOSITORY}/revision/{REVISION}"] = self._page
        self.serve()

    def serve(self) -> None:
        """Have the files as they are now at their addresses."""
        for name, content in self.files.items():
            self.server.pages[f"/{REPOSITORY}/resolve/{COMMIT}/{name}"] = partial(whole, content)

    def _page(self, _seen: Seen) -> tuple[int, dict[str, str], bytes]:
        siblings = [sibling_of(name, content) | self.told.get(name, {}) for name, content in self.files.items()]
        return 200, {}, json.dumps({"sha": COMMIT, "siblings": siblings}).encode()

    def find(self) -> HubFile:
        """The folder as it is found now."""
        return find_folder(self.hub, REPOSITORY, REVISION)

    def refusal(self) -> HubError:
        """Why it is not taken."""
        with pytest.raises(HubError) as caught:
            self.find()
        return caught.value

    def downloads(self) -> list[str]:
        """The names of the files that were asked for."""
        return [one.path.rpartition("/")[2] for one in self.server.seen if "/resolve/" in one.path]


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("no_proxy", "*")
    with serving(FileServer()) as server:
        yield StandIn(server)


def test_a_revision_is_all_files_that_an_engine_reads_and_nothing_else(standin: StandIn) -> None:
    found = standin.find()
    parts = [ModelPart(found.file, found.sha256, found.size), *found.rest]
    assert parts == [
        ModelPart(name, hashlib.sha256(standin.files[name]).hexdigest(), len(standin.files[name]))
        for name in taken(standin.files)
    ]
    assert (found.revision, found.method, found.file) == (COMMIT, "exl3", CONFIG)
    assert standin.server.seen[0].path == f"/api/models/{REPOSITORY}/revision/{REVISION}?blobs=true"


def test_only_what_is_small_is_downloaded(standin: StandIn) -> None:
    standin.find()
    assert standin.downloads() == [CONFIG, "chat_template.jinja", INDEX, "tokenizer_config.json"]


def test_a_branch_may_have_slashes(standin: StandIn) -> None:
    pages = standin.server.pages
    pages[f"/api/models/{REPOSITORY}/revision/refs%2Fpr%2F1"] = pages[f"/api/models/{REPOSITORY}/revision/{REVISION}"]
    assert find_folder(standin.hub, REPOSITORY, "refs/pr/1").revision == COMMIT


def test_what_lies_in_folders_of_the_repository_is_left(standin: StandIn) -> None:
    standin.files["onnx/config.json"] = b"{"
    standin.files["original/consolidated.safetensors"] = b"x"
    assert standin.find() == StandIn(standin.server).find()


@pytest.mark.parametrize("method", [None, "awq", "gptq", "fp8", "exl2", "compressed-tensors"])
def test_the_method_is_that_of_its_configuration(standin: StandIn, method: str | None) -> None:
    standin.files[CONFIG] = config(method)
    standin.serve()
    assert standin.find().method == (method or "none")


def test_a_method_of_a_model_with_eyes_is_in_its_text_part(standin: StandIn) -> None:
    standin.files[CONFIG] = json.dumps({"text_config": json.loads(config("awq"))}).encode()
    standin.serve()
    assert standin.find().method == "awq"


def test_a_small_file_that_is_not_what_git_says_is_refused(standin: StandIn) -> None:
    standin.told["tokenizer_config.json"] = {"blobId": "c" * 40}
    assert "what came as tokenizer_config.json of acme/Small-exl3 is not what the hub says" in standin.refusal().message
    standin.told = {"tokenizer_config.json": {"blobId": None}}
    assert "what came as tokenizer_config.json" in standin.refusal().message


def test_a_configuration_in_lfs_is_read_and_held_against_its_hash(standin: StandIn) -> None:
    good = {"sha256": hashlib.sha256(standin.files[CONFIG]).hexdigest(), "size": len(standin.files[CONFIG])}
    standin.told[CONFIG] = {"blobId": "b" * 40, "lfs": good}
    assert standin.find().method == "exl3"
    standin.told[CONFIG] = {"lfs": {**good, "sha256": "0" * 64}}
    assert "what came as config.json" in standin.refusal().message


def test_a_small_file_that_is_large_is_not_downloaded(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.models.hub.folder.SMALL_BYTES", 3_000_000)
    standin.told["chat_template.jinja"] = {"size": 3_000_001}
    assert "has 3000001 bytes, and 3 MB are the most" in standin.refusal().message
    assert "chat_template.jinja" not in standin.downloads()
    for size in (None, -5, True, "14", [14]):
        standin.told["chat_template.jinja"] = {"size": size}
        assert "a size that the hub does not tell" in standin.refusal().message


def test_small_files_that_drip_have_one_end_together(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.models.hub.folder.WHOLE_DEADLINE_S", 0.0)
    assert "does not come within 0 seconds" in standin.refusal().message


def test_a_file_that_does_not_end_is_not_read_to_its_end(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.models.hub.folder.SMALL_BYTES", 1 << 10)
    standin.files["chat_template.jinja"] = b"x" * (1 << 20)
    standin.serve()
    standin.told["chat_template.jinja"] = {"size": 14}
    assert "what came as chat_template.jinja" in standin.refusal().message


def test_weights_without_a_hash_are_refused(standin: StandIn) -> None:
    standin.told[SHARDS[0]] = {"lfs": {"sha256": "x", "size": 1}}
    assert f"does not say what {SHARDS[0]}" in standin.refusal().message


def test_a_folder_that_is_none_is_refused_with_what_is_there(standin: StandIn) -> None:
    del standin.files[CONFIG]
    told = standin.refusal()
    assert f"{REPOSITORY} at {REVISION} is no model that is a folder: there is no config.json in it" in told.message
    assert "there: .gitattributes, README.md" in told.hint
    standin.files = {CONFIG: config(None), "small-Q4_K_M.gguf": b"left"}
    told = standin.refusal()
    assert "there is no *.safetensors in it" in told.message
    assert told.hint == "there: config.json, small-Q4_K_M.gguf"


def test_an_index_that_names_a_missing_file_is_refused(standin: StandIn) -> None:
    standin.files[INDEX] = index_of(*SHARDS, "model-00003-of-00003.safetensors")
    standin.serve()
    assert f"its {INDEX} names model-00003-of-00003.safetensors, which is not there" in standin.refusal().message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (CONFIG, b"<html>", "its config.json is no JSON"),
        (CONFIG, b"[]", "its config.json is no JSON object"),
        (CONFIG, b'{"quantization_config": {"bits": 4}}', "names no quant_method"),
        (CONFIG, b'{"quantization_config": {"quant_method": "x\\ny"}}', "names no quant_method"),
        (INDEX, b"\xff\xfe", f"its {INDEX} is no JSON"),
        (INDEX, b'{"weight_map": []}', "has no weight_map"),
    ],
)
def test_a_damaged_file_is_told(standin: StandIn, name: str, content: bytes, words: str) -> None:
    standin.files[name] = content
    standin.serve()
    assert words in standin.refusal().message


@pytest.mark.parametrize("name", ["model (1).safetensors", "-model.safetensors", "tokenizer\n.json", "a b.jinja"])
def test_a_name_that_is_no_plain_one_is_refused(standin: StandIn, name: str) -> None:
    standin.files[name] = b"x"
    assert f"{name!r} cannot be the name of a model's file" in standin.refusal().message


def test_more_files_than_any_model_has_are_refused(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    assert "it has 7 files, and no model has more than 3" in standin.refusal().message


def test_a_revision_that_is_not_there_is_told_with_those_that_are(standin: StandIn) -> None:
    headers = {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id: 9bpw"}
    standin.server.pages[f"/api/models/{REPOSITORY}/revision/9bpw"] = lambda _seen: (404, headers, b"{}")
    refs = {"branches": [{"name": "main"}, {"name": "4.00bpw"}], "tags": [{"name": "v1"}], "converts": []}
    standin.server.pages[f"/api/models/{REPOSITORY}/refs"] = lambda _seen: (200, {}, json.dumps(refs).encode())
    with pytest.raises(HubError, match="acme/Small-exl3 has no revision 9bpw") as caught:
        find_folder(standin.hub, REPOSITORY, "9bpw")
    assert caught.value.hint == "there: 4.00bpw, main, v1"
    standin.server.pages[f"/api/models/{REPOSITORY}/refs"] = lambda _seen: (500, {}, b"")
    with pytest.raises(HubError, match="has no revision 9bpw") as caught:
        find_folder(standin.hub, REPOSITORY, "9bpw")
    assert caught.value.hint == ""


def test_a_repository_that_is_not_there_is_told(standin: StandIn) -> None:
    headers = {"X-Error-Code": "RepoNotFound"}
    standin.server.pages["/api/models/acme/none/revision/main"] = lambda _seen: (404, headers, b"{}")
    with pytest.raises(HubError, match="the hub has no repository acme/none"):
        find_folder(standin.hub, "acme/none", "main")


def test_a_small_file_that_does_not_come_is_told(standin: StandIn) -> None:
    standin.server.pages[f"/{REPOSITORY}/resolve/{COMMIT}/{CONFIG}"] = lambda _seen: (503, {}, b"")
    assert isinstance(standin.refusal(), UnreachableHubError)


def test_the_token_goes_to_the_hub_alone(standin: StandIn) -> None:
    standin.hub = Hub(standin.hub.endpoint, Secret("t", TOKEN))
    with serving(FileServer()) as other:
        there = other.address.rpartition("/models")[0] + "/config"
        other.pages["/config"] = lambda _seen: (200, {}, standin.files[CONFIG])
        place = f"/{REPOSITORY}/resolve/{COMMIT}/{CONFIG}"
        standin.server.pages[place] = lambda _seen: (302, {"Location": there}, b"")
        assert standin.find().method == "exl3"
        assert {one.headers.get("Authorization") for one in standin.server.seen} == {f"Bearer {TOKEN}"}
        assert [one for one in other.seen if "Authorization" in one.headers] == []
