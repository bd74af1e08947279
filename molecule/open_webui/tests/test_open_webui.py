"""Open WebUI as people meet it, through its switch; and its role's proof, which must fail where it is broken."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from testinfra.host import Host

from tests.case_files import read_case

SCENARIO = Path(__file__).resolve().parents[1]
UNIT = "open-webui.service"
CLOSES = "open-webui-closed.service"
BROWSER = json.dumps({"open_webui_proof": "browser"})
PICTURES = "/var/lib/provisioner/open_webui"
SEEN = os.environ.get("PROVISION_TEST_PICTURES", "")
"""A folder in which pictures are kept; without it they are looked at and gone."""
DROP_IN = f"/run/systemd/system/{UNIT}.d"
SECURITY_LIMIT = 30  # systemd counts in tenths: 3.0
PORT, ENGINE_PORT = 8090, 9001
READY_S = 120
TECHNICAL = "provisioner@localhost"
HTML = {"Accept": "text/html,application/xhtml+xml"}
PAUSE_S = 1.0
"""Between the parts of an answer that is slow; it has four of them, and an end."""

VARS = read_case(SCENARIO / "vars.yml")
ADMIN, PASSWORD = VARS["open_webui_admin"], VARS["open_webui_password"]
ENGINE, VOICE = VARS["open_webui_connect"]
SECRETS = [PASSWORD, ENGINE["api_key"]]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    said: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> Any:
        """Its JSON."""
        return json.loads(self.said)


@dataclass
class Web:
    """Open WebUI, reached from the host as the LAN does, and its engine."""

    address: str
    host: Host
    token: str = ""

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request of whoever has signed in; an answer that is an error is an answer."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        return asked(f"http://{self.address}:{PORT}{path}", method, data, sent)

    def signed_in(self, email: str = ADMIN, password: str = PASSWORD) -> Web:
        """The same as this user."""
        said = self.ask("POST", "/api/v1/auths/signin", {"email": email, "password": password})
        assert said.status == 200, said
        return Web(self.address, self.host, said.body["token"])

    def tell(self, mode: str) -> None:
        """Have the engine answer, or fail in one of the ways of files/engine.py."""
        asked(f"http://{self.address}:{ENGINE_PORT}/mode", "PUT", mode.encode(), {})

    def seen(self) -> dict[str, Any]:
        """What the engine has seen."""
        found: dict[str, Any] = asked(f"http://{self.address}:{ENGINE_PORT}/seen", "GET", None, {}).body
        return found

    def chat(self, **more: Any) -> Answer:
        """A question to the model."""
        question = {"model": "small", "messages": [{"role": "user", "content": "Say hello."}], **more}
        return self.ask("POST", "/api/chat/completions", question)


def asked(url: str, method: str, data: bytes | None, headers: dict[str, str]) -> Answer:
    request = urllib.request.Request(url, data=data, headers=headers, method=method)  # noqa: S310  # http to a container
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as said:
            return Answer(said.status, said.read(), names(said.headers))
    except urllib.error.HTTPError as refusal:
        return Answer(refusal.code, refusal.read(), names(refusal.headers))


def names(headers: Message) -> dict[str, str]:
    """The headers by their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


@pytest.fixture(scope="module")
def web(host: Host) -> Web:
    return Web(host.check_output("hostname -I").split()[0], host)


@pytest.fixture(scope="module")
def penny(web: Web) -> Web:
    """The administrator of the file, signed in."""
    return web.signed_in()


@pytest.fixture
def whole(web: Web) -> Iterator[Web]:
    """All is well again when the test is over; that others have started it so often does not count."""
    web.host.check_output(f"systemctl reset-failed {UNIT}")
    yield web
    web.tell("answer")
    web.host.check_output(f"systemctl stop {CLOSES}")
    changed = f"[ ! -e {DROP_IN} ] || {{ rm -r {DROP_IN}; systemctl daemon-reload; systemctl restart {UNIT}; }}"
    web.host.check_output(f"{changed}; systemctl reset-failed {UNIT}; systemctl start {UNIT}")
    wait_until(lambda: web.ask("GET", "/ready").status == 200, READY_S)


