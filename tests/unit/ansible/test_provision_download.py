"""The download against a real server that cuts, stalls, redirects, refuses and lies, over http and https."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules import provision_download
from provisioner.ansible.modules.provision_download import Download, RefusedError
from tests.file_server import FileServer, Seen, serving
from tests.processes import completed
from tests.signed_pairs import signed

CONTENT = os.urandom(1 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TOKEN = "hf_CANARY4e1d"
MODULE = Path(provision_download.__file__)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer(CONTENT)) as running:
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and patience of a test; no proxy."""
    monkeypatch.setattr(provision_download, "FIRST_PATIENCE_S", 0.3)
    monkeypatch.setattr(provision_download, "LONGEST_WAIT_S", 0.05)
    monkeypatch.setenv("no_proxy", "*")


def wanted(server: FileServer, folder: Path, **more: Any) -> Download:
    made = Download(server.address, folder / "tiny.gguf", SHA256)
    made.stall_s, made.patience_s = 0.4, 1.5
    for name, value in more.items():
        setattr(made, name, value)
    return made


def files_of(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def assert_whole(folder: Path) -> None:
    assert files_of(folder) == {"tiny.gguf"}
    assert (folder / "tiny.gguf").read_bytes() == CONTENT
    assert (folder / "tiny.gguf").stat().st_mode & 0o777 == 0o644


def refusal(download: Download) -> str:
    with pytest.raises(RefusedError) as caught:
        download.run()
    return str(caught.value)


def run_module(folder: Path, server: FileServer, *, check: bool = False, **more: Any) -> dict[str, Any]:
    """Run the module as Ansible does, as a program."""
    arguments = {"url": server.address, "path": str(folder / "tiny.gguf"), "sha256": SHA256, **more}
    page = folder.parent / "arguments.json"
    page.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check}}))
    done = completed([sys.executable, str(MODULE), str(page)], timeout_s=120)
    assert TOKEN not in done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models"
    made.mkdir()
    return made


def test_it_is_downloaded_and_found_again(server: FileServer, folder: Path) -> None:
    first = run_module(folder, server, size=len(CONTENT))
    assert (first["changed"], first["finished"], first["received"]) == (True, True, len(CONTENT))
    assert_whole(folder)
    again = run_module(folder, server)
    assert (again["changed"], again["finished"]) == (False, True)
    assert len(server.seen) == 1


def test_check_mode_says_what_would_change_and_asks_nobody(server: FileServer, folder: Path) -> None:
    answer = run_module(folder, server, check=True)
    assert (answer["changed"], answer["finished"]) == (True, True)
    assert answer["diff"] == {"before": "", "after": f"{SHA256}\n"}
    assert (server.seen, files_of(folder)) == ([], set())


def test_another_file_of_that_name_is_replaced(server: FileServer, folder: Path) -> None:
    (folder / "tiny.gguf").write_bytes(b"old")
    answer = run_module(folder, server)
    assert answer["diff"]["before"] == hashlib.sha256(b"old").hexdigest() + "\n"
    assert_whole(folder)


def test_cut_connections_are_gone_on_with(server: FileServer, folder: Path) -> None:
    server.cuts = [100_000, 300_000, 1]
    assert wanted(server, folder).run()
    assert_whole(folder)
    assert server.ranges_asked() == [None, "bytes=100000-", "bytes=400000-", "bytes=400001-"]
    assert server.seen[1].headers["If-Range"] == '"one"'


def test_a_later_run_goes_on_with_what_an_earlier_one_left(server: FileServer, folder: Path) -> None:
    server.cuts = [200_000]
    assert "cut after 200000 of" in refusal(wanted(server, folder, patience_s=0.0))
    assert files_of(folder) == {".tiny.gguf.part", ".tiny.gguf.part.json"}
    assert wanted(server, folder).run()
    assert server.ranges_asked() == [None, "bytes=200000-"]
    assert_whole(folder)


