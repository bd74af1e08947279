"""``host prepare --trust`` against a real Incus elsewhere: each kind of token, and what is left of it."""

from __future__ import annotations

import json
import secrets
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from provisioner.cli.app import app
from provisioner.hosts.incus import IncusProvider
from provisioner.hosts.incus.api import Endpoint
from tests.lab.far import FarIncus

pytestmark = [pytest.mark.incus]

Prepare = Callable[..., Result]


@pytest.fixture
def name(far_incus: FarIncus) -> Iterator[str]:
    """A name for tokens; what was trusted by them is forgotten again."""
    one = f"t{secrets.token_hex(4)}"
    yield one
    far_incus.distrust(one)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Where the client certificate and its key are expected."""
    return tmp_path / "provisioner" / "client.crt", tmp_path / "provisioner" / "client.key"


@pytest.fixture
def prepare(far_incus: FarIncus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Run ``host prepare`` in a home of its own; the token comes by standard input."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name, value in far_incus.environment.items():
        monkeypatch.setenv(name, value)

    def run(token: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["host", "prepare", "--trust", "-", *arguments], input=token + "\n")

    return run


def changed(token: str, **changes: Any) -> str:
    """The token with other words in it."""
    return b64encode(json.dumps(json.loads(b64decode(token)) | changes).encode()).decode()


def test_a_token_makes_this_user_trusted_once(
    far_incus: FarIncus, prepare: Prepare, name: str, pair: tuple[Path, Path]
) -> None:
    token = far_incus.token(name)
    done = prepare(f"Client {name} certificate add token:\n{token}", "--json")
    assert done.exit_code == 0, done.stdout + done.stderr
    found = next(one for one in map(json.loads, done.stdout.splitlines()) if one["type"] == "result")
    assert (found["incus"], found["fingerprint"]) == (far_incus.endpoint.address, far_incus.endpoint.fingerprint)
    assert [stat.S_IMODE(file.stat().st_mode) for file in pair] == [0o644, 0o600]
    assert stat.S_IMODE(pair[1].parent.stat().st_mode) == 0o700
    IncusProvider(
        "far", endpoint=Endpoint(found["incus"], str(pair[0]), str(pair[1]), found["fingerprint"])
    ).check_available()
    before = [file.read_bytes() for file in pair]
    again = prepare(token)
    assert again.exit_code == 0, again.stdout + again.stderr
    assert f'incus: "{far_incus.endpoint.address}", fingerprint: "{far_incus.endpoint.fingerprint}"' in again.stdout
    assert [file.read_bytes() for file in pair] == before
    for said in (done.stdout, done.stderr, again.stdout, again.stderr):
        assert token not in said
        assert json.loads(b64decode(token))["secret"] not in said
        assert before[1].decode().splitlines()[1] not in said


def test_a_used_token_is_refused_and_leaves_nothing(
    far_incus: FarIncus, prepare: Prepare, name: str, pair: tuple[Path, Path]
) -> None:
    token = far_incus.token(name)
    assert prepare(token).exit_code == 0
    for file in pair:
        file.unlink()
    done = prepare(token)
    assert done.exit_code == 4
    assert "used already" in done.stderr
    assert "incus config trust add" in done.stderr
    assert list(pair[0].parent.iterdir()) == []


def test_an_expired_token_says_so_and_leaves_nothing(
    far_incus: FarIncus, prepare: Prepare, name: str, pair: tuple[Path, Path]
) -> None:
    far_incus.incus("config", "set", "core.remote_token_expiry", "1S")
    try:
        token = far_incus.token(name)
    finally:
        far_incus.incus("config", "unset", "core.remote_token_expiry")
    end = datetime.fromisoformat(json.loads(b64decode(token))["expires_at"][:19]).replace(tzinfo=UTC).timestamp() + 1
    while time.time() < end:
        time.sleep(0.05)
    done = prepare(token)
    assert done.exit_code == 4
    assert "It has expired." in done.stderr
    assert list(pair[0].parent.iterdir()) == []


def test_a_token_of_another_server_is_told_by_both_fingerprints(
    far_incus: FarIncus, prepare: Prepare, name: str, pair: tuple[Path, Path]
) -> None:
    other = "ab" * 32
    done = prepare(changed(far_incus.token(name), fingerprint=other))
    assert done.exit_code == 4
    assert "it is another server's" in done.stderr
    assert other in done.stderr
    assert far_incus.endpoint.fingerprint in done.stderr
    assert not pair[0].parent.exists()


def test_a_token_is_tried_at_each_of_its_addresses_and_at_another_one(
    far_incus: FarIncus, prepare: Prepare, name: str
) -> None:
    host = far_incus.endpoint.address.removeprefix("https://")
    nowhere = changed(far_incus.token(name), addresses=["127.0.0.1:1"])
    done = prepare(nowhere)
    assert done.exit_code == 4
    assert "127.0.0.1:1: Connection refused" in done.stderr
    assert "--address" in done.stderr
    assert prepare(nowhere, "--address", f"https://{host}").exit_code == 0
    assert prepare(changed(nowhere, addresses=["127.0.0.1:1", host])).exit_code == 0


@pytest.mark.parametrize("token", ["", "abc", "e30=", "bm90IGpzb24=", b64encode(b'{"secret": 1}').decode()])
def test_what_is_no_token_is_refused(prepare: Prepare, token: str, pair: tuple[Path, Path]) -> None:
    done = prepare(token)
    assert done.exit_code == 64
    assert "that is none" in done.stderr
    assert not pair[0].parent.exists()


def test_a_refused_token_leaves_the_pair_that_was_there(
    far_incus: FarIncus, prepare: Prepare, name: str, pair: tuple[Path, Path]
) -> None:
    assert prepare(far_incus.token(name)).exit_code == 0
    far_incus.distrust(name)
    before = [file.read_bytes() for file in pair]
    assert prepare(changed(far_incus.token(name), secret="0" * 64)).exit_code == 4
    assert [file.read_bytes() for file in pair] == before


def test_it_belongs_to_nothing_else(prepare: Prepare) -> None:
    done = prepare("abc", "--gpu")
    assert done.exit_code == 64
    assert "gpu" in done.stderr