def wait_until(condition: Any, timeout_s: float = 20) -> None:
    """Poll ``condition`` until it is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.25)


def playbook(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on the scenario's containers; both of its streams are in ``stdout``."""
    inventory = os.environ["MOLECULE_INVENTORY_FILE"]
    command = ["ansible-playbook", "--inventory", inventory, str(SCENARIO / name), *arguments]
    return subprocess.run(
        command,
        env=os.environ | {"ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )


def proof(**values: Any) -> subprocess.CompletedProcess[str]:
    return playbook("verify_alone.yml", *(("--extra-vars", json.dumps(values)) if values else ()))


def assert_fails(ran: subprocess.CompletedProcess[str], *words: str) -> None:
    assert ran.returncode != 0, ran.stdout
    text = " ".join(ran.stdout.replace("\\n", " ").split())
    for word in words:
        assert word in text, ran.stdout
    for secret in SECRETS:
        assert secret not in ran.stdout


# What is there.


def test_the_unit_is_locked_up_and_starts_at_boot(host: Host) -> None:
    service = host.service("open-webui")
    assert service.is_running
    assert service.is_enabled
    for unit in (UNIT, CLOSES):
        host.check_output(f"systemd-analyze security --no-pager --threshold={SECURITY_LIMIT} {unit}")
    main = host.check_output(f"systemctl show --property MainPID --value {UNIT}")
    assert host.check_output(f"ps -o user= -p {main}") == "open-webui"


def test_secrets_lie_where_only_root_reads_them_and_nowhere_else(host: Host) -> None:
    for name in ("secrets.env", "key.env", "technical.json"):
        file = host.file(f"/etc/open-webui/{name}")
        assert (file.user, file.group, file.mode) == ("root", "root", 0o600), name
    made = json.loads(host.file("/etc/open-webui/technical.json").content_string)["passwords"]
    assert len(made) == 1
    journal = host.check_output("journalctl --no-pager")
    argv = host.check_output("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    unit = host.file(f"/etc/systemd/system/{UNIT}").content_string
    for secret in (*SECRETS, *made):
        assert secret not in journal + argv + unit


def test_no_model_is_computed_by_itself(host: Host) -> None:
    names = host.check_output("ls /opt/open_webui/venv/lib/python3.11/site-packages").split()
    assert {"torch", "transformers", "faster_whisper", "onnxruntime"}.isdisjoint(names)
    assert "open_webui" in names


def test_its_memory_is_what_the_page_says(host: Host) -> None:
    used = int(host.check_output(f"systemctl show --property MemoryCurrent --value {UNIT}"))
    assert used < 2**30, "the container's default is twice that"


# What it does for people.


def test_the_administrator_of_the_file_signs_in(penny: Web) -> None:
    about = penny.ask("GET", "/api/v1/auths/").body
    assert (about["email"], about["role"]) == (ADMIN, "admin")


def test_nobody_signs_up(web: Web) -> None:
    wanted = {"name": "x", "email": "x@home.example", "password": "long enough"}
    assert web.ask("POST", "/api/v1/auths/signup", wanted).status == 403
    assert web.ask("GET", "/api/config").body["features"]["enable_signup"] is False


def test_an_answer_comes_from_the_engine_with_its_key(penny: Web) -> None:
    names = {model["id"] for model in penny.ask("GET", "/api/models").body["data"]}
    assert names == {"small", "other"}
    said = penny.chat().body
    assert said["choices"][0]["message"]["content"] == "Hello from the engine"
    assert penny.seen()["refused"] == 0


def test_it_reads_aloud_by_the_service_of_the_file(penny: Web) -> None:
    tts = penny.ask("GET", "/api/v1/audio/config").body["tts"]
    told = {name: tts[name] for name in ("ENGINE", "OPENAI_API_BASE_URL", "MODEL", "VOICE")}
    expected = {"ENGINE": "openai", "OPENAI_API_BASE_URL": VOICE["url"], "MODEL": "kokoro", "VOICE": "af_sky"}
    assert told == expected


def test_documents_are_made_searchable_by_the_service_of_the_file(penny: Web) -> None:
    now = penny.ask("GET", "/api/v1/retrieval/embedding").body
    assert (now["RAG_EMBEDDING_ENGINE"], now["RAG_EMBEDDING_MODEL"]) == ("openai", "find")
    assert now["openai_config"] == {"url": "http://127.0.0.1:9001/v1", "key": VARS["open_webui_embeddings_key"]}
    assert penny.ask("GET", "/api/v1/retrieval/config").body["BYPASS_EMBEDDING_AND_RETRIEVAL"] is False


def test_pages_and_what_they_load_are_there(web: Web) -> None:
    page = web.ask("GET", "/", headers=HTML)
    assert (page.status, b"Open WebUI" in page.said) == (200, True)
    for path in ("/auth", "/c/some-chat", "/static/loader.js", "/manifest.json", "/admin/users"):
        assert web.ask("GET", path, headers=HTML).status == 200, path


@pytest.mark.parametrize(
    "path",
    [
        "/docs",
        "/openapi.json",
        "/ollama/api/tags",
        "/metrics",
        "/api/../docs",
        "/api/%2e%2e/docs",
        "//docs",
        "/scim/v2/Users",
    ],
)
def test_what_is_on_no_list_is_closed(penny: Web, path: str) -> None:
    with socket.create_connection((penny.address, PORT), 10) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert link.makefile("rb").readline().split()[1] == b"404"


def test_pages_of_other_sites_may_not_ask(penny: Web) -> None:
    own = {"Origin": f"http://{penny.address}:{PORT}"}
    assert penny.ask("GET", "/api/v1/auths/", headers=own).status == 200
    for other in ("https://evil.example", "null", f"http://{penny.address}"):
        assert penny.ask("GET", "/api/v1/auths/", headers={"Origin": other}).status == 403, other


@contextmanager
def websocket(web: Web) -> Iterator[tuple[bytes, BinaryIO]]:
    """The status of a page's request for a connection that stays open, and what comes by it."""
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection((web.address, PORT), 30) as link:
        link.sendall(
            f"GET /ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {web.address}:{PORT}\r\n"
            f"Origin: http://{web.address}:{PORT}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        stream = link.makefile("rb")
        status = stream.readline().split()[1]
        while stream.readline().strip():
            pass
        yield status, stream


def test_a_websocket_goes_through(web: Web) -> None:
    with websocket(web) as (status, stream):
        assert status == b"101"
        assert b'"sid"' in stream.read(40)


# While it is stopped and changed.


def test_while_it_is_stopped_people_see_a_page_that_says_so(whole: Web) -> None:
    whole.host.check_output(f"systemctl stop {UNIT}")
    page = whole.ask("GET", "/", headers=HTML)
    assert (page.status, b"Back in a moment" in page.said) == (503, True)
    assert page.headers["retry-after"]
    script = whole.ask("GET", "/api/config")
    assert (script.status, script.body["error"]["code"]) == (503, 503)


def test_a_request_is_finished_before_it_is_stopped(whole: Web, penny: Web) -> None:
    whole.tell(f"slow {PAUSE_S}")
    before = whole.seen()
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(penny.chat(stream=False)), daemon=True)
    thread.start()
    wait_until(lambda: whole.seen()["asked"] > before["asked"])
    whole.host.check_output(f"systemctl stop {UNIT}")
    thread.join(timeout=60)
    assert [one.status for one in answers] == [200]
    assert answers[0].body["choices"][0]["message"]["content"] == "Hello from the engine"


def test_an_answer_goes_on_when_its_browser_has_gone(whole: Web, penny: Web) -> None:
    """The page asks for an answer and gets the number of a task: the answer is written into its chat."""
    messages = {"u": {"id": "u", "role": "user", "content": "hi", "parentId": None, "childrenIds": ["a"]}}
    messages["a"] = {
        "id": "a",
        "role": "assistant",
        "content": "",
        "parentId": "u",
        "childrenIds": [],
        "model": "small",
    }
    chat = {"title": "t", "models": ["small"], "history": {"messages": messages, "currentId": "a"}}
    kept = penny.ask("POST", "/api/v1/chats/new", {"chat": chat}).body["id"]
    whole.tell(f"slow {PAUSE_S}")
    before = whole.seen()
    begun = penny.chat(stream=True, chat_id=kept, id="a", session_id="gone").body
    assert begun.get("task_id") or begun.get("task_ids"), begun
    wait_until(lambda: whole.seen()["asked"] > before["asked"])
    whole.host.check_output(f"systemctl stop {UNIT}")
    assert whole.seen()["whole"] == before["whole"] + 1
    whole.host.check_output(f"systemctl start {UNIT}")
    wait_until(lambda: whole.ask("GET", "/ready").status == 200, READY_S)
    answer = penny.ask("GET", f"/api/v1/chats/{kept}").body["chat"]["history"]["messages"]["a"]
    assert answer["content"] == "Hello from the engine"


# While its container may go back: nobody writes what would be lost.


def is_closed(web: Web) -> bool:
    """Whether people see the page, and scripts are told to come again, as the server itself answers."""
    page, script, ready = (
        web.ask("GET", "/", headers=HTML),
        web.ask("GET", "/api/config"),
        web.ask("GET", "/ready"),
    )
    assert ready.status == 200
    assert page.status == script.status
    assert (page.status == 503) == (b"Back in a moment" in page.said)
    return page.status == 503


def test_people_are_kept_out_and_whoever_proves_it_is_not(whole: Web, penny: Web) -> None:
    assert not is_closed(whole)
    whole.host.check_output(f"systemctl start {CLOSES}")
    assert is_closed(whole)
    for path in ("/api/v1/chats/new", "/api/chat/completions"):
        assert penny.ask("POST", path, {}).status == 503, path
    with websocket(whole) as (status, _):
        assert status == b"503"
    ran = proof()
    assert ran.returncode == 0, ran.stdout
    assert is_closed(whole)
    whole.host.check_output(f"systemctl stop {CLOSES}")
    assert not is_closed(whole)
    assert penny.chat().status == 200


def test_only_root_gets_past_it(whole: Web) -> None:
    folder, door = whole.host.file("/run/switch-open-webui"), whole.host.file("/run/switch-open-webui/inside.sock")
    assert (folder.mode, door.mode, door.user) == (0o700, 0o600, "haproxy")


@pytest.mark.parametrize("unit", ["switch-open-webui.service", UNIT])
def test_it_stays_closed_whatever_is_started_anew(whole: Web, unit: str) -> None:
    whole.host.check_output(f"systemctl start {CLOSES} && systemctl restart {unit}")
    wait_until(lambda: whole.ask("GET", "/ready").status == 200, READY_S)
    assert is_closed(whole)


def test_nothing_closes_it_when_its_container_starts(web: Web) -> None:
    """So that one that has gone back to an earlier state is open."""
    assert web.host.run(f"systemctl is-enabled {CLOSES}").stdout.strip() == "static"
    assert web.host.check_output(f"systemctl show --property WantedBy,RequiredBy --value {CLOSES}").strip() == ""


def test_when_its_container_stops_it_is_opened_last(web: Web) -> None:
    """They stop in the reverse order: seen with the other one, a chat was accepted just before it was given up."""
    later = set(web.host.check_output(f"systemctl show --property Before --value {CLOSES}").split())
    assert {UNIT, "switch-open-webui.service"} <= later


def test_what_is_being_written_is_finished_before_it_counts_as_closed(whole: Web, penny: Web) -> None:
    whole.tell(f"slow {PAUSE_S}")
    before = whole.seen()
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(penny.chat(stream=False)), daemon=True)
    thread.start()
    wait_until(lambda: whole.seen()["asked"] > before["asked"])
    with websocket(whole) as (_, stream):
        whole.host.check_output(f"systemctl start {CLOSES}")
        assert whole.seen()["whole"] == before["whole"] + 1
        stream.read()  # to its end: it is over
    thread.join(timeout=60)
    assert [one.status for one in answers] == [200]


def test_one_that_does_not_answer_is_closed_all_the_same(whole: Web) -> None:
    whole.host.check_output(f"systemctl stop {UNIT} && systemctl start {CLOSES}")
    assert "Unable to wait for its answers" in whole.host.check_output(f"journalctl --unit {CLOSES} --output cat")
    whole.host.check_output(f"systemctl start {UNIT}")
    wait_until(lambda: whole.ask("GET", "/ready").status == 200, READY_S)
    assert is_closed(whole)


def test_where_the_switch_cannot_be_closed_the_unit_says_so_and_it_stays_open(whole: Web) -> None:
    program = "/usr/local/lib/switch/control.py"
    try:
        whole.host.check_output(f"mv {program} {program}.away")
        assert whole.host.run(f"systemctl start {CLOSES}").rc != 0
    finally:
        whole.host.check_output(f"mv {program}.away {program}")
    assert whole.host.run(f"systemctl is-active {CLOSES}").stdout.strip() == "failed"
    assert not is_closed(whole)
    whole.host.check_output(f"systemctl reset-failed {CLOSES}")


# Its own proof.


def collections(host: Host) -> set[str]:
    """The names of what its vectors are kept in."""
    query = "import sqlite3; print(*(row[0] for row in sqlite3.connect(PATH).execute('SELECT name FROM collections')))"
    path = "'file:/var/lib/open-webui/vector_db/chroma.sqlite3?mode=ro', uri=True"
    return set(host.check_output(f'python3 -c "{query.replace("PATH", path)}"').split())


def test_the_proof_passes_and_leaves_nothing(whole: Web) -> None:
    made = json.loads(whole.host.file("/etc/open-webui/technical.json").content_string)["passwords"][0]
    technical = whole.signed_in(TECHNICAL, made)
    ran = proof()
    assert ran.returncode == 0, ran.stdout
    assert technical.ask("GET", "/api/v1/chats/").body == []
    for kept in ("files", "knowledge"):
        assert technical.ask("GET", f"/api/v1/{kept}/").body["items"] == [], kept
    assert whole.host.check_output("ls /var/lib/open-webui/uploads") == ""
    assert collections(whole.host) <= {"knowledge-bases"}, "its own deletion of a file would leave its vectors"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("empty", "small gave an empty answer"),
        ("cut", "the answer of small was cut: its finish_reason is abort"),
        ("fail", "out of memory"),
        ("no vectors", "a document cannot be made searchable"),
        ("no vectors", "itself says: POST /embeddings: status 500"),
        ("one vector", "different documents have the same vector"),
    ],
)
def test_an_engine_that_does_not_answer_is_found(whole: Web, mode: str, words: str) -> None:
    whole.tell(mode)
    assert_fails(proof(), words)