@pytest.mark.parametrize("etag", ['"two"', 'W/"two"', ""])
def test_a_file_that_was_exchanged_meanwhile_is_begun_anew(server: FileServer, folder: Path, etag: str) -> None:
    old = os.urandom(len(CONTENT))
    (folder / ".tiny.gguf.part").write_bytes(old[:50_000])
    note = {"sha256": SHA256, "etag": 'W/"one"', "size": len(CONTENT)}  # weak: the server cannot be asked to compare
    (folder / ".tiny.gguf.part.json").write_text(json.dumps(note))
    server.etag = etag
    assert wanted(server, folder).run()
    assert server.ranges_asked() == ["bytes=50000-", None]
    assert_whole(folder)


@pytest.mark.parametrize(
    "note",
    [
        None,
        "{",
        "[]",
        json.dumps({"sha256": "0" * 64, "etag": '"one"', "size": len(CONTENT)}),
        json.dumps({"sha256": SHA256, "etag": '"one"', "size": 10}),
    ],
)
def test_a_part_of_which_nothing_is_known_is_not_used(server: FileServer, folder: Path, note: str | None) -> None:
    (folder / ".tiny.gguf.part").write_bytes(b"x" * 50_000)
    if note is not None:
        (folder / ".tiny.gguf.part.json").write_text(note)
    assert wanted(server, folder).run()
    assert server.ranges_asked() == [None]
    assert_whole(folder)


@pytest.mark.parametrize(
    ("part", "note", "asked"),
    [
        (b"x" * 50_000, {"etag": '"old"', "size": len(CONTENT)}, ["bytes=50000-"]),
        (CONTENT, {"etag": '"one"', "size": len(CONTENT)}, []),
        (b"x" * (len(CONTENT) + 5), {"etag": '"one"', "size": None}, [f"bytes={len(CONTENT) + 5}-", None]),
    ],
    ids=["the server begins anew by a strong etag", "it is whole", "the server has less"],
)
def test_of_a_part_no_more_is_asked_than_is_needed(
    server: FileServer, folder: Path, part: bytes, note: dict[str, Any], asked: list[str | None]
) -> None:
    (folder / ".tiny.gguf.part").write_bytes(part)
    (folder / ".tiny.gguf.part.json").write_text(json.dumps({"sha256": SHA256, **note}))
    assert wanted(server, folder).run()
    assert server.ranges_asked() == asked
    assert_whole(folder)


def test_a_server_without_ranges_is_asked_for_all_of_it_again(server: FileServer, folder: Path) -> None:
    server.ranges, server.cuts = False, [300_000]
    assert wanted(server, folder).run()
    assert len(server.seen) == 2
    assert_whole(folder)


def test_a_server_that_never_gets_further_is_given_up(server: FileServer, folder: Path) -> None:
    server.ranges, server.cuts = False, [300_000] * 200
    assert "cut after 300000 of 1048576 bytes; nothing more has come for 1.5 seconds" in refusal(wanted(server, folder))


def test_a_server_that_does_not_say_how_long_it_is(server: FileServer, folder: Path) -> None:
    server.length = False
    assert wanted(server, folder).run()
    assert_whole(folder)


def test_another_hash_removes_what_came_and_names_both(server: FileServer, folder: Path) -> None:
    words = refusal(wanted(server, folder, sha256="0" * 64))
    assert SHA256 in words
    assert "0" * 64 in words
    assert files_of(folder) == set()


def test_another_size_than_known_is_refused_before_it_is_downloaded(server: FileServer, folder: Path) -> None:
    assert "1048576 bytes there and should have 5" in refusal(wanted(server, folder, size=5))
    assert files_of(folder) == set()


def test_a_connection_that_stands_still_is_left(server: FileServer, folder: Path) -> None:
    server.stalls = [200_000]
    began = time.monotonic()
    assert wanted(server, folder).run()
    assert time.monotonic() - began < 5
    assert len(server.seen) == 2
    assert_whole(folder)


