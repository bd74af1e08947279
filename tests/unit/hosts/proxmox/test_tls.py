"""Whom the server must be: nothing is sent to anybody else, and the words say how to trust the right one."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from provisioner.hosts.proxmox import session
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import UnreachableError
from provisioner.values.state import Secret
from tests.doubles.proxmox import Double, certificate
from tests.doubles.proxmox.world import PASSWORD, World

Made = Callable[..., Client]
OTHER = "ab" * 32

ENDS_WITHIN_S = 30.0


@pytest.fixture
def calls(pve: Double, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reached the API."""
    found: list[str] = []
    monkeypatch.setattr(pve.world.access, "caller", lambda *_: found.append("call"))
    monkeypatch.setattr(pve.world.access, "login", lambda *_: found.append("login"))
    return found


def refusal(client: Client) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        client.get("version")
    return caught.value


def as_shown(fingerprint: str) -> str:
    return ":".join(fingerprint[at : at + 2] for at in range(0, 64, 2)).upper()


def test_a_certificate_of_nobodys_is_refused_and_its_fingerprint_shown(
    pve: Double, client_of: Made, calls: list[str]
) -> None:
    for secrets in ({}, {"token_secret": None, "password": Secret("p", PASSWORD)}):
        error = refusal(client_of(ca=None, **secrets))
        assert "is not trusted: certificate verify failed" in error.message
        assert "/etc/pve/pve-root-ca.pem" in error.resolution
        assert f'write fingerprint: "{as_shown(session.seen_fingerprint(pve.url))}"' in error.resolution
    assert not calls


def test_the_fingerprint_that_was_shown_is_enough(pve: Double, client_of: Made) -> None:
    pin = session.seen_fingerprint(pve.url)
    assert client_of(ca=None, fingerprint=pin).get("version")["release"] == "9.2"
    by_password = client_of(ca=None, fingerprint=pin, token_secret=None, password=Secret("p", PASSWORD))
    by_password.post("pools", poolid="a")
    assert list(pve.world.pools) == ["a"]


def test_another_fingerprint_is_refused(pve: Double, client_of: Made, calls: list[str]) -> None:
    for secrets in ({}, {"token_secret": None, "password": Secret("p", PASSWORD)}):
        error = refusal(client_of(ca=None, fingerprint=OTHER, **secrets))
        assert error.message.endswith(f"shows another certificate: {as_shown(session.seen_fingerprint(pve.url))}")
        assert "Else somebody else answers there." in error.resolution
    assert not calls


def test_another_authority_is_refused(client_of: Made, calls: list[str], tmp_path: Path) -> None:
    other = certificate.issue(tmp_path, "127.0.0.1").ca
    error = refusal(client_of(ca=other))
    assert f"It was not signed by {other}." in error.resolution
    assert not calls


def test_a_file_that_is_no_authority_is_said(client_of: Made, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    assert refusal(client_of(ca=missing)).message.endswith(f"{missing} cannot be used: No such file or directory")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n", encoding="ascii")
    assert f"{empty} cannot be used" in refusal(client_of(ca=empty)).message


def test_an_authority_of_an_older_proxmox_is_good_enough_for_newer_pythons(
    pve: Double, client_of: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 refuses an authority that does not say what its key is for, as those made before 2025 do not."""
    original = ssl.create_default_context

    def strict(*arguments: object, **options: object) -> ssl.SSLContext:
        context = original(*arguments, **options)  # type: ignore[arg-type]
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    address = urlsplit(pve.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), 60) as raw:
        context = strict(cafile=str(pve.ca))
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(raw, server_hostname=address.hostname)
    assert client_of().get("version")


@pytest.mark.parametrize(
    ("name", "ended_days", "said"),
    [
        ("192.0.2.1", 0, ("mismatch", "Use a name that is in the certificate, or ")),
        ("127.0.0.1", 3, ("has expired", "Renew it (pvecm updatecerts -f), or see this machine's clock")),
    ],
    ids=["for another name", "that has ended"],
)
def test_a_certificate_of_its_authority_that_is_wrong_is_said(
    client_of: Made, tmp_path: Path, name: str, ended_days: int, said: tuple[str, str]
) -> None:
    with closing(Double(World(nodes=1), certificate.issue(tmp_path, name, ended_days=ended_days))) as running:
        error = refusal(client_of(url=running.url, ca=running.ca))
    assert said[0] in error.message
    assert error.resolution.startswith(said[1])


def test_a_port_without_tls_is_said(client_of: Made) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            taken.recv(100)
            taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            taken.close()

        threading.Thread(target=answer, daemon=True).start()
        error = refusal(client_of(url=f"https://127.0.0.1:{server.getsockname()[1]}"))
    assert "does not speak TLS" in error.message
    assert "https://192.168.1.10:8006" in error.resolution


def test_a_port_that_was_forgotten_is_said(client_of: Made) -> None:
    error = refusal(client_of(url="https://127.0.0.1"))
    assert error.resolution == "Proxmox listens on port 8006: write https://127.0.0.1:8006"


def test_a_name_that_is_not_known_is_said(client_of: Made) -> None:
    error = refusal(client_of(url="https://nosuch.invalid:8006"))
    assert error.message.startswith("The name nosuch.invalid is not known: ")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A proxy that connects wherever it is asked to, and notes it."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    taken, _ = server.accept()
                except OSError:
                    return
                where = taken.recv(4000).split()[1].decode()
                asked.append(where)
                host, _, port = where.partition(":")
                there = socket.create_connection((host, int(port)), 60)
                taken.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                for source, target in ((taken, there), (there, taken)):
                    threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield asked
        # Closing alone wakes nobody: the thread would go on with whatever gets the same number next.
        server.shutdown(socket.SHUT_RDWR)
        thread.join(ENDS_WITHIN_S)
        assert not thread.is_alive()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_proxy_changes_nothing_of_it(pve: Double, client_of: Made, proxy: list[str]) -> None:
    pin = session.seen_fingerprint(pve.url)
    assert client_of(ca=None, fingerprint=pin).get("version")
    assert client_of().get("version")
    assert "another certificate" in refusal(client_of(ca=None, fingerprint=OTHER)).message
    assert "not trusted" in refusal(client_of(ca=None)).message
    assert set(proxy) == {pve.address}


def test_what_all_threads_share_is_changed_by_no_connection(
    pve: Double, client_of: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """urllib3 would set it again each time, and OpenSSL then sends another thread's greeting from freed memory."""
    client = client_of(ca=pve.ca)
    client.get("version")
    changes: list[str] = []
    for name in ("set_alpn_protocols", "load_verify_locations"):
        monkeypatch.setattr(ssl.SSLContext, name, lambda *_, name=name: changes.append(name))
    before = pve.connections
    client.many([lambda: client.get("version")] * 20)
    assert pve.connections > before, "no new connection was made"
    assert changes == []
