"""The compiled catalog of a checkout: kept while no file of a role changes, and believed only where it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner import catalog as catalog_module
from provisioner.catalog import load_catalog
from provisioner.values import paths
from tests.raising import raising

PAGES = Path(__file__).parent / "fixtures" / "catalog"
TITLE = "An engine, as the tests want it"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the roles of the tests, whose files were all written long enough ago."""
    shutil.copytree(PAGES, tmp_path / "roles")
    monkeypatch.setattr(paths, "share", lambda: tmp_path)
    monkeypatch.setattr(catalog_module, "SETTLED_NS", 0)
    return tmp_path


def title() -> str:
    """What the catalog says as a new command reads it."""
    catalog_module._load.cache_clear()
    return load_catalog().services["llama_cpp"].title


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, pages of roles cannot be read."""
    return lambda: monkeypatch.setattr(
        catalog_module, "compile_catalog", raising(AssertionError("the pages were read"))
    )


def file_of(checkout: Path) -> Path:
    return checkout / ".cache" / "catalog.json"


def signed(key: str, body: bytes) -> bytes:
    """A file that says of itself that it is whole."""
    return f"{key} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def test_pages_are_read_once_and_give_the_same_catalog(checkout: Path, unread: Callable[[], None]) -> None:
    assert title() == TITLE
    read, mode = load_catalog(), file_of(checkout).stat().st_mode
    unread()
    assert title() == TITLE
    assert load_catalog() == read
    assert mode & 0o777 == 0o600


def test_a_page_of_the_same_size_with_another_time_is_read_again(checkout: Path) -> None:
    page = checkout / "roles/llama_cpp/meta/service.yml"
    assert title() == TITLE
    before = page.stat()
    page.write_text(page.read_text().replace(TITLE, TITLE.replace("tests", "pages")))
    os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert page.stat().st_size == before.st_size
    assert title() == TITLE.replace("tests", "pages")


def test_a_file_of_the_same_size_whose_time_was_put_back_is_read_again(checkout: Path) -> None:
    tasks = checkout / "roles/llama_cpp/tasks/build.yml"
    title()
    before, artifact = tasks.stat(), load_catalog().services["llama_cpp"].artifact
    tasks.write_bytes(tasks.read_bytes()[::-1])
    os.utime(tasks, ns=(before.st_atime_ns, before.st_mtime_ns))
    title()
    assert load_catalog().services["llama_cpp"].artifact != artifact


@pytest.mark.parametrize("name", ["roles/llama_cpp/files/new.txt", "roles/litellm/README.md"])
def test_a_new_file_is_seen(checkout: Path, unread: Callable[[], None], name: str) -> None:
    title()
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).touch()
    unread()
    with pytest.raises(AssertionError, match="were read"):
        title()


def test_what_changed_just_now_may_change_once_more_and_is_not_kept(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "SETTLED_NS", 3600 * 10**9)
    assert title() == TITLE
    assert not file_of(checkout).exists()


HOSTILE: dict[str, Callable[[str, bytes], bytes]] = {
    "empty": lambda _key, _body: b"",
    "half of it": lambda key, body: signed(key, body)[: len(body) // 2],
    "another key": lambda _key, body: signed("0" * 64, body),
    "a changed word": lambda key, body: signed(key, body).replace(TITLE.encode(), b"x" * len(TITLE)),
    "no JSON": lambda key, _body: signed(key, b"\x80\x04pickle"),
    "no mapping": lambda key, _body: signed(key, b"[1, 2]"),
    "no roles": lambda key, _body: signed(key, b'{"roles": 5}'),
    "a role of another form": lambda key, _body: signed(key, b'{"roles": {"llama_cpp": {"service": []}}}'),
    "nested without end": lambda key, _body: signed(key, b"[" * 100_000),
    "not UTF-8": lambda key, _body: signed(key, b'{"roles": "\xff"}'),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_believed_is_compiled_again(checkout: Path, content: Callable[[str, bytes], bytes]) -> None:
    title()
    head, _, body = file_of(checkout).read_bytes().partition(b"\n")
    file_of(checkout).write_bytes(content(head.split()[0].decode(), body))
    assert title() == TITLE
    assert file_of(checkout).read_bytes() == head + b"\n" + body, "it is whole again"


def test_a_file_that_others_can_write_is_not_believed(checkout: Path) -> None:
    title()
    key = file_of(checkout).read_bytes().split()[0].decode()
    body = json.loads(file_of(checkout).read_bytes().partition(b"\n")[2])
    body["roles"]["llama_cpp"]["service"]["title"] = "planted"
    file_of(checkout).write_bytes(signed(key, json.dumps(body).encode()))
    assert title() == "planted", "who owns the checkout could write its roles as well"
    file_of(checkout).chmod(0o666)
    assert title() == TITLE


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_is_neither_waited_for_nor_followed(checkout: Path, kind: str) -> None:
    file_of(checkout).parent.mkdir()
    if kind == "fifo":
        os.mkfifo(file_of(checkout))
    else:
        file_of(checkout).mkdir()
    assert title() == TITLE


def test_a_checkout_that_cannot_be_written_works(checkout: Path) -> None:
    (checkout / ".cache").write_text("no folder")  # root may write everywhere, so a mode would not stop it
    assert title() == TITLE
    assert (checkout / ".cache").read_text() == "no folder"


def test_a_checkout_of_somebody_else_is_left_as_it_is(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert title() == TITLE
    assert not (checkout / ".cache").exists()


def test_no_half_of_a_file_is_left_behind(checkout: Path) -> None:
    for _ in range(3):
        title()
        file_of(checkout).write_bytes(b"half")
    assert [path.name for path in (checkout / ".cache").iterdir()] == ["catalog.json"]
