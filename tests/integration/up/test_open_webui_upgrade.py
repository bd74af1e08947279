"""An upgrade of a real Open WebUI while somebody writes: what was accepted is there afterwards, also where it fails.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.integration.up.quickstart_lab import Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("pyproject.toml", "src", "roles", "playbooks", "inventory")
FILES = "roles/open_webui/files"
EARLIER = "0.11.4"
"""The release before the one that the role has; a start of the later one changes its database."""
NAME = "e2ewebnew"
ADMIN, PASSWORD = "penny@home.example", "CANARY3-{{7*7}}-$x"
PORT = 8090
PAUSE_S = 0.2
GONE = "no connection"
FILE = lab_text("open_webui_upgrade")


@dataclass
class Web:
    """Open WebUI as people reach it."""

    url: str
    token: str = ""

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer; ``OSError`` or ``HTTPException`` where there is none."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310  # our own bridge
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as said:
                return said.status, json.load(said)
        except urllib.error.HTTPError as refusal:
            return refusal.code, json.loads(refusal.read())

    @property
    def version(self) -> str:
        """Its release."""
        return str(self.ask("GET", "/api/version")[1]["version"])


@dataclass
class Writer:
    """Somebody who keeps chats all the time; ``accepted`` are those of which they were told that they are kept."""

    web: Web
    accepted: list[str] = field(default_factory=list)
    statuses: Counter[int | str] = field(default_factory=Counter)

    def write(self) -> None:
        """Try to keep one more chat."""
        try:
            status, said = self.web.ask("POST", "/api/v1/chats/new", {"chat": {"title": f"{len(self.accepted)}"}})
        except (OSError, HTTPException):
            self.statuses[GONE] += 1
            return
        self.statuses[status] += 1
        if status == 200:
            self.accepted.append(said["id"])

    @property
    def lost(self) -> list[str]:
        """The chats that were accepted and are not there."""
        return [one for one in self.accepted if self.web.ask("GET", f"/api/v1/chats/{one}")[0] != 200]


@contextmanager
def writing(web: Web) -> Iterator[Writer]:
    """Somebody writes meanwhile."""
    writer, over = Writer(web), threading.Event()

    def go_on() -> None:
        while not over.wait(PAUSE_S):
            writer.write()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield writer
    finally:
        over.set()
        thread.join(PATIENCE_S)


def copy(folder: Path) -> Path:
    """A checkout of its own of what is tested here."""
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / part)
    return folder


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the earlier Open WebUI, its packages chosen as the role's page says."""
    tree = copy(tmp_path_factory.mktemp("earlier") / "tree")
    wanted = tree / FILES / "requirements.in"
    text = wanted.read_text(encoding="utf-8")
    lines = [line if line.startswith("#") else f"open-webui=={EARLIER}" for line in text.splitlines()]
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = [line.lstrip("# ").rstrip(" \\") for line in text.splitlines()]
    begin = next(number for number, line in enumerate(said) if line.startswith("uv pip compile"))
    command = " ".join(said[begin : begin + 3])
    uv = f"{Path(sys.executable).parent}/uv"
    subprocess.run(["sh", "-c", f"{uv}{command.removeprefix('uv')}"], cwd=tree / FILES, check=True, timeout=300)
    assert f"open-webui=={EARLIER}" in (tree / FILES / "requirements.txt").read_text(encoding="utf-8")
    return tree


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as what is tested here, with a proof that takes no answer for whole."""
    tree = copy(tmp_path_factory.mktemp("failing") / "tree")
    program = tree / "roles/open_webui/programs/prove.py"
    text = program.read_text(encoding="utf-8")
    assert 'WHOLE = ("stop", "length")' in text
    program.write_text(text.replace('WHOLE = ("stop", "length")', 'WHOLE = ("never",)'), encoding="utf-8")
    return tree


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory, earlier: Path) -> Iterator[Lab]:
    """The lab, up with the earlier Open WebUI."""
    lab = Lab(tmp_path_factory.mktemp("webnew"), incus_lab.environment, "debian/12", "debian/12", name=NAME)
    lab.write(FILE)
    with (lab.folder / "secrets.env").open("a", encoding="utf-8") as file:
        file.write(f"webui_password={PASSWORD}\n")
    with lab.gone_afterwards():
        made = lab.provision_of(earlier, "up", "--yes")
        assert made.code == 0, made.out[-4000:] + made.err[-4000:]
        yield lab


@pytest.fixture(scope="module")
def penny(lab: Lab) -> Web:
    """The administrator, signed in before anything is changed."""
    web = Web(f"http://{lab.address('web')}:{PORT}")
    status, said = web.ask("POST", "/api/v1/auths/signin", {"email": ADMIN, "password": PASSWORD})
    assert status == 200, said
    return Web(web.url, said["token"])


def assert_nothing_lost(writer: Writer, before: int) -> None:
    """All that was accepted is there, some of it from before it was closed; meanwhile the page was shown."""
    assert before > 0, "nobody had written before"
    assert len(writer.accepted) > before, "nobody has written since"
    assert writer.lost == [], writer.statuses
    assert writer.statuses[503] > 0, writer.statuses
    assert writer.statuses.keys() <= {200, 503, GONE}, writer.statuses


def written_before(writer: Writer) -> int:
    """How many chats were accepted before anything was begun."""
    deadline = time.monotonic() + 30
    while len(writer.accepted) < 3:
        assert time.monotonic() < deadline, writer.statuses
        time.sleep(PAUSE_S)
    return len(writer.accepted)


def test_an_upgrade_that_fails_goes_back_and_loses_nothing(lab: Lab, penny: Web, failing: Path) -> None:
    assert penny.version == EARLIER
    with writing(penny) as writer:
        before = written_before(writer)
        failed = lab.provision_of(failing, "up", "--yes")
        writer.write()
    assert failed.code == 3, failed.out[-4000:] + failed.err[-4000:]
    assert "its finish_reason is" in " ".join(failed.err.split())
    assert "web: rolled back to its last verified state" in failed.err
    assert "which works again" in failed.err
    assert penny.version == EARLIER
    assert_nothing_lost(writer, before)


def test_an_upgrade_keeps_what_was_written_and_who_had_signed_in(lab: Lab, penny: Web) -> None:
    with writing(penny) as writer:
        before = written_before(writer)
        done = lab.provision("up", "--yes")
        writer.write()
    assert done.code == 0, done.out[-4000:] + done.err[-4000:]
    assert penny.version != EARLIER
    assert penny.ask("GET", "/api/v1/auths/")[1]["email"] == ADMIN
    assert_nothing_lost(writer, before)
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of("CANARY")
