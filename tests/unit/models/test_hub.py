"""Which file of a repository is meant, asked of a stand-in for the hub, whose answers have the shape of the real one's.

The shape is the one that huggingface_hub reads (``ModelInfo``: ``sha``, ``siblings`` of ``rfilename``, ``size``,
``blobId`` and ``lfs: {sha256, size, pointerSize}``); refusals bear ``X-Error-Code`` and ``X-Error-Message``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.models.hub import (
    ENDPOINT,
    Hub,
    HubError,
    HubFile,
    UnreachableHubError,
    find_file,
    hub_of_environment,
    label_of,
    proxies_of,
)
from provisioner.models.sources import ModelPart
from provisioner.values.state import Secret
from tests.file_server import FileServer, Seen, dripping, serving

TOKEN = "hf_CANARY77aa"
COMMIT = "5f" * 20
REPOSITORY = "acme/Small-GGUF"
PAGE = f"/api/models/{REPOSITORY}/revision/main"
FILES = (
    "README.md",
    "Small-Q4_K_M.gguf",
    "Small-UD-Q4_K_XL.gguf",
    "Small-IQ4_XS.gguf",
    "BF16/Small-BF16-00001-of-00002.gguf",
    "BF16/Small-BF16-00002-of-00002.gguf",
    "small.Q8_0.gguf",
    "other.Q8_0.gguf",
    "mmproj-F16.gguf",
    "imatrix_unsloth.gguf",
    "bad name-Q2_K.gguf",
)


def sibling(name: str, number: int = 1, **more: Any) -> dict[str, Any]:
    """One file as the hub tells it."""
    digest = f"{number:064x}"
    lfs = {"sha256": digest, "size": 5_000_000_000, "pointerSize": 135}
    return {"rfilename": name, "blobId": "b" * 40, "size": 5_000_000_000, "lfs": lfs, **more}


def page_of(*files: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": REPOSITORY, "sha": COMMIT, "gated": False, "private": False, "siblings": list(files), **more}


class StandIn:
    """A hub of one repository."""

    def __init__(self, server: FileServer) -> None:
        self.server = server
        self.say(200, page_of(*(sibling(name, number) for number, name in enumerate(FILES))))
        self.hub = Hub(server.address.rpartition("/models")[0])

    def say(self, status: int, content: Any, **headers: str) -> None:
        """What it answers from now on."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.server.pages[PAGE] = lambda _seen: (status, headers, body)


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("no_proxy", "*")
    with serving(FileServer()) as server:
        yield StandIn(server)


def refusal(standin: StandIn, quantisation: str = "Q4_K_M", token: Secret | None = None) -> HubError:
    with pytest.raises(HubError) as caught:
        find_file(Hub(standin.hub.endpoint, token), REPOSITORY, quantisation)
    assert TOKEN not in f"{caught.value.message} {caught.value.hint}"
    return caught.value


@pytest.mark.parametrize(
    ("quantisation", "file"),
    [
        ("Q4_K_M", "Small-Q4_K_M.gguf"),
        ("q4_k_m", "Small-Q4_K_M.gguf"),
        ("UD-Q4_K_XL", "Small-UD-Q4_K_XL.gguf"),
        ("Q4_K_XL", "Small-UD-Q4_K_XL.gguf"),
        ("IQ4_XS", "Small-IQ4_XS.gguf"),
    ],
)
def test_a_quantisation_is_one_file_of_one_commit(standin: StandIn, quantisation: str, file: str) -> None:
    found = find_file(standin.hub, REPOSITORY, quantisation)
    assert found == HubFile(COMMIT, file, f"{FILES.index(file):064x}", 5_000_000_000)
    assert standin.server.seen[-1].path == f"{PAGE}?blobs=true"
    assert "Authorization" not in standin.server.seen[-1].headers