def test_a_model_that_is_not_offered_is_found(web: Web) -> None:
    assert_fails(proof(open_webui_connect=[{**ENGINE, "model": "large"}]), "it does not offer large")
    assert web.ask("GET", "/ready").status == 200


@pytest.fixture(scope="module")
def browser(host: Host) -> Host:
    """The container with the browser that proves it."""
    ran = playbook("converge.yml", "--tags", "open_webui_install", "--extra-vars", BROWSER)
    assert ran.returncode == 0, ran.stdout
    return host


def test_a_browser_signs_in_and_is_answered_also_while_people_are_kept_out(
    whole: Web, browser: Host, tmp_path: Path
) -> None:
    whole.host.check_output(f"systemctl start {CLOSES}")
    ran = proof(open_webui_proof="browser")
    assert ran.returncode == 0, ran.stdout
    shows = json.loads(browser.file(f"{PICTURES}/proof.json").content_string)["pictures"]
    assert shows == {"sign_in": "the page on which one signs in", "chat": "an answer of small"}
    for name in shows:
        picture = browser.file(f"{PICTURES}/{name}.png").content
        assert picture.startswith(b"\x89PNG"), name
        assert len(picture) > 10_000, name
        (Path(SEEN or tmp_path) / f"{name}.png").write_bytes(picture)
    assert "chrome" not in browser.check_output("ps -e -o args="), "it has ended"
    made = json.loads(browser.file("/etc/open-webui/technical.json").content_string)["passwords"][0]
    assert made not in ran.stdout + browser.check_output("journalctl --no-pager")
    again = proof()
    assert again.returncode == 0, again.stdout
    assert not browser.file(f"{PICTURES}/proof.json").exists, "they are of a proof that is over"


