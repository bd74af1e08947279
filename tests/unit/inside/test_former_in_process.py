"""A request with the key before the present one goes on with the present one, until its time is over."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from provisioner.inside import former_key_in_process as former

FORMER, PRESENT = "canary-of-before-0123", "canary-of-now-0123"


async def _sent(layer: former.FormerKey, scope: former.Message) -> None:
    """The request goes to the layer, which asks nobody for anything and says nothing."""

    async def receive() -> former.Message:
        raise AssertionError("nothing is read")

    async def send(_message: former.Message) -> None:
        raise AssertionError("nothing is said")

    await layer(scope, receive, send)


def seen(until: float, *headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The headers that the application behind it sees."""
    scopes: list[former.Message] = []

    async def application(scope: former.Message, _receive: object, _send: object) -> None:
        scopes.append(scope)

    layer = former.FormerKey(application, former.Kept(FORMER, until), PRESENT)
    asyncio.run(_sent(layer, {"type": "http", "headers": list(headers)}))
    return list(scopes[0]["headers"])


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        (b"authorization", f"Bearer {FORMER}", f"Bearer {PRESENT}"),
        (b"x-api-key", FORMER, PRESENT),
        *((b"authorization", one, one) for one in (f"Bearer {PRESENT}", f"Bearer {FORMER}x", f"Basic {FORMER}")),
        *((b"authorization", one, one) for one in (FORMER, f"bearer {FORMER}", f"Bearer {FORMER[:-1]}", "")),
        *((b"x-admin-key", one, one) for one in (FORMER, f"Bearer {FORMER}")),
        (b"x-api-key", f"Bearer {FORMER}", f"Bearer {FORMER}"),
    ],
)
def test_it_counts_where_the_present_one_would(name: bytes, value: str, wanted: str) -> None:
    assert seen(time.time() + 60, (b"host", b"a"), (name, value.encode())) == [(b"host", b"a"), (name, wanted.encode())]


def test_once_its_time_is_over_it_is_any_other_key() -> None:
    header = (b"authorization", f"Bearer {FORMER}".encode())
    assert seen(time.time() - 1, header) == [header]


def test_start_and_stop_of_the_application_go_through() -> None:
    scopes: list[former.Message] = []

    async def application(scope: former.Message, _receive: object, _send: object) -> None:
        scopes.append(scope)

    layer = former.FormerKey(application, former.Kept(FORMER, time.time() + 60), PRESENT)
    asyncio.run(_sent(layer, {"type": "lifespan"}))
    assert scopes == [{"type": "lifespan"}]


def test_its_time_begins_when_its_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "former-api-key"
    assert former.kept_in(file, 900) is None
    file.write_text(f"{FORMER}\n")
    began = file.stat().st_mtime
    assert former.kept_in(file, 900) == former.Kept(FORMER, began + 900)
    assert former.kept_in(file, 0) is None
    os.utime(file, (began - 901, began - 901))
    assert former.kept_in(file, 900) is None


@pytest.mark.parametrize("content", [b"", b"\n", b"a\n", b"short-0123\n", b"\n" + FORMER.encode()])
def test_what_can_be_no_key_of_the_role_is_not_taken(tmp_path: Path, content: bytes) -> None:
    """With an empty one every request would be masked, and with a short one guessed."""
    (tmp_path / "former-api-key").write_bytes(content)
    assert former.kept_in(tmp_path / "former-api-key", 900) is None


def test_a_folder_in_its_place_stops_nothing(tmp_path: Path) -> None:
    assert former.kept_in(tmp_path, 900) is None
