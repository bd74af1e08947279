"""Whom an Incus elsewhere has to be, and whom it lets in: every way in which that fails has words of its own."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider, api
from provisioner.hosts.incus.api import Endpoint
from provisioner.hosts.incus.trust import make_pair
from provisioner.values.errors import PreflightError, ProviderError, UnavailableError
from tests.lab.far import FarIncus

pytestmark = [pytest.mark.incus]

Pair = Callable[..., Endpoint]
DAYS = 7


@pytest.fixture
def shown(far_incus: FarIncus, tmp_path: Path) -> Iterator[Pair]:
    """The endpoint with a new pair; ``trusted`` with which words of `incus config trust add-certificate`."""
    name = f"t{secrets.token_hex(4)}"

    def make(*words: str, is_trusted: bool = False, start: datetime | None = None) -> Endpoint:
        cert, key = tmp_path / "client.crt", tmp_path / "client.key"
        make_pair(cert, key, start=start, days=DAYS)
        if is_trusted:
            far_incus.incus("config", "trust", "add-certificate", str(cert), "--name", name, *words)
        return replace(far_incus.endpoint, cert=str(cert), key=str(key))

    yield make
    far_incus.distrust(name)


def refusal(endpoint: Endpoint) -> UnavailableError:
    """What ``check_available`` says; an observation and a change say the same."""
    provider = IncusProvider("far", endpoint=endpoint)
    with pytest.raises(UnavailableError) as caught:
        provider.check_available()
    with pytest.raises(UnavailableError) as seen:
        provider.observe("nobody")
    assert seen.value.details == caught.value.details
    with pytest.raises(ProviderError) as failed:
        provider.execute("one", ["true"])
    assert caught.value.details in failed.value.details
    assert failed.value.resolution == caught.value.resolution
    assert endpoint.address in caught.value.message
    return caught.value


def test_another_fingerprint_is_refused_with_both(far_incus: FarIncus) -> None:
    other = "0" * 64
    found = refusal(replace(far_incus.endpoint, fingerprint=other))
    assert other in found.details
    assert far_incus.endpoint.fingerprint in found.details
    assert "incus info" in found.resolution


def test_the_server_is_known_before_anything_is_sent(far_incus: FarIncus, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    original = ssl.SSLSocket.sendall

    def sendall(secured: ssl.SSLSocket, data: bytes) -> None:
        sent.append(data)
        original(secured, data)

    monkeypatch.setattr(ssl.SSLSocket, "sendall", sendall)
    refusal(replace(far_incus.endpoint, fingerprint="0" * 64))
    assert sent == []
    IncusProvider("far", endpoint=far_incus.endpoint).check_available()
    assert sent


def test_without_a_fingerprint_an_authority_must_have_signed(far_incus: FarIncus) -> None:
    found = refusal(replace(far_incus.endpoint, fingerprint=""))
    assert "self-signed" in found.details or "self signed" in found.details
    assert "fingerprint:" in found.resolution


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_no_variable_says_whom_to_trust(
    far_incus: FarIncus, variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that names the server's own certificate opens nothing, one that names nothing closes nothing."""
    api._made_context.cache_clear()
    monkeypatch.setenv(variable, str(far_incus.lab.state / "server.crt"))
    refusal(replace(far_incus.endpoint, fingerprint=""))
    monkeypatch.setenv(variable, str(tmp_path / "none"))
    IncusProvider("far", endpoint=far_incus.endpoint).check_available()
    api._made_context.cache_clear()


def test_an_unknown_certificate_is_refused_with_the_way_to_be_trusted(shown: Pair) -> None:
    endpoint = shown()
    found = refusal(endpoint)
    assert found.details == f"It does not trust the client certificate {endpoint.cert}."
    assert "incus config trust add" in found.resolution
    assert "provision host prepare --trust" in found.resolution


def test_an_expired_certificate_says_when(shown: Pair) -> None:
    """Incus takes none that has expired already; this one does so after it was taken."""
    end = datetime.now(UTC) + timedelta(seconds=5)
    endpoint = shown(is_trusted=True, start=end - timedelta(days=DAYS))
    while datetime.now(UTC) < end + timedelta(seconds=1):
        time.sleep(0.1)
    found = refusal(endpoint)
    assert f"has expired on {end:%Y-%m-%d}" in found.details
    assert "Move" in found.resolution


def test_no_certificate_at_all(far_incus: FarIncus) -> None:
    found = refusal(replace(far_incus.endpoint, cert="", key=""))
    assert found.details == "It was shown no client certificate."


def test_a_certificate_that_is_limited_to_projects(shown: Pair) -> None:
    provider = IncusProvider("far", endpoint=shown("--restricted", is_trusted=True))
    with pytest.raises(PreflightError) as caught:
        provider.observe("nobody")
    assert "limited our certificate to some projects" in caught.value.resolution


def test_files_that_are_missing_open_or_no_pair(shown: Pair, far_incus: FarIncus, tmp_path: Path) -> None:
    missing = refusal(replace(far_incus.endpoint, cert=str(tmp_path / "none.crt")))
    assert "none.crt is missing" in missing.details
    endpoint = shown()
    Path(endpoint.key).chmod(0o640)
    assert refusal(endpoint).resolution == f"Run: chmod 600 {endpoint.key}"
    Path(endpoint.key).chmod(0o600)
    assert "no certificate with its key" in refusal(replace(endpoint, cert=far_incus.endpoint.cert)).details
    Path(endpoint.cert).write_text("nothing", encoding="ascii")
    assert "no certificate with its key" in refusal(endpoint).details


def test_where_no_incus_answers(far_incus: FarIncus) -> None:
    def at(address: str) -> UnavailableError:
        return refusal(replace(far_incus.endpoint, address=f"https://{address}"))

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        found = at(f"127.0.0.1:{port}")
        assert found.details == f"There is no connection to 127.0.0.1:{port}: Connection refused"
        assert f"core.https_address :{port}" in found.resolution
    assert "The name no-such-host.invalid is not known" in at("no-such-host.invalid").details


def test_cards_of_another_machine_are_not_this_ones(far_incus: FarIncus) -> None:
    provider = IncusProvider("far", endpoint=far_incus.endpoint)
    for look in (provider.cards.read, provider.cards.driver):
        with pytest.raises(UnavailableError, match="host far is an Incus elsewhere"):
            look()
    assert provider.cards.repair() == ""


def test_a_key_is_named_and_never_told(far_incus: FarIncus) -> None:
    told = IncusProvider("far", endpoint=far_incus.endpoint).connection_variables("one")
    assert told["provision_key"] == far_incus.endpoint.key
    assert all(os.linesep not in value for value in told.values())