def test_what_only_a_browser_sees_is_found(browser: Host) -> None:
    """Whoever serves it may have a style of their own, here one that shows nothing to write into."""
    style = "/var/lib/open-webui/static/custom.css"
    browser.check_output(f"cp -p {style} {style}.away && echo 'input {{ display: none }}' > {style}")
    try:
        assert proof().returncode == 0, "programs can sign in"
        assert_fails(proof(open_webui_proof="browser"), "with a browser: something is in front of input[type=email]")
    finally:
        browser.check_output(f"mv {style}.away {style}")
    assert browser.file(f"{PICTURES}/failed.png").exists


def test_a_browser_that_is_not_there_is_found(whole: Web, browser: Host) -> None:
    browser.check_output("mv /usr/bin/chromedriver /usr/bin/chromedriver.away")
    try:
        assert_fails(proof(open_webui_proof="browser"), "with a browser:", "chromedriver")
    finally:
        browser.check_output("mv /usr/bin/chromedriver.away /usr/bin/chromedriver")
    assert whole.ask("GET", "/ready").status == 200


def test_an_open_sign_up_is_found_and_closed_again(whole: Web, penny: Web) -> None:
    config = penny.ask("GET", "/api/v1/auths/admin/config").body
    assert penny.ask("POST", "/api/v1/auths/admin/config", {**config, "ENABLE_SIGNUP": True}).status == 200
    assert_fails(proof(), "a stranger can sign up")
    assert penny.ask("GET", "/api/v1/users/search?query=stranger").body["users"] == [], "the proof changes nothing"
    ran = playbook("converge.yml")
    assert ran.returncode == 0, ran.stdout
    assert whole.ask("GET", "/api/config").body["features"]["enable_signup"] is False