def test_a_trickle_is_no_sign_of_life(server: FileServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision_download, "ALIVE", 1 << 30)
    server.pace_s = 0.1
    words = refusal(wanted(server, folder, patience_s=0.8))
    assert "bytes came in 0.4 seconds" in words
    assert "nothing more has come for 0.8 seconds" in words


def test_a_slice_ends_and_the_next_call_goes_on(server: FileServer, folder: Path) -> None:
    server.pace_s = 0.01
    assert not wanted(server, folder, slice_s=0.2).run()
    assert files_of(folder) == {".tiny.gguf.part", ".tiny.gguf.part.json"}
    calls = 1
    while not wanted(server, folder, slice_s=0.2).run():
        calls += 1
    assert calls < 20
    assert_whole(folder)


def test_a_slice_does_not_end_where_the_server_could_not_go_on(server: FileServer, folder: Path) -> None:
    server.pace_s, server.ranges = 0.005, False
    assert wanted(server, folder, slice_s=0.01).run()
    assert_whole(folder)


def test_the_module_says_how_far_it_is(server: FileServer, folder: Path) -> None:
    server.pace_s = 0.03
    answer = run_module(folder, server, slice=1)
    assert (answer["finished"], answer["size"]) == (False, len(CONTENT))
    assert 0 < answer["received"] < len(CONTENT)
    assert answer["msg"] == "0.00 of 0.00 GB have come"


@pytest.mark.parametrize("status", provision_download.TRANSIENT)
def test_a_server_in_need_is_asked_again(server: FileServer, folder: Path, status: int) -> None:
    server.answers = [(status, {"Retry-After": "0"})]
    assert wanted(server, folder).run()
    assert_whole(folder)


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "answers 404 Not Found"), (410, "answers 410 Gone"), (500, "500 Internal Server Error;")],
)
def test_what_the_server_refuses_is_told(server: FileServer, folder: Path, status: int, words: str) -> None:
    server.answers = [(status, {})] * 100
    assert words in refusal(wanted(server, folder))


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("token", "words"), [(None, "no token was sent"), (TOKEN, r"(HF_TOKEN) was sent along")])
def test_who_may_not_read_it_is_told_what_to_do(
    server: FileServer, folder: Path, status: int, token: str | None, words: str
) -> None:
    server.answers = [(status, {"X-Error-Message": "Access to model x is restricted."})]
    told = refusal(wanted(server, folder, token=token))
    assert f"answers {status} Access to model x is restricted." in told
    assert words in told
    assert "accept its terms" in told
    assert TOKEN not in told
    assert len(server.seen) == 1


def test_no_server_is_told_soon(folder: Path) -> None:
    with serving(FileServer(CONTENT)) as gone:
        pass
    began = time.monotonic()
    assert "Connection refused" in refusal(wanted(gone, folder))
    assert time.monotonic() - began < 3


