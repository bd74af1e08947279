"""A door of the file: what ``validate`` refuses with its line, and the root certificate that ``show --ca`` prints."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from provisioner.tls.authority import Authority
from tests.signed_pairs import NOW, signed
from tests.snapshots import case_name
from tests.unit.cli.conftest import FILE, World

AUTHORITY = "canary-authority-of-the-lab"
DOOR = """\
  door:
    services:
      door: { expose: lan, authority: !secret authority, sites: { chat.home.example: gateway/litellm } }
"""
BELOW = DOOR.replace("  door:\n    services:\n", "  second:\n    services:\n").replace("chat.", "api.")


@pytest.fixture
def door(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The usual lab with a door."""
    lab.write_text(FILE + DOOR)
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", AUTHORITY)
    return world


def test_the_root_is_that_of_the_secret_and_the_secret_is_not_shown(door: World) -> None:
    answer = door.command("show", "--ca")
    assert (answer.code, answer.out) == (0, Authority(AUTHORITY).root)
    (result,) = door.command("show", "--ca", "--json").of("result")
    assert result["roots"] == [
        {
            "service": "door/door",
            "certificate": Authority(AUTHORITY).root,
            "fingerprint": Authority(AUTHORITY).fingerprint,
            "sites": ["chat.home.example"],
        }
    ]
    assert AUTHORITY not in answer.out + answer.err + json.dumps(result)