def test_a_server_that_is_not_in_production_is_found(whole: Web) -> None:
    whole.host.check_output(
        f"mkdir -p {DROP_IN} && printf '[Service]\\nEnvironment=ENV=dev\\n' > {DROP_IN}/dev.conf"
        f" && systemctl daemon-reload && systemctl restart {UNIT}"
    )
    wait_until(lambda: whole.ask("GET", "/ready").status == 200, READY_S)
    assert_fails(proof(), "shows developers' pages")


def test_a_user_of_ours_that_cannot_sign_in_is_found_and_mended(whole: Web) -> None:
    whole.host.check_output('echo \'{"passwords": ["another"]}\' > /etc/open-webui/technical.json')
    assert_fails(proof(), "its technical user cannot sign in")
    ran = playbook("converge.yml")
    assert ran.returncode == 0, ran.stdout
    assert proof().returncode == 0


def test_a_user_of_ours_that_lost_its_rights_gets_them_back(whole: Web, penny: Web) -> None:
    found = penny.ask("GET", f"/api/v1/users/search?query={TECHNICAL}").body["users"][0]
    assert penny.ask("POST", f"/api/v1/users/{found['id']}/update", {"role": "user"}).status == 200
    assert_fails(proof(), "its technical user is no administrator any more: run up with --full")
    ran = playbook("converge.yml")
    assert ran.returncode == 0, ran.stdout
    assert penny.ask("GET", f"/api/v1/users/search?query={TECHNICAL}").body["users"][0]["role"] == "admin"
    assert whole.host.file("/etc/open-webui/technical.json").exists


