"""A chat for people, whole: a real browser signs in to a real Open WebUI, and a real engine answers through a gateway.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.up.quickstart_lab import MASTER_KEY, Lab, sh
from tests.integration.up.webdriver import browser_in, program
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME = "e2ewebui"
ADMIN, PASSWORD = "penny@home.example", "CANARY3-{{7*7}}-$x"
PORT = 8090
FILE = lab_text("open_webui")
browse = program("browse")
PICTURES = os.environ.get("PROVISION_TEST_PICTURES", "")
"""A folder in which pictures are kept; without it they are looked at and gone."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: what its first ``up`` said is its first run."""
    lab = Lab(tmp_path_factory.mktemp("webui"), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with (lab.folder / "secrets.env").open("a", encoding="utf-8") as file:
        file.write(f"webui_password={PASSWORD}\n")
    with lab.brought_up():
        yield lab


@pytest.fixture(scope="module")
def browser(lab: Lab) -> Any:
    return browser_in(lab, "web")


def test_it_is_proved_and_the_next_run_has_nothing_to_do(lab: Lab) -> None:
    assert lab.runs[0].checks == {"llama/llama_cpp": True, "gateway/litellm": True, "web/open_webui": True}
    lab.succeeded("plan", "--detailed-exitcode")
    lab.succeeded("verify")


def test_what_its_proof_saw_is_kept_and_told(lab: Lab) -> None:
    folder = lab.folder / ".provision/screens/web/open_webui"
    told = " ".join(lab.provision("status").out.split())
    for name, shows in (("sign_in", "the page on which one signs in"), ("chat", "an answer of fast")):
        assert (folder / f"{name}.png").stat().st_size > 10_000
        assert shows in told
        if PICTURES:
            shutil.copy(folder / f"{name}.png", Path(PICTURES) / f"proof-{name}.png")


def asked(lab: Lab, method: str, path: str, token: str = "", body: object = None) -> Any:
    """What Open WebUI answers over its API."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    content = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"http://{lab.address('web')}:{PORT}{path}", content, headers, method=method)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=60) as answer:
        return json.load(answer)


def rows(lab: Lab) -> str:
    """How many rows each table of its database has."""
    program = (
        "import sqlite3; found = sqlite3.connect('file:/var/lib/open-webui/webui.db?mode=ro', uri=True); "
        "names = [name for name, in found.execute(\"select name from sqlite_master where type = 'table'\")]; "
        "print([(name, found.execute(f'select count(*) from [{name}]').fetchone()[0]) for name in sorted(names)])"
    )
    return sh(lab, "web", f"python3 -c {shlex.quote(program)}")


def test_an_audit_finds_nothing_and_adds_nothing(lab: Lab) -> None:
    before = rows(lab)
    lab.succeeded("audit", "web")
    assert rows(lab) == before
    assert "user" in before


def test_a_chat_in_which_people_may_sign_up_is_found(lab: Lab) -> None:
    token = asked(lab, "POST", "/api/v1/auths/signin", body={"email": ADMIN, "password": PASSWORD})["token"]
    path = "/api/v1/auths/admin/config"
    config = asked(lab, "GET", path, token)
    asked(lab, "POST", path, token, {**config, "ENABLE_SIGNUP": True})
    audited = lab.provision("audit", "web")
    assert (audited.code, "with features.enable_signup: true" in audited.out) == (3, True), audited.out
    asked(lab, "POST", path, token, config)
    assert lab.provision("audit", "web").code == 0


def test_somebody_signs_in_and_is_answered(lab: Lab, browser: Any, tmp_path: Path) -> None:
    pictures = Path(PICTURES) if PICTURES else tmp_path
    browser.open(f"http://{lab.address('web')}:{PORT}/auth")
    browser.write("input[type=email]", ADMIN)
    (pictures / "sign-in.png").write_bytes(browser.picture())
    browser.write("input[type=password]", PASSWORD + browse.ENTER)
    browser.write("#chat-input", "Say hello." + browse.ENTER, clears=browse.CLOSES_THE_NEWS)
    browse.until(lambda: str(browser.run(browse.ANSWER)).strip(), "no answer comes", browser.text)
    browse.until(lambda: browser.run(browse.IS_DONE), "the answer does not end", browser.text)
    (pictures / "chat.png").write_bytes(browser.picture())
    assert (pictures / "chat.png").stat().st_size > 10_000


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of("CANARY", MASTER_KEY)
