"""A door of the file: what ``validate`` refuses with its line, and the root certificate that ``show --ca`` prints."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from provisioner.authority import Authority
from tests.signed_pairs import NOW, signed
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
    answer = world.command("show", "--ca")
    assert answer.code == 64
    assert "no service of the file has an authority of its own" in answer.err
    assert "Add a door, such as door." in answer.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Chat.home.example", "not the name of a site"),
        ("192.168.1.5", "not the name of a site"),
        ("chat_home.example", "not the name of a site"),
        ("https://chat.home.example", "not the name of a site"),
        ("chat.home.example:443", "not the name of a site"),
        ("*.home.example", "not the name of a site"),
        ("a..b", "not the name of a site"),
        (f"{'a' * 64}.b", "not the name of a site"),
    ],
)
def test_what_is_no_host_name_is_refused_with_its_line(door: World, lab: Path, name: str, words: str) -> None:
    lab.write_text((FILE + DOOR).replace("chat.home.example:", f"{name!r}:"))
    answer = door.command("validate")
    assert answer.code == 64
    assert "homelab.yml:15: containers.door.services.door.sites." in answer.err
    assert words in answer.err


def test_a_short_secret_is_refused_and_not_shown(door: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", "short-canary")
    answer = door.command("validate")
    assert answer.code == 64
    assert "homelab.yml:15: containers.door.services.door.authority: the value must have at least 20" in answer.err
    assert "short-canary" not in answer.out + answer.err


def test_what_is_no_service_is_refused_and_nothing_is_touched(door: World, lab: Path) -> None:
    lab.write_text((FILE + DOOR).replace("gateway/litellm }", "gateway/litelm }"))
    answer = door.command("up", "--yes")
    assert answer.code == 64
    assert 'sites."chat.home.example": no service "gateway/litelm" in this file' in answer.err
    assert door.played == []


GIVEN = """\
  door:
    services:
      door:
        certificate: tls/chain.pem
        certificate_key: !secret door_key
        sites: { chat.home.example: gateway/litellm }
"""
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
    ("chain", "key", "said"),
    [
        (
            signed("late", BETWEEN, "chat.home.example", ends=NOW - timedelta(days=1)).chain,
            PAIR.key,
            "homelab.yml:16: containers.door.services.door.certificate: the certificate expired on ",
        ),
        (
            PAIR.chain,
            signed("stranger").key,
            "homelab.yml:17: containers.door.services.door.certificate_key: it is not the key of the certificate",
        ),
        (
            signed("other", BETWEEN, "api.home.example").chain,
            PAIR.key,
            'homelab.yml:18: containers.door.services.door.sites."chat.home.example": the certificate is not for this',
        ),
    ],
)
def test_a_pair_that_does_not_fit_is_refused_with_its_line(
    given: World, lab: Path, chain: str, key: str, said: str
) -> None:
    with_pair(lab, chain, key)
    for words in (["validate"], ["plan"], ["up", "--yes"]):
        answer = given.command(*words)
        assert answer.code == 64
        assert said in answer.err
        assert not {line for line in key.splitlines() if not line.startswith("--")} & set(answer.err.split())
    assert given.played == []


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("tls/chain.pem", "tls/none.pem"), "tls/none.pem cannot be read: No such file or directory"),
        (("tls/chain.pem", "tls"), "tls cannot be read: it is no regular file"),
        (
            ("        certificate_key: !secret door_key\n", ""),
            "needs certificate_key: certificate and key belong together",
        ),
        (("        certificate: tls/chain.pem\n", ""), "needs an authority, or a certificate"),
        (
            ("        certificate: tls", "        authority: !secret authority\n        certificate: tls"),
            "authority and certificate are both written, and one of them says where",
        ),
    ],
)
def test_half_a_pair_and_a_file_that_is_not_there_are_refused(
    given: World, lab: Path, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, str], words: str
) -> None:
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", AUTHORITY)
    lab.write_text((FILE + GIVEN).replace(*edit))
    answer = given.command("validate")
    assert answer.code == 64
    assert words in answer.err


def test_a_certificate_that_ends_soon_is_a_warning_with_its_line(given: World, lab: Path) -> None:
    soon = signed("soon", BETWEEN, "chat.home.example", ends=NOW + timedelta(days=5, hours=1))
    with_pair(lab, soon.chain, soon.key)
    answer = given.command("validate")
    assert answer.code == 0
    assert "homelab.yml:16: containers.door.services.door.certificate: it ends on " in answer.err


@pytest.mark.parametrize(
    ("port", "url"), [("", "https://api.home.example"), ("port: 8443, ", "https://api.home.example:8443")]
)
def test_clients_are_told_the_site_of_the_gateway(door: World, lab: Path, port: str, url: str) -> None:
    lab.write_text((FILE + DOOR).replace("expose: lan, ", port).replace("chat.", "api."))
    answer = door.command("show", "--client", "openai")
    assert answer.code == 0
    assert f"export OPENAI_BASE_URL={url}/v1\n" in answer.out
    assert "clients have to trust its root" in answer.err
    assert "provision show --ca homelab.yml prints it." in answer.err


def test_a_certificate_of_ones_own_needs_no_root_and_a_site_of_another_service_is_not_the_gateway_s(
    given: World, lab: Path
) -> None:
    answer = given.command("show", "--client", "openai")
    assert "OPENAI_BASE_URL=https://chat.home.example/v1\n" in answer.out
    assert "root" not in answer.err
    lab.write_text((FILE + GIVEN).replace("gateway/litellm }", "llama/llama_cpp }"))
    assert given.command("up", "--yes").code == 0
    address = given.host.containers["gateway"].instance.address
    assert f"OPENAI_BASE_URL=http://{address}:4000/v1\n" in given.command("show", "--client", "openai").out


BY_ACME = """\
  door:
    services:
      door: { acme_email: penny@home.example, acme_agree: true, sites: { chat.home.example: gateway/litellm } }
"""


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("acme_agree: true, ", ""), "services.door.acme_email: nobody gets a certificate from https://acme-v02."),
        (
            ("acme_agree: true", "acme_agree: false"),
            "services.door.acme_email: nobody gets a certificate from https://",
        ),
        (
            ("penny@home.example", "penny"),
            'services.door.acme_email: "penny" must be an address such as penny@home.example',
        ),
        (
            ("acme_agree: true", 'acme_agree: true, acme_directory: "http://a.example/"'),
            'services.door.acme_directory: "http://a.example/" must be an address that begins',
        ),
        (
            ("acme_agree: true", "acme_agree: true, authority: !secret authority"),
            "services.door.acme_email: authority and acme_email are both written",
        ),
    ],
)
def test_what_nobody_would_sign_by_acme_is_refused_with_its_line(
    door: World, lab: Path, edit: tuple[str, str], words: str
) -> None:
    lab.write_text(FILE + BY_ACME)
    assert door.command("validate").code == 0
    lab.write_text((FILE + BY_ACME).replace(*edit))
    answer = door.command("validate")
    assert answer.code == 64
    assert words in answer.err
    assert "homelab.yml:15: " in answer.err