# What belongs to people.


def test_what_people_changed_is_left_alone_and_what_the_file_says_is_put_back(penny: Web) -> None:
    there = penny.ask("GET", "/openai/config").body
    theirs = {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": ["http://127.0.0.1:9002/v1", ENGINE["url"]],
        "OPENAI_API_KEYS": ["theirs", "wrong"],
        "OPENAI_API_CONFIGS": {"0": {"enable": False, "tags": [{"name": "mine"}]}},
    }
    assert penny.ask("POST", "/openai/config/update", theirs).status == 200
    ran = playbook("converge.yml")
    assert ran.returncode == 0, ran.stdout
    now = penny.ask("GET", "/openai/config").body
    assert now["OPENAI_API_BASE_URLS"] == [ENGINE["url"], "http://127.0.0.1:9002/v1"]
    assert now["OPENAI_API_KEYS"] == [ENGINE["api_key"], "theirs"]
    assert now["OPENAI_API_CONFIGS"]["1"]["tags"] == [{"name": "mine"}]
    assert penny.ask("POST", "/openai/config/update", there).status == 200


def test_another_model_of_people_is_found_and_put_back_and_their_batches_stay(penny: Web) -> None:
    now = penny.ask("GET", "/api/v1/retrieval/embedding").body
    theirs = {**now, "RAG_EMBEDDING_MODEL": "theirs", "RAG_EMBEDDING_BATCH_SIZE": 7}
    assert penny.ask("POST", "/api/v1/retrieval/embedding/update", theirs).status == 200
    assert_fails(proof(), "documents are made searchable by theirs at", "instead of find at")
    ran = playbook("converge.yml")
    assert ran.returncode == 0, ran.stdout
    assert "Documents were made searchable by theirs, and now are by find" in " ".join(ran.stdout.split())
    again = penny.ask("GET", "/api/v1/retrieval/embedding").body
    assert again == {**now, "RAG_EMBEDDING_BATCH_SIZE": 7}
    assert proof().returncode == 0


