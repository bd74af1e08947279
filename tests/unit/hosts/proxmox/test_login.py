"""Who we are: tokens, passwords, tickets that end; what is said when none is taken, and that no secret is."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

import pytest

from provisioner.hosts.proxmox import failures, session
from provisioner.hosts.proxmox.api import Client
from provisioner.hosts.proxmox.failures import PveError, UnreachableError
from provisioner.values.errors import UnavailableError
from provisioner.values.state import Secret
from tests.doubles.proxmox import Double
from tests.doubles.proxmox.world import PASSWORD

Made = Callable[..., Client]
CANARY = "canary-3f9a-7c11"


@pytest.fixture
def by_password(client_of: Made) -> Client:
    return client_of(token_id=None, token_secret=None, password=Secret("p", PASSWORD))


@pytest.fixture
def logins(pve: Double, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who has logged in with a password, in order."""
    found: list[str] = []
    original = pve.world.access.login

    def noted(username: str, password: str) -> bool:
        found.append(username)
        return original(username, password)

    monkeypatch.setattr(pve.world.access, "login", noted)
    return found


def refusal(client: Client) -> UnavailableError:
    with pytest.raises(UnavailableError) as caught, failures.reachable("Unable to reach Proxmox"):
        client.get("version")
    return caught.value


def test_one_login_serves_all_calls(by_password: Client, logins: list[str]) -> None:
    by_password.many([lambda: by_password.get("version")] * 30)
    by_password.post("pools", poolid="a")
    assert logins == ["root@pam"]


def test_a_token_never_logs_in(client: Client, logins: list[str]) -> None:
    client.post("pools", poolid="a")
    assert not logins


def test_a_wrong_password_is_said(client_of: Made) -> None:
    error = refusal(client_of(token_secret=None, password=Secret("p", CANARY)))
    assert error.details == "The login of root@pam with its password was refused: authentication failure"
    assert "The password is wrong, or there is no such user" in error.resolution


def test_a_wrong_realm_is_named(client_of: Made) -> None:
    error = refusal(client_of(user="root@home", token_secret=None, password=Secret("p", PASSWORD)))
    assert "There is no realm home there, but: pam, pve." in error.resolution


@pytest.mark.parametrize("changes", [{"token_id": "none"}, {"token_secret": Secret("t", CANARY)}, {"user": "no@pam"}])
def test_a_token_that_is_not_taken_is_named(client_of: Made, changes: dict[str, object]) -> None:
    """Facts: bad, unknown or malformed: 401 Authentication failed!, and no word of why."""
    client = client_of(**changes)
    error = refusal(client)
    name = f"{client.access.user}!{client.access.token_id}"
    assert error.details == f"API token {name} was refused: Authentication failed!"
    assert f"pveum user token list {client.access.user}" in error.resolution


@pytest.mark.parametrize("secret", [f"{CANARY}\r\nX: y", f"{CANARY} …", f"{CANARY}\x07"])
def test_a_secret_that_can_be_none_is_not_shown(client_of: Made, secret: str) -> None:
    error = refusal(client_of(token_secret=Secret("t", secret)))
    assert "has characters that no such secret has" in error.details
    assert CANARY not in "".join(traceback.format_exception(error))


def test_a_token_of_a_user_with_any_name_is_taken(pve: Double, client_of: Made) -> None:
    pve.world.access.add_user("łucja@pve", PASSWORD)
    secret = pve.world.access.add_token("łucja@pve", "ci", privsep=False)
    assert client_of(user="łucja@pve", token_secret=Secret("t", secret)).get("version")


def test_a_second_factor_is_said(pve: Double, by_password: Client) -> None:
    pve.world.access.users["root@pam"].second_factor = True
    error = refusal(by_password)
    assert error.details == "root@pam logs in with a second factor."
    assert "`token:`" in error.resolution


def test_an_old_ticket_is_replaced_before_it_ends(
    by_password: Client, logins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts: ticket life 2 h."""
    now = session._boot_clock_s()
    by_password.get("version")
    monkeypatch.setattr(session, "_boot_clock_s", lambda: now + 3500)
    by_password.get("version")
    assert len(logins) == 1
    monkeypatch.setattr(session, "_boot_clock_s", lambda: now + 3700)
    by_password.post("pools", poolid="a")
    assert len(logins) == 2


def test_a_ticket_that_ended_is_replaced_once_for_all(pve: Double, by_password: Client, logins: list[str]) -> None:
    by_password.get("version")
    pve.world.faults.expire_tickets()
    by_password.post("pools", poolid="a")
    assert len(logins) == 2
    pve.world.faults.expire_tickets()
    by_password.many([lambda: by_password.get("version")] * 30)
    assert len(logins) == 3


def test_a_user_who_is_thrown_out_meanwhile_is_told(pve: Double, by_password: Client, logins: list[str]) -> None:
    by_password.get("version")
    pve.world.access.users["root@pam"].enabled = False
    assert "was refused" in refusal(by_password).details
    assert len(logins) == 2


def test_a_login_that_is_dropped_is_no_change_that_was_lost(pve: Double, by_password: Client) -> None:
    pve.world.faults.drop("POST", "/access/ticket", times=100)
    by_password.patience_s = 0.5
    with pytest.raises(UnreachableError, match="closed the connection") as caught:
        by_password.post("pools", poolid="a")
    assert not caught.value.lost


def test_no_secret_is_written_anywhere(pve: Double, client_of: Made, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pve.world.access.users["root@pam"].password = CANARY
    secret = pve.world.access.add_token("root@pam", "other", privsep=False)
    client = client_of(token_id="other", token_secret=Secret("t", secret), password=Secret("p", CANARY))
    client.get("version")
    client.post("pools", poolid="a", as_root=True)
    shown = [repr(client), repr(vars(client)), repr(client.access), caplog.text]
    for path in (("pools", "nosuch"), ("nosuch",)):
        with pytest.raises(PveError) as caught:
            client.get(*path)
        shown.append("".join(traceback.format_exception(caught.value)))
    assert not [text for text in shown if CANARY in text or secret in text]
