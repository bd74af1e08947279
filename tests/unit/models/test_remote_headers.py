"""The heads of models elsewhere: read once, no further than their keys go; where they do not come that is a note."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from provisioner.lab import ModelFile
from provisioner.lab.opening import remote_models
from provisioner.lab.opening.remote_models import cached_headers, fetch_headers, head_file
from provisioner.labfile.pins import Pin
from provisioner.labfile.spec import Model
from provisioner.models import remote
from provisioner.models.gguf import read_head, read_header
from provisioner.models.header import GgufError, Header
from provisioner.models.sources import ModelPart
from provisioner.values.state import Secret
from tests.file_server import FileServer, serving
from tests.gguf_bytes import gguf_bytes, model_bytes

TOKEN = "hf_CANARY5d5d"
SHA256 = "a" * 64
PIN = Pin("hf:acme/Small-GGUF:Q4_K_M", "5f" * 20, "Small-Q4_K_M.gguf", SHA256, 5)
MODELS = {"m": Model(source=PIN.source)}
VOCABULARY = {"tokenizer.ggml.tokens": ["word" * 8] * 20_000, "tokenizer.ggml.scores": [0.5] * 20_000}
SIZES = {"llama.context_length": 4096, "llama.attention.key_length": 80, "llama.attention.value_length": 96}
LATE = gguf_bytes({"general.architecture": "llama", **VOCABULARY, **SIZES}, {"big": (1 << 20,)})
LONG = 3 << 30
HEADER = Header("llama", context=4096, key_size=80, value_size=96)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    with serving(FileServer(LATE)) as running:
        yield running


def file_at(server: FileServer) -> ModelFile:
    access = Secret("hub:access", json.dumps({"token": TOKEN, "proxies": {}}))
    return ModelFile(server.address, "m.gguf", SHA256, access=access)


def fetched(server: FileServer) -> tuple[Header | None, str]:
    headers, notes = fetch_headers(MODELS, {"m": file_at(server)})
    assert TOKEN not in " ".join(notes)
    return headers.get("m"), " ".join(notes)


def test_keys_behind_a_vocabulary_are_found_and_tensors_are_left_alone() -> None:
    taken = 0

    def read(count: int) -> bytes:
        nonlocal taken
        taken += count
        return LATE[taken - count : taken]

    assert read_head(read, len(LATE)) == HEADER
    assert taken < len(LATE) / 2


def test_a_head_is_asked_for_once_and_the_token_sent_along(server: FileServer) -> None:
    assert cached_headers(MODELS, {"m": PIN}) == {}
    assert fetched(server) == (HEADER, "")
    assert fetched(server) == (HEADER, "")
    assert [one.headers["Authorization"] for one in server.seen] == [f"Bearer {TOKEN}"]
    assert server.ranges_asked() == [f"bytes=0-{remote.LIMIT - 1}"]
    assert cached_headers(MODELS, {"m": PIN}) == {"m": HEADER}


def test_what_is_known_is_known_of_that_content_alone(server: FileServer) -> None:
    fetched(server)
    assert cached_headers(MODELS, {"m": replace(PIN, sha256="b" * 64)}) == {}
    assert cached_headers(MODELS, {"m": replace(PIN, source="hf:acme/Other-GGUF:Q4_K_M")}) == {}
    assert cached_headers({"m": Model(source="https://host/a.gguf", sha256=SHA256)}, {}) == {}


def test_the_head_of_an_address_is_that_addresss(server: FileServer) -> None:
    there, elsewhere = (Model(source=f"https://{host}/a.gguf", sha256=SHA256) for host in ("one", "two"))
    fetch_headers({"m": there}, {"m": file_at(server)})
    assert cached_headers({"m": there, "n": elsewhere}, {}) == {"m": HEADER}


def test_a_file_on_this_machine_is_not_asked_for(server: FileServer) -> None:
    assert fetch_headers(MODELS, {"m": replace(file_at(server), path="/srv/m.gguf")}) == ({}, [])


def test_the_token_does_not_follow_to_another_server(server: FileServer) -> None:
    with serving(FileServer(LATE)) as other:
        server.answers = [(302, {"Location": other.address})]
        assert fetched(server) == (HEADER, "")
        assert "Authorization" not in other.seen[0].headers


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}),
        (403, {}),
        (503, {}),
        (302, {"Location": "ftp://host/m.gguf"}),
        (302, {"Location": "http://a..b/m.gguf"}),
    ],
)
def test_a_refusal_is_a_note_and_another_time_it_is_asked_for_again(
    server: FileServer, answer: tuple[int, dict[str, str]]
) -> None:
    server.answers = [answer]
    header, note = fetched(server)
    assert header is None
    assert note.startswith("What the file of model m says of itself is not known: ")
    assert fetched(server) == (HEADER, "")


def test_a_cut_connection_is_a_note_and_another_time_it_is_asked_for_again(server: FileServer) -> None:
    server.cuts = [1000]
    assert "not known" in fetched(server)[1]
    assert fetched(server) == (HEADER, "")


def test_a_server_that_stands_still_holds_nobody_up(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "TIMEOUT_S", 0.2)
    server.stalls = [1000]
    assert "timed out" in fetched(server)[1]


def test_a_server_that_drips_holds_nobody_up(server: FileServer) -> None:
    server.pace_s = 0.1
    with pytest.raises(remote.NoHeadError, match=r"does not come within 0\.3 seconds"):
        remote.read_remote_head(server.address, None, deadline_s=0.3)


@pytest.mark.parametrize("content", [b"<html>no model</html>", gguf_bytes({"general.architecture": 7})])
def test_what_says_nothing_is_not_asked_again(server: FileServer, content: bytes) -> None:
    server.content = content
    assert "not known" in fetched(server)[1]
    assert fetched(server) == (None, "")
    assert len(server.seen) == 1
    assert cached_headers(MODELS, {"m": PIN}) == {}


def test_a_head_that_is_too_long_is_left(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "LIMIT", 1 << 16)
    assert "does not end within 65536 bytes" in fetched(server)[1]


def test_a_note_of_another_version_or_a_damaged_one_is_read_again(server: FileServer, tmp_path: Path) -> None:
    fetched(server)
    note = next((tmp_path / "cache").rglob("heads/*.json"))
    for content in ("{", '{"architecture": "llama", "wings": 2}', "[]"):
        note.write_text(content)
        assert cached_headers(MODELS, {"m": PIN}) == {}
        assert fetched(server) == (HEADER, "")


def test_damaged_bytes_give_an_answer_or_one_of_two_errors() -> None:
    whole = model_bytes()
    for at in range(len(whole) // 2):
        damaged = whole[:at] + b"\xff" + whole[at + 1 :]
        position = 0

        def read(count: int, damaged: bytes = damaged) -> bytes:
            nonlocal position
            position += count
            return damaged[position - count : position]

        with suppress(GgufError, EOFError):
            assert isinstance(read_head(read, len(whole)), Header)


def test_the_head_is_kept_in_a_file_as_long_as_the_model_for_programs_that_read_it(server: FileServer) -> None:
    whole = replace(file_at(server), size=LONG)
    assert head_file(MODELS["m"], whole) is None
    fetch_headers(MODELS, {"m": whole})
    kept = head_file(MODELS["m"], whole)
    assert kept is not None
    assert kept.stat().st_size == LONG
    assert kept.stat().st_blocks * 512 < 2 * len(LATE)
    assert read_header(kept) == read_head(BytesIO(LATE).read, len(LATE))
    kept.unlink()  # as versions left it that kept none: it is read again
    fetch_headers(MODELS, {"m": whole})
    assert kept.is_file()


def later(server: FileServer, place: int, content: bytes | None = None) -> ModelPart:
    """A further file of a model, as ``gguf-split`` writes it: all keys but those of the split stand in the first."""
    keys = {"split.no": place - 1, "split.count": 3, "split.tensors.count": 3}
    file = gguf_bytes(keys, {f"blk.{place}.attn_q.weight": (64, 64)}) if content is None else content
    server.pages[f"/models/later-{place}"] = lambda _seen: (200, {"Content-Length": str(len(file))}, file)
    digest = hashlib.sha256(file).hexdigest()
    return ModelPart(f"{server.address.rpartition('/')[0]}/later-{place}", digest, LONG)


def test_heads_of_a_model_in_parts_lie_beside_each_other(server: FileServer) -> None:
    model = replace(file_at(server), rest=(later(server, 2), later(server, 3)))
    headers, notes = fetch_headers(MODELS, {"m": model})
    assert headers == {"m": HEADER}
    assert notes == ["The file of model m says that it is one of 1, and 3 is known"]
    kept = head_file(MODELS["m"], model)
    assert kept is not None
    names = sorted(file.name for file in kept.parent.glob("*.gguf"))
    assert names == [kept.name.replace("00001-of", f"{place:05}-of") for place in (1, 2, 3)]
    assert read_header(kept.with_name(names[1])).tensors
    kept.with_name(names[1]).unlink()
    server.seen.clear()
    assert fetch_headers(MODELS, {"m": model})[0] == {"m": HEADER}
    assert [one.path for one in server.seen] == ["/models/later-2"], "only what is missing is asked for"


@pytest.mark.parametrize("broken", [b"no model", b"", None], ids=["damaged", "empty", "gone"])
def test_no_further_file_costs_what_the_first_one_says(server: FileServer, broken: bytes | None) -> None:
    part = later(server, 2, broken)
    if broken is None:
        part = replace(part, file="http://127.0.0.1:9/none.gguf")
    model = replace(file_at(server), rest=(part,))
    for _ in range(2):
        assert fetch_headers(MODELS, {"m": model})[0] == {"m": HEADER}
        assert head_file(MODELS["m"], model) is None


def test_another_models_further_file_is_never_taken_for_this_ones(server: FileServer) -> None:
    evil = replace(file_at(server), rest=(later(server, 2, gguf_bytes({"split.no": 1}, {"evil": (8,)})),))
    fetch_headers({"m": Model(source="hf:evil/Small-GGUF:Q4_K_M")}, {"m": evil})
    good = replace(file_at(server), rest=(later(server, 2),))
    assert head_file(MODELS["m"], good) is None
    fetch_headers(MODELS, {"m": good})
    kept = head_file(MODELS["m"], good)
    assert kept is not None
    assert "evil" not in read_header(kept.with_name(kept.name.replace("00001-of", "00002-of"))).tensors


def test_what_was_read_before_counts_where_its_head_cannot_be_had_now(server: FileServer, tmp_path: Path) -> None:
    fetched(server)
    for head in (tmp_path / "cache").rglob("*.gguf"):
        head.unlink()
    server.answers = [(503, {})]
    assert fetched(server) == (HEADER, "")


def test_one_file_under_several_names_is_kept_whole(server: FileServer) -> None:
    names = [f"m{place}" for place in range(8)]
    files = dict.fromkeys(names, file_at(server))
    headers, notes = fetch_headers(dict.fromkeys(names, MODELS["m"]), files)
    assert (headers, notes) == (dict.fromkeys(names, HEADER), [])
    kept = head_file(MODELS["m"], file_at(server))
    assert kept is not None
    assert read_header(kept).context == HEADER.context
    assert {file.suffix for file in kept.parent.iterdir()} == {".json", ".gguf"}


def test_a_head_that_cannot_be_kept_still_says_what_it_says(
    server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_models, "ANY_SIZE", 1 << 62)  # more than a file system takes
    assert fetched(server) == (HEADER, "")
    assert head_file(MODELS["m"], file_at(server)) is None
