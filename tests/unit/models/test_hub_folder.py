"""A revision of a repository as a folder, asked of a stand-in for the hub with answers of the real one's shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.models import folders
from provisioner.models.hub import Hub, HubError, HubFile, UnreachableHubError, find_folder
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


def test_a_configuration_in_lfs_is_read_and_held_against_its_hash(standin: StandIn) -> None:
    good = {"sha256": hashlib.sha256(standin.files[CONFIG]).hexdigest(), "size": len(standin.files[CONFIG])}
    standin.told[CONFIG] = {"blobId": "b" * 40, "lfs": good}
    assert standin.find().method == "exl3"


def test_small_files_that_drip_have_one_end_together(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.models.hub.WHOLE_DEADLINE_S", 0.0)
    assert "does not come within 0 seconds" in standin.refusal().message


def test_more_files_than_any_model_has_are_refused(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 3)
    assert "it has 7 files, and no model has more than 3" in standin.refusal().message


SMALL_SIZE = 3_000_000
ODD_SIZES = (None, -5, True, "14", [14])
REFUSED: dict[str, tuple[dict[str, bytes | None], dict[str, dict[str, Any]]]] = {
    "not what git says": ({}, {"tokenizer_config.json": {"blobId": "c" * 40}}),
    "git says nothing": ({}, {"tokenizer_config.json": {"blobId": None}}),
    "not what lfs says": ({}, {CONFIG: {"lfs": {"sha256": "0" * 64, "size": len(folder_files()[CONFIG])}}}),
    "large": ({}, {"chat_template.jinja": {"size": SMALL_SIZE + 1}}),
    **{f"size {size!r}": ({}, {"chat_template.jinja": {"size": size}}) for size in ODD_SIZES},
    "longer than told": ({"chat_template.jinja": b"x" * (SMALL_SIZE + 2)}, {"chat_template.jinja": {"size": 14}}),
    "weights without a hash": ({}, {SHARDS[0]: {"lfs": {"sha256": "x", "size": 1}}}),
    "no configuration": ({CONFIG: None}, {}),
    "no weights": (dict.fromkeys(folder_files()) | {CONFIG: config(None), "small-Q4_K_M.gguf": b"left"}, {}),
    "a shard is missing": ({INDEX: index_of(*SHARDS, "model-00003-of-00003.safetensors")}, {}),
    "configuration no json": ({CONFIG: b"<html>"}, {}),
    "configuration no object": ({CONFIG: b"[]"}, {}),
    "no method": ({CONFIG: b'{"quantization_config": {"bits": 4}}'}, {}),
    "a method of two lines": ({CONFIG: b'{"quantization_config": {"quant_method": "x\\ny"}}'}, {}),
    "index no json": ({INDEX: b"\xff\xfe"}, {}),
    "index without a map": ({INDEX: b'{"weight_map": []}'}, {}),
    "name with brackets": ({"model (1).safetensors": b"x"}, {}),
    "name like an option": ({"-model.safetensors": b"x"}, {}),
    "name of two lines": ({"tokenizer\n.json": b"x"}, {}),
    "name with a space": ({"a b.jinja": b"x"}, {}),
}


@pytest.mark.parametrize(("files", "told"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_is_refused_says_why(
    standin: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, bytes | None],
    told: dict[str, dict[str, Any]],
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setattr("provisioner.models.hub.SMALL_BYTES", SMALL_SIZE)
    merged = {**standin.files, **files}
    standin.files = {name: content for name, content in merged.items() if content is not None}
    standin.told = told
    standin.serve()
    refusal = standin.refusal()
    assert f"{refusal.message}\n{refusal.hint}" == snapshot
    large = {name for name, one in told.items() if one.get("size", 0) != 14 and "size" in one}
    assert not large & {*standin.downloads()}


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