@pytest.mark.parametrize(
    "helper",
    [
        *("MTP-Q8_0.gguf", "mtp-x-Q8_0.gguf", "x-assistant-Q8_0.gguf", "x-lora-Q8_0.gguf", "x-DFlash2-Q8_0.gguf"),
        "MTP/x-Q8_0.gguf",
    ],
)
def test_a_file_whose_name_says_that_it_helps_a_model_is_not_taken_for_it(standin: StandIn, helper: str) -> None:
    parts = [sibling(f"q8/x-MTP-Q8_0-0000{number}-of-00002.gguf", number) for number in (1, 2)]
    standin.say(200, page_of(*parts, sibling(helper, 3)))
    assert find_file(standin.hub, REPOSITORY, "Q8_0").file == "q8/x-MTP-Q8_0-00001-of-00002.gguf"
    standin.say(200, page_of(sibling(helper, 3)))
    assert find_file(standin.hub, REPOSITORY, "Q8_0").file == helper, "its head will tell what it is"


@pytest.mark.parametrize("name", ["home-assistant-3b-Q8_0.gguf", "Eagle2-9B-Q8_0.gguf", "X-LoRA-merged-Q8_0.gguf"])
def test_a_model_that_is_only_called_so_is_one_of_several(standin: StandIn, name: str) -> None:
    standin.say(200, page_of(sibling(name, 1), sibling("base-Q8_0.gguf", 2)))
    assert "several files" in refusal(standin, "Q8_0").message


def test_one_of_several_is_meant_by_its_name_also_where_it_is_in_parts(standin: StandIn) -> None:
    parts = [sibling(f"b-Q8_0-0000{number}-of-00002.gguf", number) for number in (1, 2)]
    standin.say(200, page_of(sibling("a-Q8_0.gguf", 3), *parts))
    assert refusal(standin, "Q8_0").hint.endswith(f'"hf:{REPOSITORY}:a-Q8_0"')
    found = find_file(standin.hub, REPOSITORY, "b-Q8_0")
    assert [found.file, *(part.file for part in found.rest)] == [one["rfilename"] for one in parts]


def test_the_plain_one_is_meant_where_both_are_there(standin: StandIn) -> None:
    standin.say(200, page_of(sibling("a-UD-Q4_K_XL.gguf", 1), sibling("a-Q4_K_XL.gguf", 2)))
    assert find_file(standin.hub, REPOSITORY, "Q4_K_XL").file == "a-Q4_K_XL.gguf"


def test_a_model_of_several_files_is_all_of_them_in_their_order(standin: StandIn) -> None:
    found = find_file(standin.hub, REPOSITORY, "BF16")
    names = [f"BF16/Small-BF16-0000{number}-of-00002.gguf" for number in (1, 2)]
    first, second = (ModelPart(name, f"{FILES.index(name):064x}", 5_000_000_000) for name in names)
    assert found == HubFile(COMMIT, first.file, first.sha256, 5_000_000_000, (second,))


PART = "a-Q8_0-0000{}-of-0000{}.gguf"
NO_HASHES = (
    None,
    "a" * 64,
    ["sha256"],
    {"sha256": "x", "size": 1},
    {"sha256": ["a" * 64], "size": 1},
    *({"sha256": "a" * 64, "size": size} for size in ("1", -5, True, 1.5, None, 2**60, [1])),
)
NO_NAMES: tuple[Any, ...] = (
    "../../x-Q4_K_M.gguf",
    "a/../x-Q4_K_M.gguf",
    "/x-Q4_K_M.gguf",
    "./x-Q4_K_M.gguf",
    "a//x-Q4_K_M.gguf",
    7,
)
NO_LISTS: tuple[Any, ...] = (None, 5, True, "a-Q4_K_M.gguf", {"rfilename": "a-Q4_K_M.gguf"}, [[]], [None])
NO_FILE: dict[str, tuple[str, Any]] = {
    "not there": ("Q5_K_M", None),
    "half a name": ("K_M", None),
    "two": ("Q8_0", None),
    "a file of another name": ("Q2_K", None),
    "a part is missing": ("Q8_0", [sibling(PART.format(number, 3)) for number in (1, 3)]),
    "a part without a hash": ("Q8_0", [sibling(PART.format(1, 2)), sibling(PART.format(2, 2), lfs=None)]),
    "one whole and one in parts": (
        "Q8_0", [*(sibling("x/" + PART.format(number, 2)) for number in (1, 2)), sibling("a-Q8_0.gguf")],
    ),
    "no gguf": ("Q4_K_M", [sibling("model.safetensors")]),
}  # fmt: skip