def test_documents_that_people_have_read_whole_are_found(penny: Web) -> None:
    whole_files = {"BYPASS_EMBEDDING_AND_RETRIEVAL": True}
    assert penny.ask("POST", "/api/v1/retrieval/config/update", whole_files).status == 200
    assert_fails(proof(), "documents are read whole instead of being made searchable")
    assert playbook("converge.yml").returncode == 0
    assert proof().returncode == 0


def test_an_administrator_who_has_another_password_is_left_alone(whole: Web, penny: Web) -> None:
    changed = {"password": PASSWORD, "new_password": "chosen by penny"}
    assert penny.ask("POST", "/api/v1/auths/update/password", changed).status == 200
    try:
        ran = playbook("converge.yml")
        assert ran.returncode == 0, ran.stdout
        whole.host.check_output("rm /etc/open-webui/technical.json")
        assert_fails(playbook("converge.yml"), "give the file the administrator's address and password of now")
    finally:
        again = whole.signed_in(password="chosen by penny")
        back = {"password": "chosen by penny", "new_password": PASSWORD}
        assert again.ask("POST", "/api/v1/auths/update/password", back).status == 200
    assert playbook("converge.yml").returncode == 0
    penny.token = whole.signed_in().token


# What people may not.

FUNCTION = """
import socket
class Pipe:
    def pipe(self, body: dict) -> str:
        found = []
        for host, port in {places}:
            try:
                socket.create_connection((host, port), timeout=1).close()
                found.append(0)
            except OSError as error:
                found.append(error.errno)
        return " ".join(map(str, found))
"""
OF_ADMINISTRATORS = (
    ("GET", "/api/v1/users/"),
    ("GET", "/api/v1/users/all"),
    ("GET", "/api/v1/auths/admin/config"),
    ("POST", "/api/v1/auths/admin/config"),
    ("POST", "/api/v1/auths/add"),
    ("GET", "/api/v1/configs/export"),
    ("POST", "/api/v1/configs/import"),
    ("GET", "/api/v1/functions/export"),
    ("POST", "/api/v1/functions/create"),
    ("POST", "/api/v1/tools/create"),
    ("GET", "/api/v1/retrieval/config"),
    ("GET", "/api/v1/retrieval/embedding"),
    ("POST", "/api/v1/retrieval/reset/db"),
    ("GET", "/api/v1/audio/config"),
    ("GET", "/api/v1/images/config"),
    ("GET", "/api/v1/pipelines/list"),
    ("GET", "/api/v1/utils/db/download"),
    ("GET", "/openai/config"),
    ("POST", "/openai/config/update"),
)