def test_no_other_secret_is_needed_for_it(door: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROVISION_SECRET_ENGINE_KEY")
    assert door.command("show", "--ca").out == Authority(AUTHORITY).root


def test_the_command_of_the_file_is_asked_for_the_secret(
    door: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROVISION_SECRET_AUTHORITY")
    assert door.command("show", "--ca").code == 64
    lab.write_text(FILE + DOOR + f'secrets: {{ command: [echo, "{AUTHORITY}-{{name}}"] }}\n')
    assert door.command("show", "--ca").out == Authority(f"{AUTHORITY}-authority").root


def test_doors_of_one_secret_have_one_root(door: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write_text(FILE + DOOR + BELOW.replace("lan", "host"))
    assert door.command("show", "--ca").out.count("BEGIN CERTIFICATE") == 1
    lab.write_text(FILE + DOOR + BELOW.replace("lan", "host").replace("!secret authority", "!secret second"))
    monkeypatch.setenv("PROVISION_SECRET_SECOND", "another-authority")
    assert door.command("show", "--ca").code == 64
    monkeypatch.setenv("PROVISION_SECRET_SECOND", "another-authority-of-this-lab")
    second = Authority("another-authority-of-this-lab").root
    assert door.command("show", "--ca").out == Authority(AUTHORITY).root + second


def test_a_lab_without_a_door_has_no_root(world: World) -> None:
    assert world.command("show", "--ca").ended(64) == world.snapshot


@pytest.mark.parametrize(
    "name",
    [
        *("Chat.home.example", "192.168.1.5", "chat_home.example", "https://chat.home.example"),
        *("chat.home.example:443", "*.home.example", "a..b", f"{'a' * 64}.b"),
    ],
    ids=case_name,
)
def test_what_is_no_host_name_is_refused_with_its_line(door: World, lab: Path, name: str) -> None:
    lab.write_text((FILE + DOOR).replace("chat.home.example:", f"{name!r}:"))
    assert door.command("validate").ended(64) == door.snapshot


def test_a_short_secret_is_refused_and_not_shown(door: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", "short-canary")
    answer = door.command("validate")
    assert answer.code == 64
    assert answer.printed == door.snapshot
    assert "short-canary" not in answer.out + answer.err


def test_what_is_no_service_is_refused_and_nothing_is_touched(door: World, lab: Path) -> None:
    lab.write_text((FILE + DOOR).replace("gateway/litellm }", "gateway/litelm }"))
    assert door.command("up", "--yes").ended(64) == door.snapshot
    assert door.played == []


GIVEN = """\
  door:
    services:
      door:
        certificate: tls/chain.pem
        certificate_key: !secret door_key
        sites: { chat.home.example: gateway/litellm }
"""
DATE = re.compile(r"\d{4}-\d\d-\d\d")
BETWEEN = signed("between", signed("root"))
PAIR = signed("door", BETWEEN, "chat.home.example")


@pytest.fixture
def given(world: World, lab: Path) -> World:
    """The usual lab with a door that has a certificate of somebody's own, its key in secrets.env."""
    lab.write_text(FILE + GIVEN)
    with_pair(lab, PAIR.chain, PAIR.key)
    return world


def with_pair(lab: Path, chain: str, key: str) -> None:
    """Put both where the file says that they are."""
    (lab.parent / "tls").mkdir(exist_ok=True)
    (lab.parent / "tls/chain.pem").write_text(chain)
    secrets = lab.parent / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text(f"# keys\ndoor_key='{key.strip()}'\nother=1\n")


def test_a_certificate_of_ones_own_is_taken_from_its_file(given: World) -> None:
    answer = given.command("validate")
    assert (answer.code, "warning" in answer.err) == (0, False), answer.err
    assert given.command("show", "--ca").code == 64, "there is no authority whose root could be shown"
    shown = given.command("show", "--expanded")
    assert PAIR.own.splitlines()[1] in shown.out
    assert PAIR.key.splitlines()[1] not in shown.out + shown.err


@pytest.mark.parametrize(
    ("chain", "key"),
    [
        (signed("late", BETWEEN, "chat.home.example", ends=NOW - timedelta(days=1)).chain, PAIR.key),
        (PAIR.chain, signed("stranger").key),
        (signed("other", BETWEEN, "api.home.example").chain, PAIR.key),
    ],
    ids=["expired", "another key", "another site"],
)
def test_a_pair_that_does_not_fit_is_refused_with_its_line(given: World, lab: Path, chain: str, key: str) -> None:
    with_pair(lab, chain, key)
    refused = given.command("validate")
    assert DATE.sub("<date>", refused.printed) == given.snapshot
    for words in (["validate"], ["plan"], ["up", "--yes"]):
        answer = given.command(*words)
        assert (answer.code, answer.printed) == (64, refused.printed)
        assert not {line for line in key.splitlines() if not line.startswith("--")} & set(answer.err.split())
    assert given.played == []


@pytest.mark.parametrize(
    "edit",
    [
        ("tls/chain.pem", "tls/none.pem"),
        ("tls/chain.pem", "tls"),
        ("        certificate_key: !secret door_key\n", ""),
        ("        certificate: tls/chain.pem\n", ""),
        ("        certificate: tls", "        authority: !secret authority\n        certificate: tls"),
    ],
    ids=["no file", "a folder", "no key", "no certificate", "two sources"],
)
def test_half_a_pair_and_a_file_that_is_not_there_are_refused(
    given: World, lab: Path, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, str]
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", AUTHORITY)
    lab.write_text((FILE + GIVEN).replace(*edit))
    assert given.command("validate").ended(64) == given.snapshot


def test_a_certificate_that_ends_soon_is_a_warning_with_its_line(given: World, lab: Path) -> None:
    soon = signed("soon", BETWEEN, "chat.home.example", ends=NOW + timedelta(days=5, hours=1))
    with_pair(lab, soon.chain, soon.key)
    assert DATE.sub("<date>", given.command("validate").ended(0)) == given.snapshot


@pytest.mark.parametrize("port", ["", "port: 8443, "], ids=["443", "8443"])
def test_clients_are_told_the_site_of_the_gateway(door: World, lab: Path, port: str) -> None:
    lab.write_text((FILE + DOOR).replace("expose: lan, ", port).replace("chat.", "api."))
    assert door.command("show", "--client", "openai").ended(0) == door.snapshot


def test_a_certificate_of_ones_own_needs_no_root_and_a_site_of_another_service_is_not_the_gateway_s(
    given: World, lab: Path
) -> None:
    assert given.command("show", "--client", "openai").printed == given.snapshot
    lab.write_text((FILE + GIVEN).replace("gateway/litellm }", "llama/llama_cpp }"))
    assert given.command("up", "--yes").code == 0
    assert given.command("show", "--client", "openai").printed == given.snapshot


BY_ACME = """\
  door:
    services:
      door: { acme_email: penny@home.example, acme_agree: true, sites: { chat.home.example: gateway/litellm } }
"""


@pytest.mark.parametrize(
    "edit",
    [
        ("acme_agree: true, ", ""),
        ("acme_agree: true", "acme_agree: false"),
        ("penny@home.example", "penny"),
        ("acme_agree: true", 'acme_agree: true, acme_directory: "http://a.example/"'),
        ("acme_agree: true", "acme_agree: true, authority: !secret authority"),
    ],
    ids=["nothing agreed", "not agreed", "no address", "a directory without TLS", "two sources"],
)
def test_what_nobody_would_sign_by_acme_is_refused_with_its_line(door: World, lab: Path, edit: tuple[str, str]) -> None:
    lab.write_text(FILE + BY_ACME)
    assert door.command("validate").code == 0
    lab.write_text((FILE + BY_ACME).replace(*edit))
    assert door.command("validate").ended(64) == door.snapshot