@pytest.mark.parametrize(("quantisation", "siblings"), NO_FILE.values(), ids=NO_FILE)
def test_what_is_not_one_file_is_told_with_what_there_is(
    standin: StandIn, quantisation: str, siblings: Any, snapshot: SnapshotAssertion
) -> None:
    if siblings:
        standin.say(200, page_of(*siblings))
    told = refusal(standin, quantisation)
    assert f"{told.message}\n{told.hint}" == snapshot


@pytest.mark.parametrize("lfs", NO_HASHES)
def test_a_file_without_a_hash_is_refused(standin: StandIn, lfs: Any) -> None:
    standin.say(200, page_of(sibling("a-Q4_K_M.gguf", lfs=lfs)))
    assert "does not say what a-Q4_K_M.gguf" in refusal(standin).message


@pytest.mark.parametrize("siblings", [*NO_LISTS, *([sibling(name)] for name in NO_NAMES)])
def test_a_list_of_no_files_or_of_names_that_lead_out_of_the_repository_holds_none(
    standin: StandIn, siblings: Any
) -> None:
    standin.say(200, {"sha": COMMIT, "siblings": siblings})
    assert refusal(standin).hint == "it holds no GGUF at all"


def test_half_a_million_files_are_told_by_the_first_of_them(standin: StandIn) -> None:
    names = (f"{number:06d}-Q4_K_M-00001-of-01000.gguf" for number in range(20_000))
    standin.say(200, page_of(*({"rfilename": name} for name in names)))
    began = time.process_time()
    told = refusal(standin)
    assert time.process_time() - began < 5
    assert "and 19960 more are" not in told.hint
    assert "several files" in told.message
    assert "and 19960 more" in told.message


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"])
def test_a_hub_that_drips_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("provisioner.models.hub.DEADLINE_S", 0.5)
    with dripping(sent) as address:
        began = time.monotonic()
        with pytest.raises(UnreachableHubError, match=r"does not come within 0\.5 seconds"):
            find_file(Hub(address), REPOSITORY, "Q4_K_M")
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"sha": NaN}'])
def test_what_is_no_page_of_a_hub_is_told(standin: StandIn, body: bytes) -> None:
    standin.say(200, body)
    told = refusal(standin)
    assert isinstance(told, UnreachableHubError)
    assert "no page of a hub" in told.message


