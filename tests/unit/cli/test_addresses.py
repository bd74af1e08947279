"""Where to go: ``up`` and ``status`` end with addresses, ``open`` opens the lab's pages, and clients get their key."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from provisioner.values.errors import UnavailableError
from tests.raising import raising
from tests.unit.cli.conftest import FILE, GATEWAY_KEY, World

WORD = "canary-password-of-the-chat"
CHAT = """\
  chat:
    services:
      open_webui: { connect: [gateway/litellm], admin: penny@home.example, password: !secret chat_word }
"""
DOOR = """\
  door:
    services:
      door: { expose: lan, authority: !secret authority, sites: { chat.home.example: chat/open_webui } }
"""
VOICE = """\
  voice:
    services:
      kokoro: { web_player: true }
"""
BOARD = """\
  board:
    image: debian/13
    services:
      oci:
        image: docker.io/library/nginx@sha256:DIGEST
        image_port: 8080
        pages: [/board/**, /static/**]
""".replace("DIGEST", "a" * 64)


@pytest.fixture
def people(world: World, lab: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A lab with a chat, a voice and an image that people open, on a machine without a screen; up."""
    lab.write_text(FILE + CHAT + VOICE + BOARD)
    secrets = lab.parent / "secrets.env"
    secrets.write_text(f"chat-word = '{WORD}'\n")
    secrets.chmod(0o600)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    world.done("up", "--yes")
    return world


def numbered(text: str) -> str:
    """Return the text with one number for all containers: which of them was made first is chance."""
    return re.sub(r"192\.0\.2\.\d+", "192.0.2.N", text)


def test_up_and_status_say_where_to_go_and_where_passwords_lie(people: World) -> None:
    there = people.done("status").printed
    assert numbered(there) == people.snapshot
    where = there[there.index("\nADDRESS") :]
    assert WORD not in there
    assert "ADDRESS" not in people.done("up", "--yes").printed, "it asks no host again"
    lab = Path("homelab.yml")
    lab.write_text(lab.read_text().replace("connect:", "max_body: 8388608, connect:"))
    assert people.done("up", "--yes").printed.partition("Up complete")[0].endswith(where)
    endpoint = people.done("status", "--json").of("endpoint")[1]
    assert endpoint | {"url": numbered(endpoint["url"])} == {
        "type": "endpoint",
        "service": "chat/open_webui",
        "kind": "page",
        "url": "http://192.0.2.N:8090/",
        "user": "penny@home.example",
        "secret": "chat-word in secrets.env",
        "next": "provision open chat/open_webui",
    }


def test_only_the_containers_that_are_named_are_told(people: World) -> None:
    assert [one["service"] for one in people.done("status", "chat", "--json").of("endpoint")] == ["chat/open_webui"]


def test_the_name_of_the_door_stands_in_place_of_an_address(
    people: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_text(FILE + CHAT + DOOR)
    monkeypatch.setenv("PROVISION_SECRET_AUTHORITY", "canary-authority-of-the-lab")
    people.done("up", "--yes")
    told = people.done("up", "--yes", "--json").of("endpoint")
    urls = {one["service"]: one["url"] for one in told}
    assert urls == {"gateway/litellm": "", "chat/open_webui": "https://chat.home.example/"}, "it asks no host again"


def test_what_does_not_run_has_no_address(people: World) -> None:
    people.done("down", "--yes")
    assert "ADDRESS  " not in people.done("status").out.partition("DRIFT")[2]
    assert {one["url"] for one in people.done("status", "--json").of("endpoint")} == {""}


@pytest.mark.parametrize("name", ["chat", "voice", "board", "board/oci"])
def test_without_a_screen_the_address_of_a_page_is_printed(people: World, name: str) -> None:
    assert numbered(people.command("open", name).ended(0)) == people.snapshot


@pytest.mark.parametrize("names", [("llama",), (), ("nobody",), ("lab.html",)], ids=["api", "several", "none", "file"])
def test_what_is_no_page_is_refused_with_those_that_are(people: World, names: tuple[str, ...]) -> None:
    assert people.command("open", *names).ended(64) == people.snapshot


def test_with_a_screen_the_browser_gets_the_address(
    people: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    browser = tmp_path / "xdg-open"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    (tmp_path / "lab.html").write_text("<p>")
    assert numbered(people.command("open", "chat").ended(0)) == people.snapshot
    assert people.command("open", "lab.html").code == 0
    assert [(program, numbered(url)) for program, url in started] == [
        (str(browser), "http://192.0.2.N:8090/"),
        (str(browser), (tmp_path / "lab.html").as_uri()),
    ]


@pytest.mark.parametrize(
    "line",
    [
        f"PROVISION_SECRET_GATEWAY_KEY={GATEWAY_KEY}",
        f"gateway-key = {GATEWAY_KEY}  ",
        f"export GATEWAY_KEY='{GATEWAY_KEY}'",
        f'# GATEWAY_KEY=sk-old\n  gateway_key="{GATEWAY_KEY}"\r',
        f"another_gateway_key=sk-other\ngateway_key={GATEWAY_KEY}",
        f"\ufeffgateway_key={GATEWAY_KEY}",
    ],
)
def test_a_shell_that_takes_the_clients_settings_has_the_key(
    up: World, lab: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.delenv("PROVISION_SECRET_GATEWAY_KEY")
    secrets = lab.parent / "secrets.env"
    secrets.write_text(f"{line}\n")
    secrets.chmod(0o600)
    said = up.done("show", "--client", "openai").out
    assert GATEWAY_KEY not in said
    assert key_after(said) == GATEWAY_KEY
    assert key_after(f"PROVISION_SECRET_GATEWAY_KEY=sk-new\n{said}") == "sk-new"


def test_a_shell_asks_the_command_of_the_file_for_the_key(
    up: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROVISION_SECRET_GATEWAY_KEY")
    lab.write_text(f"{FILE}secrets: {{ command: [echo, 'sk-of a {{name}}'] }}\n")
    assert key_after(up.done("show", "--client", "openai").out) == "sk-of a gateway_key"


def key_after(settings: str) -> str:
    """Return the key that a shell has once it has taken these settings."""
    script = f'{settings}\nprintf %s "$OPENAI_API_KEY"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout


def test_up_that_cannot_ask_for_addresses_has_been_done_all_the_same(
    up: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = raising(UnavailableError("Unable to reach host box"))
    monkeypatch.setattr("provisioner.cli.gateways.asked_addresses", away)
    lab.write_text(lab.read_text().replace("  gateway:\n", "  gateway:\n    cpu: 1\n"))
    answer = up.command("up", "--yes")
    assert answer.code == 0
    assert "Unable to say where to go" in answer.err
    assert "Unable to reach host box" in answer.err


def test_a_lab_with_a_weak_password_can_be_stopped_and_deleted(people: World, lab: Path) -> None:
    (lab.parent / "secrets.env").write_text("chat-word = 'password1'\n")
    assert people.command("validate").code == 64
    assert people.command("up", "--yes").code == 64
    assert people.command("down", "--yes").code == 0
    assert people.command("destroy", "--yes", "--lab", "homelab").code == 0