def test_a_full_disk_is_seen_before(server: FileServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": provision_download.KEPT_FREE + 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    assert f"1048576 bytes are to come, and {folder} has room for 1000" in refusal(wanted(server, folder))
    assert ".tiny.gguf.part" not in files_of(folder)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_is_told_and_what_came_is_kept() -> None:
    with (
        pytest.raises(RefusedError, match=os.strerror(errno.ENOSPC)),
        Path("/dev/full").open("ab", buffering=0) as full,
    ):
        provision_download.write(full, b"x")


def test_a_redirect_is_followed_without_the_token(server: FileServer, folder: Path) -> None:
    with serving(FileServer(CONTENT)) as other:
        server.answers = [(302, {"Location": other.address})]
        assert wanted(server, folder, token=TOKEN).run()
        assert server.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
        assert [one for one in other.seen if "Authorization" in one.headers] == []
    assert_whole(folder)


def test_a_redirect_on_the_same_server_takes_the_token_along(server: FileServer, folder: Path) -> None:
    server.pages["/models/tiny.gguf"] = lambda _seen: (307, {"Location": "/renamed/tiny.gguf"}, b"")
    assert wanted(server, folder, token=TOKEN).run()
    assert [one.headers.get("Authorization") for one in server.seen] == [f"Bearer {TOKEN}"] * 2
    assert_whole(folder)


def test_each_attempt_begins_at_the_address_that_was_given(server: FileServer, folder: Path) -> None:
    def signed(_seen: Seen) -> tuple[int, dict[str, str], bytes]:
        return 302, {"Location": f"{other.address}?signature={len(other.seen)}"}, b""

    with serving(FileServer(CONTENT)) as other:
        server.pages["/models/tiny.gguf"] = signed
        other.cuts = [100_000]
        assert wanted(server, folder).run()
        assert [one.path for one in other.seen] == ["/models/tiny.gguf?signature=0", "/models/tiny.gguf?signature=1"]
        assert other.ranges_asked() == [None, "bytes=100000-"]
    assert_whole(folder)


@pytest.mark.parametrize(
    ("status", "place", "words"),
    [
        (302, "/models/tiny.gguf", "answers 302"),  # in circles
        (302, "http://a..b/tiny.gguf", "label empty or too long"),
        (302, "ftp://127.0.0.1/tiny.gguf", "ftp://127.0.0.1"),
        (206, "", "206 without a range"),
    ],
)
def test_an_answer_that_leads_to_no_file_is_refused(
    server: FileServer, folder: Path, status: int, place: str, words: str
) -> None:
    server.pages["/models/tiny.gguf"] = lambda _seen: (status, {"Location": place}, b"")
    assert words in refusal(wanted(server, folder))


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate that only ``tmp_path/ca.pem`` vouches for."""
    pair = signed("127.0.0.1", None, "127.0.0.1")
    (tmp_path / "ca.pem").write_text(pair.own)
    (tmp_path / "server.pem").write_text(pair.key + pair.own)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


def test_https_with_a_certificate_that_is_trusted(
    tls: ssl.SSLContext, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with serving(FileServer(CONTENT, cuts=[70_000]), tls=tls) as server:
        assert wanted(server, folder).run()
        assert server.ranges_asked() == [None, "bytes=70000-"]
    assert_whole(folder)


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(tls: ssl.SSLContext, folder: Path) -> None:
    with serving(FileServer(CONTENT), tls=tls) as server:
        assert "certificate is not trusted: self-signed certificate" in refusal(wanted(server, folder))
        assert server.seen == []


def test_https_never_leads_to_http(
    tls: ssl.SSLContext, server: FileServer, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with serving(FileServer(answers=[(302, {"Location": server.address})]), tls=tls) as first:
        words = refusal(wanted(first, folder, token=TOKEN))
    assert "where nothing is encrypted" in words
    assert server.seen == []


def test_the_proxy_of_the_rights_is_asked_and_the_token_sent(
    server: FileServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy")
    with serving(FileServer(CONTENT)) as proxy:
        access = folder.parent / "access.json"
        access.write_text(json.dumps({"token": TOKEN, "proxies": {"http": proxy.address.rpartition("/models")[0]}}))
        answer = run_module(folder, server, access=str(access))
        assert answer["finished"]
        assert [one.path for one in proxy.seen] == [server.address]
        assert proxy.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
        assert server.seen == []
        access.write_text(json.dumps({"token": None, "proxies": {"http": "http://127.0.0.1:1", "no": "127.0.0.1"}}))
        (folder / "tiny.gguf").unlink()
        assert run_module(folder, server, access=str(access))["finished"]
        assert len(server.seen) == 1


def test_the_module_fails_in_words_and_shows_no_query(server: FileServer, folder: Path) -> None:
    server.answers = [(404, {})]
    answer = run_module(folder, server, url=f"{server.address}?key=canary")
    assert answer["failed"]
    assert answer["msg"].startswith("Unable to download http://127.0.0.1/models/tiny.gguf: the server answers 404")