@pytest.mark.parametrize(
    ("status", "token", "hint"),
    [(401, False, "set HF_TOKEN"), (403, True, "may the token's account read it"), (404, False, "Correct the name")],
)
def test_a_gated_private_or_missing_repository_says_what_to_do(
    standin: StandIn, status: int, token: bool, hint: str
) -> None:
    standin.say(status, {"error": "x"}, **{"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
    told = refusal(standin, token=Secret("t", TOKEN) if token else None)
    assert f"answers {status} Access is restricted." in told.message
    assert hint in told.hint
    assert not isinstance(told, UnreachableHubError)


def test_a_hub_in_need_and_one_that_is_not_there(standin: StandIn) -> None:
    standin.say(503, {})
    assert isinstance(refusal(standin), UnreachableHubError)
    standin.say(302, b"", Location="http://a..b/")
    assert "label empty or too long" in refusal(standin).message
    with serving(FileServer()) as gone:
        hub = Hub(gone.address.rpartition("/models")[0])
    with pytest.raises(UnreachableHubError, match=r"gives no answer: .*refused"):
        find_file(hub, REPOSITORY, "Q4_K_M")


def test_the_token_goes_to_the_hub_alone(standin: StandIn) -> None:
    hub = Hub(standin.hub.endpoint, Secret("t", TOKEN))
    with serving(FileServer()) as other:
        there = other.address.rpartition("/models")[0] + PAGE
        other.pages[PAGE] = lambda _seen: (200, {}, json.dumps(page_of(sibling("a-Q4_K_M.gguf"))).encode())
        standin.server.pages[PAGE] = lambda _seen: (302, {"Location": there}, b"")
        assert find_file(hub, REPOSITORY, "Q4_K_M").file == "a-Q4_K_M.gguf"
        assert standin.server.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
        assert [one for one in other.seen if "Authorization" in one.headers] == []


def test_a_renamed_repository_is_asked_with_the_token(standin: StandIn) -> None:
    def renamed(_seen: Seen) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps(page_of(sibling("a-Q4_K_M.gguf"))).encode()

    standin.server.pages["/new"] = renamed
    standin.server.pages[PAGE] = lambda _seen: (307, {"Location": "/new"}, b"")
    find_file(Hub(standin.hub.endpoint, Secret("t", TOKEN)), REPOSITORY, "Q4_K_M")
    assert standin.server.seen[1].headers["Authorization"] == f"Bearer {TOKEN}"


def test_the_file_is_downloaded_by_its_commit() -> None:
    address = Hub("https://hub.example").address(REPOSITORY, COMMIT, "a b/c.gguf")
    assert address == f"https://hub.example/{REPOSITORY}/resolve/{COMMIT}/a%20b/c.gguf"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HF_ENDPOINT", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_without_a_word_it_is_hugging_face_and_nobody(home: Path) -> None:
    assert home.is_dir()
    assert hub_of_environment() == Hub(ENDPOINT, None)


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({"HF_TOKEN": f" {TOKEN}\n", "HUGGING_FACE_HUB_TOKEN": "other"}, ".cache/huggingface/token"),
        ({"HUGGING_FACE_HUB_TOKEN": TOKEN}, ".cache/huggingface/token"),
        ({}, ".cache/huggingface/token"),
        ({"HF_HOME": "~/hf"}, "hf/token"),
        ({"XDG_CACHE_HOME": "$HOME/xdg"}, "xdg/huggingface/token"),
        ({"HF_TOKEN_PATH": "~/my-token"}, "my-token"),
    ],
)
def test_the_token_is_found_where_the_hubs_own_client_finds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], file: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(
        "hf_of_the_file\n" if any("TOKEN" in name for name in variables) and file[0] == "." else TOKEN
    )
    token = hub_of_environment().token
    assert token is not None
    assert token.reveal() == TOKEN
    assert TOKEN not in repr(hub_of_environment())


@pytest.mark.parametrize("endpoint", ["ftp://hub", "hub.example", "https://me:pw@hub", "https://hub/?a=b", "https://"])
def test_an_endpoint_that_is_no_address_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    assert home.is_dir()
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(HubError, match="HF_ENDPOINT is not the address of a hub"):
        hub_of_environment()


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "smile\u263a"])
def test_a_token_that_could_not_be_sent_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    assert home.is_dir()
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError, match="what no token holds"):
        hub_of_environment()


def test_no_token_is_sent_in_clear(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.is_dir()
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.lan/")
    assert hub_of_environment() == Hub("http://hub.lan", None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(HubError, match="anybody could read the token"):
        hub_of_environment()


def test_a_name_that_says_nothing_is_its_own_label() -> None:
    assert [label_of(one) for one in ("a.gguf", "x/b-F16.gguf", "c.mxfp4_moe.gguf")] == ["a", "F16", "mxfp4_moe"]


def test_proxies_on_this_machine_are_not_for_a_container() -> None:
    environment = {"HTTPS_PROXY": "http://u:p@proxy:3128", "http_proxy": "localhost:3128", "NO_PROXY": "a", "PATH": "/"}
    assert proxies_of(environment) == {"https": "http://u:p@proxy:3128", "no": "a"}
    assert proxies_of({"HTTP_PROXY": "http://a", "http_proxy": "http://b", "all_proxy": ""}) == {"http": "http://b"}