@pytest.fixture(scope="module")
def ann(penny: Web) -> Iterator[Web]:
    """An ordinary user, signed in, while the tests of this file run."""
    account = {"name": "ann", "email": "ann@home.example", "password": "long enough", "role": "user"}
    made = penny.ask("POST", "/api/v1/auths/add", account)
    assert made.status == 200, made.said
    signed_in = penny.ask("POST", "/api/v1/auths/signin", account).body
    yield replace(penny, token=signed_in["token"])
    assert penny.ask("DELETE", f"/api/v1/users/{signed_in['id']}").status == 200


@pytest.mark.parametrize(("method", "path"), OF_ADMINISTRATORS)
def test_an_ordinary_user_gets_nothing_that_is_the_administrators(ann: Web, method: str, path: str) -> None:
    body = {} if method == "POST" else None
    assert ann.ask(method, path, body).status in {401, 403, 404, 405, 422}
    about = ann.ask("GET", "/api/v1/auths/").body
    assert about["role"] == "user"


def test_nobody_makes_himself_an_administrator(ann: Web, penny: Web) -> None:
    own, other = (one.ask("GET", "/api/v1/auths/").body["id"] for one in (ann, penny))
    wanted = {"name": "ann", "email": "ann@home.example", "profile_image_url": "/user.png", "role": "admin"}
    ann.ask("POST", "/api/v1/auths/update/profile", wanted)
    for path in (f"/api/v1/users/{own}/update", f"/api/v1/users/{other}/update"):
        assert ann.ask("POST", path, wanted).status in {401, 403}
    assert ann.ask("DELETE", f"/api/v1/users/{other}").status in {401, 403}
    assert ann.ask("GET", "/api/v1/auths/").body["role"] == "user"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9001/seen", "http://[::1]:9001/seen", "http://GATEWAY:53/"])
def test_the_server_fetches_no_page_of_its_own_machine_for_people(ann: Web, url: str) -> None:
    gateway = ann.host.check_output("ip -4 route show default").split()[2]
    before = ann.seen()
    answer = ann.ask("POST", "/api/v1/retrieval/process/web", {"url": url.replace("GATEWAY", gateway)})
    assert answer.status >= 400, answer.said
    assert b"refused" not in answer.said.replace(b"Connection refused", b"")
    assert ann.seen() == before


def test_a_function_of_an_administrator_reaches_the_connections_of_the_file_alone(penny: Web) -> None:
    gateway = penny.host.check_output("ip -4 route show default").split()[2]
    places = [(gateway, 53), (gateway, 8443), ("169.254.169.254", 80), ("127.0.0.1", ENGINE_PORT)]
    made = {"id": "hostile", "name": "hostile", "content": FUNCTION.replace("{places}", str(places)), "meta": {}}
    created = penny.ask("POST", "/api/v1/functions/create", made)
    assert created.status == 200, created.said
    try:
        assert penny.ask("POST", "/api/v1/functions/id/hostile/toggle").body["is_active"]
        penny.ask("GET", "/api/models?refresh=true")
        answer = penny.chat(model="hostile", stream=False)
        assert answer.status == 200, answer.said
        assert answer.body["choices"][0]["message"]["content"] == "111 111 111 0"
    finally:
        assert penny.ask("DELETE", "/api/v1/functions/id/hostile/delete").status == 200
