"""The door gives each site a name and TLS, hands on what comes as it comes, and nothing that it has to refuse."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import CertificateSigningRequestBuilder, Name
from testinfra.host import Host

from provisioner.tls.authority import Authority
from provisioner.values import paths
from tests.molecule.changes import scenario_variables
from tests.molecule.counted import kept
from tests.signed_pairs import Signed, signed
from tests.waiting import PATIENCE_S

SCENARIO = Path(__file__).resolve().parents[1]
SECRET = scenario_variables(SCENARIO)["door_authority"]
AUTHORITY = Authority(SECRET)
CHAT, API = "chat.home.example", "api.home.example"
UNIT, PAIR, FRESH, CONFIG = (
    "door.service",
    "/etc/door/site.pem",
    "/etc/door/certificate-is-fresh",
    "/etc/door/haproxy.cfg",
)
CONTROL = "python3 -c \"import socket; s = socket.socket(1); s.connect('/run/door/control.sock')\""
RELOADS = 10
AS_A_CLIENT = ("--site", CHAT, "--ca", "/run/root.pem")
FORGED = (
    *("X-Forwarded-For: 6.6.6.6", "x-forwarded-proto: http", "X-Forwarded-Host: evil.example", "X-Forwarded-Port: 1"),
    *("X_Forwarded_For: 6.6.6.6", "X-Forwarded-Server: evil", "Forwarded: for=6.6.6.6", "X-Real-IP: 6.6.6.6"),
    *("X-Original-URL: /admin", "X-Rewrite-URL: /admin", "True-Client-IP: 6.6.6.6", "CF-Connecting-IP: 6.6.6.6"),
)


def run_playbook(host: Host, playbook: str, *words: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run one of the scenario's playbooks on the container that is tested, with other variables than the scenario's."""
    command = ["ansible-playbook", "--inventory", os.environ["MOLECULE_INVENTORY_FILE"], str(SCENARIO / playbook)]
    command += ["--limit", host.backend.hostname, "--extra-vars", json.dumps(variables), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def converged(host: Host, **variables: Any) -> None:
    """The role with other variables than the scenario's."""
    done = run_playbook(host, "converge.yml", **variables)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def as_before(host: Host) -> Iterator[None]:
    """Whatever the test does, the scenario's own options hold afterwards."""
    yield
    converged(host)


@pytest.fixture
def one_distribution(host: Host) -> None:
    """What the distribution's HAProxy has no part in is tried once: a run of Ansible takes its time."""
    if host.backend.hostname != "molecule-door-12":
        pytest.skip("tried in molecule-door-12")


def put(host: Host, path: str, text: str) -> None:
    """Write a file into the container."""
    content = base64.b64encode(text.encode()).decode()
    host.check_output(f"echo {content} | base64 --decode > {path}")


@pytest.fixture(scope="module", autouse=True)
def client(host: Host) -> None:
    """What asks, and the root as we print it, are in the container."""
    put(host, "/run/root.pem", AUTHORITY.root)
    for program in ("client.py", "http2.py"):
        put(host, f"/run/{program}", (SCENARIO / program).read_text(encoding="utf-8"))


def parts(host: Host, name: str, request: str, *words: str) -> list[Any]:
    """What came back, each piece with its time."""
    words = ("python3", "/run/client.py", name, request.encode().hex(), *words)
    return list(json.loads(host.check_output(" ".join(words))))


def ask(host: Host, request: str, name: str = CHAT) -> str:
    """All that was answered, on a connection that names ``name``."""
    return "".join(text for _, text in parts(host, name, request))


def get(path: str = "/said", *headers: str, host: str = CHAT) -> str:
    """A request for a page."""
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers, "", ""])


def post(body: str, *headers: str) -> str:
    """A request with a body."""
    lines = ["POST /said HTTP/1.1", f"Host: {CHAT}", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", body])


def status(answer: str) -> int:
    """The status of an answer."""
    return int(answer.split()[1])


def body(answer: str) -> Any:
    """The JSON in an answer."""
    return json.loads(answer.partition("\r\n\r\n")[2])


def main_process(host: Host) -> str:
    """The process that systemd started."""
    return host.check_output(f"systemctl show --value -p MainPID {UNIT}")


def reload(host: Host) -> None:
    """Have the door read its files again, until a new process does its work."""
    main = main_process(host)
    before = "|".join(host.check_output(f"pgrep -P {main}").split())
    host.check_output(f"systemctl reload {UNIT}")
    new = f"until pgrep -P {main} | grep -qvxE '{before}' && {CONTROL}; do sleep 0.1; done"
    host.check_output("timeout 20 sh -c %s", new)


def test_it_has_one_right_and_keeps_its_key_to_itself(host: Host) -> None:
    processes = host.check_output("pgrep -x haproxy").split()
    assert len(processes) >= 2
    for process in processes:
        rights = host.check_output(f"grep ^Cap /proc/{process}/status")
        held = {line.split(":\t")[0]: int(line.split(":\t")[1], 16) for line in rights.splitlines()}
        assert {name: held[name] for name in ("CapEff", "CapPrm", "CapBnd")} == dict.fromkeys(
            ("CapEff", "CapPrm", "CapBnd"), 1 << 10
        )
        assert host.check_output(f"ps -o user= -p {process}") == "haproxy"
    pair = host.file(PAIR)
    assert (pair.user, pair.group, pair.mode) == ("root", "haproxy", 0o640)
    assert host.check_output("ls -A /etc/door").split() == ["acme", "certificate-is-fresh", "haproxy.cfg", "site.pem"]
    assert host.file("/run/door/control.sock").mode == 0o600
    own = host.service("haproxy.service")
    assert (own.is_running, own.is_enabled) == (False, False)
    exposure = host.check_output(f"systemd-analyze security {UNIT} | tail -n 1")
    assert float(exposure.split(": ")[1].split()[0]) <= 3.0, exposure


def test_each_site_is_its_own_service(host: Host) -> None:
    assert [body(ask(host, get(host=name), name))["port"] for name in (CHAT, API)] == [9001, 9002]


def test_only_the_root_of_the_secret_is_believed(host: Host) -> None:
    put(host, "/run/root.pem", Authority("another secret that is long enough").root)
    answer = host.run(f"python3 /run/client.py {CHAT} {get().encode().hex()}")
    put(host, "/run/root.pem", AUTHORITY.root)
    assert "CERTIFICATE_VERIFY_FAILED" in answer.stderr


@pytest.mark.parametrize("name", ["other.home.example", "home.example", "a.chat.home.example"])
def test_who_names_no_site_gets_no_certificate(host: Host, name: str) -> None:
    answer = host.run(f"python3 /run/client.py {name} {get(host=name).encode().hex()}")
    assert answer.rc != 0
    assert "SSLError" in answer.stderr or "ssl.SSL" in answer.stderr or "ConnectionReset" in answer.stderr, (
        answer.stderr
    )


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (CHAT, 200),
        ("CHAT.home.example", 200),
        (f"{CHAT}:443", 200),
        (API, 421),
        ("other.example", 421),
        ("127.0.0.1", 421),
        ("", 421),
    ],
)
def test_a_connection_is_for_the_site_that_it_named(host: Host, asked: str, wanted: int) -> None:
    assert status(ask(host, get(host=asked))) == wanted


@pytest.mark.parametrize(
    ("asked", "wanted", "place"),
    [
        (CHAT, 308, f"https://{CHAT}/said?a=b"),
        (f"{API}:80", 308, f"https://{API}/said?a=b"),
        ("other.example", 404, ""),
        ("127.0.0.1", 404, ""),
    ],
)
def test_without_tls_there_is_a_way_to_each_site_and_nothing_else(
    host: Host, asked: str, wanted: int, place: str
) -> None:
    answer = ask(host, get("/said?a=b", host=asked), "plain")
    assert status(answer) == wanted
    assert [line for line in answer.split("\r\n") if line.lower().startswith("location:")] == (
        [f"location: {place}"] if place else []
    )


def test_what_a_client_says_of_itself_does_not_reach_the_service(host: Host) -> None:
    heard = [(name.lower(), value) for name, value in body(ask(host, get("/said", *FORGED)))["headers"]]
    told = {name: value for name, value in heard if name.startswith("x-forwarded-")}
    assert told == {
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": CHAT,
        "x-forwarded-port": "443",
    }
    assert len(heard) == len({name for name, _ in heard})
    assert not {"6.6.6.6", "for=6.6.6.6", "evil", "evil.example", "/admin"} & {value for _, value in heard}


def test_browsers_may_speak_http_2(host: Host) -> None:
    said = host.check_output(f"openssl s_client -connect 127.0.0.1:443 -servername {CHAT} -alpn h2 </dev/null 2>&1")
    assert "ALPN protocol: h2" in said


def test_only_a_websocket_is_an_upgrade(host: Host) -> None:
    heard = body(
        ask(host, get("/said", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__").replace("close", "Upgrade, close"))
    )
    assert "upgrade" not in {name.lower() for name, _ in heard["headers"]}


def test_every_cookie_is_for_tls_alone(host: Host) -> None:
    lines = ask(host, get("/cookies")).partition("\r\n\r\n")[0].split("\r\n")
    cookies = [line.partition(": ")[2] for line in lines if line.lower().startswith("set-cookie:")]
    assert cookies == [
        "plain=1; Path=/; Secure",
        "already=2; path=/; secure",
        "dated=3; Expires=Wed, 01 Jan 2031 00:00:00 GMT; HttpOnly; Secure",
    ]


def test_a_stream_arrives_as_it_is_sent(host: Host) -> None:
    late = [
        came - float(line)
        for came, text in parts(host, CHAT, get("/stream"))
        for line in text.split("\r\n")
        if line.strip().count(".") == 1 and line.strip().replace(".", "").isdigit()
    ]
    assert len(late) == 10
    assert max(late) < 0.15, late  # the parts are 0.2 s apart


def test_a_body_that_is_too_large_is_refused(host: Host) -> None:
    assert body(ask(host, post("a" * 10000)))["length"] == 10000
    for length in (10001, "00010001", 2**31, 2**32 + 3, 2**64 + 3):
        too_long = post("a", "X: y").replace("Content-Length: 1", f"Content-Length: {length}")
        assert status(ask(host, too_long)) == 413, length


def headers(answer: str, name: str) -> list[str]:
    """All values of a header."""
    lines = [line.partition(": ") for line in answer.partition("\r\n\r\n")[0].split("\r\n")]
    return [value for key, _, value in lines if key.lower() == name]


def test_browsers_are_told_to_come_by_tls_for_a_day_and_only_by_the_door(host: Host) -> None:
    for asked in (get(), get("/hsts"), get(host="other.example")):
        assert headers(ask(host, asked), "strict-transport-security") == ["max-age=86400"]
    assert headers(ask(host, get(), "plain"), "strict-transport-security") == []


def chunked(length: int, *headers: str) -> str:
    """A request with a body of chunks."""
    head = post("", *headers).replace("Content-Length: 0", "Transfer-Encoding: chunked")
    return head + f"{length:x}\r\n{'a' * length}\r\n0\r\n\r\n"


def in_http_2(host: Host, length: int, *, is_told: bool) -> str:
    """The status of an answer to a body in HTTP/2 that says its length, or does not."""
    return host.check_output(f"python3 /run/http2.py {CHAT} {length} {is_told}").strip()


def test_a_body_that_does_not_say_its_length_is_passed_on_while_it_is_short(host: Host) -> None:
    assert body(ask(host, chunked(8191)))["length"] == 8191
    assert in_http_2(host, 8191, is_told=False) == "200"
    assert in_http_2(host, 8192, is_told=True) == "200"
    assert status(ask(host, chunked(8192))) == 411
    assert status(ask(host, chunked(8192, "Upgrade: websocket"))) == 411
    assert in_http_2(host, 8192, is_told=False) == "411"


@pytest.mark.usefixtures("as_before", "one_distribution")
def test_a_long_one_comes_through_where_the_file_says_so(host: Host) -> None:
    converged(host, door_unsized_bodies=True, door_hsts="0s")
    answer = ask(host, chunked(20_000))
    assert body(answer)["length"] == 20_000
    assert headers(answer, "strict-transport-security") == ["max-age=0"]
    assert in_http_2(host, 16_000, is_told=False) == "200"


def websocket() -> str:
    """The head of a websocket."""
    headers = ("Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
    return get("/socket", *headers).replace("Connection: close", "Connection: Upgrade")


def test_a_websocket_and_a_stream_live_on_over_a_reload(host: Host) -> None:
    host.check_output("rm -f /run/reloaded")
    answers: dict[str, list[Any]] = {}

    def socket() -> None:
        answers["socket"] = parts(host, CHAT, websocket(), "socket", "/run/reloaded")

    def stream() -> None:
        answers["stream"] = parts(host, API, get("/stream", host=API))

    running = [threading.Thread(target=socket, daemon=True), threading.Thread(target=stream, daemon=True)]
    for one in running:
        one.start()
    host.check_output(
        "timeout 20 sh -c %s",
        "until [ $(ss -Htn state established '( sport = :443 )' | wc -l) -ge 2 ]; do sleep 0.1; done",
    )
    main = main_process(host)
    reload(host)
    host.check_output("touch /run/reloaded")
    for one in running:
        one.join(PATIENCE_S)
    first, *words = answers["socket"]
    assert "101 Switching Protocols" in first
    assert words == ["before", "after"]
    assert "".join(text for _, text in answers["stream"]).rstrip().endswith("0")
    assert main_process(host) == main


def reload_again_and_again(host: Host) -> None:
    """Hand over to a new process many times."""
    for _ in range(RELOADS):
        reload(host)
        host.check_output("sleep 0.3")


def test_no_request_on_a_connection_that_is_kept_is_lost_over_reloads(host: Host) -> None:
    became = kept(host, lambda: reload_again_and_again(host), 443, "/said", *AS_A_CLIENT)
    assert (became["lost"], set(became)) == (0, {"answered", "lost"}), became
    assert became["answered"] > 50 * RELOADS


@pytest.mark.usefixtures("as_before")
def test_where_a_process_that_hands_over_closes_them_some_are_lost(host: Host) -> None:
    host.check_output(f"sed -i '/idle-close-on-response/d' {CONFIG}")
    reload(host)
    became = kept(host, lambda: reload_again_and_again(host), 443, "/said", *AS_A_CLIENT)
    assert became["lost"] > 0, became


def test_a_websocket_in_http_2_has_a_body_without_an_end(host: Host) -> None:
    assert host.check_output(f"python3 /run/http2.py {CHAT} socket") == "200 word"


def test_it_finishes_its_answers_before_it_stops(host: Host) -> None:
    answers: list[list[Any]] = []
    running = threading.Thread(target=lambda: answers.append(parts(host, CHAT, get("/stream"))), daemon=True)
    running.start()
    established = "until ss -Htn state established '( sport = :443 )' | grep -q .; do sleep 0.1; done"
    host.check_output("timeout 20 sh -c %s", established)
    host.check_output(f"systemctl restart {UNIT}")
    running.join(PATIENCE_S)
    assert "".join(text for _, text in answers[0]).endswith("0\r\n\r\n")


@pytest.mark.usefixtures("as_before")
def test_a_head_that_does_not_come_is_not_waited_for_and_a_silent_service_is(host: Host) -> None:
    converged(host, __door_head_s=2, __door_client_s=2)
    assert status(ask(host, get().removesuffix("\r\n\r\n"))) == 408
    assert ask(host, get("/silent")).endswith("0\r\n\r\n")


def test_a_service_that_is_away_is_told_as_such(host: Host) -> None:
    host.check_output("systemctl stop service@9001")
    answer = ask(host, get())
    other = ask(host, get(host=API), API)
    host.check_output("systemctl start service@9001")
    assert (status(answer), status(other)) == (503, 200)
    assert "\nretry-after: 10\r" in answer.lower()


def pair(authority: Authority, names: list[str], began: datetime) -> str:
    """A certificate with its key, as if signed at that time."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = CertificateSigningRequestBuilder().subject_name(Name([])).sign(key, hashes.SHA256())
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = authority.signed(request.public_bytes(pem[0]).decode(), names, began)
    return signed + key.private_bytes(*pem).decode()


def with_pair(host: Host, text: str) -> None:
    """Have the door use that certificate."""
    host.check_output(f"cp -p {PAIR} /run/pair")
    put(host, PAIR, text)
    reload(host)


@pytest.fixture
def own_pair(host: Host) -> Iterator[None]:
    """The door's own certificate is back afterwards."""
    yield
    host.check_output(f"cp -p /run/pair {PAIR}")
    reload(host)


@pytest.fixture(scope="module")
def question(host: Host) -> str:
    """What the role's proof tells its program, while everything is as it should be."""
    variables = scenario_variables(SCENARIO)
    (identity,) = (line for line in host.file(CONFIG).content_string.splitlines() if "description" in line)
    told = {"host": "127.0.0.1", "port": 443, "plain_port": 80, "sites": variables["door_sites"], "pair": PAIR}
    told |= {"socket": "/run/door/control.sock", "identity": identity.split()[1], "root": AUTHORITY.root}
    told |= {"hsts_s": 86400, "unsized_bytes": 8192, "is_given": False}
    put(host, "/run/visit.py", (paths.roles() / "door/programs/visit.py").read_text(encoding="utf-8"))
    put(host, "/run/question", json.dumps(told))
    return "python3 -IS /run/visit.py < /run/question"


def refusal(host: Host) -> str:
    """What the role's proof says, which fails."""
    answer = run_playbook(host, "verify_alone.yml")
    assert answer.returncode != 0
    return " ".join((answer.stdout + answer.stderr).split())


NOW = datetime.now(UTC)


def test_the_proof_has_nothing_to_say(host: Host, question: str) -> None:
    assert json.loads(host.check_output(question)) == []


@pytest.mark.usefixtures("own_pair")
def test_the_proof_of_the_role_fails_with_an_expired_certificate(host: Host) -> None:
    with_pair(host, pair(AUTHORITY, [CHAT, API], NOW - timedelta(days=91)))
    assert "certificate has expired" in refusal(host)


@pytest.mark.usefixtures("own_pair")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (pair(AUTHORITY, [CHAT, API], NOW - timedelta(days=91)), "certificate has expired"),
        (pair(AUTHORITY, [CHAT, API], NOW + timedelta(days=1)), "certificate is not yet valid"),
        (
            pair(Authority("another secret that is long enough"), [CHAT, API], NOW),
            "unable to get local issuer certificate",
        ),
        (pair(AUTHORITY, [CHAT], NOW), f"{API} is not reached by TLS"),
        (pair(AUTHORITY, [CHAT, API, "nowhere.invalid"], NOW), "gets a certificate all the same"),
    ],
    ids=["expired", "too early", "another root", "a site less", "a name more"],
)
def test_the_proof_tells_a_certificate_that_devices_refuse(host: Host, question: str, text: str, words: str) -> None:
    with_pair(host, text)
    assert words in host.check_output(question)


@pytest.mark.usefixtures("own_pair")
def test_the_proof_tells_that_the_door_has_not_read_its_certificate(host: Host, question: str) -> None:
    host.check_output(f"cp -p {PAIR} /run/pair")
    put(host, PAIR, pair(AUTHORITY, [CHAT, API], NOW))
    assert "shows another certificate than its file has" in host.check_output(question)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("s/description .*/description another/", "runs with another configuration than its file has"),
        ("s/127.0.0.1:9001/127.0.0.1:9/", f"{CHAT} answers 503 on /health, and its service itself answers 200"),
        (
            f"s/use_backend site-{CHAT} /use_backend site-{API} /",
            f"The answer of {CHAT} does not come from the service",
        ),
        ("/status 421/d", "Asked for a host that is no site it answers"),
        ("/status 411/d", "Asked for a long body that does not say its length it answers"),
        ("s/max-age=86400/max-age=8640/", "says Strict-Transport-Security: max-age=8640, and should say max-age=86400"),
        ("/status 404/d", "Asked for a host that is no site, without TLS, it answers 308"),
        ("s/ code 308/ code 302/", f"Without TLS {CHAT} answers 302"),
        ("s/ strict-sni//", "gets a certificate all the same"),
    ],
    ids=["configuration", "address", "site", "421", "411", "hsts", "404", "redirect", "strict"],
)
def test_the_proof_tells_a_broken_configuration(host: Host, question: str, edit: str, words: str) -> None:
    host.check_output(f"cp -p {CONFIG} /run/config && sed -i '{edit}' {CONFIG}")
    reload(host)
    said = host.check_output(question)
    host.check_output(f"cp -p /run/config {CONFIG}")
    reload(host)
    assert words in said, said


@pytest.mark.parametrize(
    ("unit", "words"),
    [("service@9002", f"Behind {API} nobody answers"), (UNIT, "Its control socket does not answer")],
)
def test_the_proof_tells_what_is_stopped(host: Host, question: str, unit: str, words: str) -> None:
    host.check_output(f"systemctl stop {unit}")
    said = host.check_output(question)
    host.check_output(f"systemctl start {unit}")
    assert words in said, said


@pytest.fixture
def one_start_a_minute(host: Host) -> Iterator[None]:
    """Each stop takes as long as its answers may: one start is to be often."""
    folder = f"/run/systemd/system/{UNIT}.d"
    host.check_output(f"mkdir {folder} && printf '[Unit]\nStartLimitBurst=1\n' > {folder}/often.conf")
    host.check_output(f"systemctl daemon-reload && systemctl reset-failed {UNIT}")
    yield
    host.check_output(f"rm -r {folder} && systemctl daemon-reload")


@pytest.mark.usefixtures("one_start_a_minute")
@pytest.mark.parametrize(("starts", "state"), [(1, "active"), (2, "failed")])
def test_how_often_it_was_started_before_is_no_reason_to_leave_it_stopped(host: Host, starts: int, state: str) -> None:
    """Systemd counts each start, and 257 does so over what a changed unit file has it read anew."""
    for _ in range(starts):
        host.run(f"systemctl restart {UNIT}")
    assert host.run(f"systemctl is-active {UNIT}").stdout.strip() == state
    host.check_output(f"echo '# changed' >> /etc/systemd/system/{UNIT}")
    converged(host)
    assert host.check_output(f"systemctl is-active {UNIT}") == "active"


@pytest.mark.usefixtures("as_before")
def test_a_certificate_that_is_due_is_signed_anew_with_a_new_key(host: Host) -> None:
    before = host.file(PAIR).content_string
    host.check_output("systemctl start door-due.service")
    assert host.file(FRESH).exists, "it has 90 days left"
    with_pair(host, pair(AUTHORITY, [CHAT, API], NOW - timedelta(days=61)))
    host.check_output("systemctl start door-due.service")
    assert not host.file(FRESH).exists, "it has 29 days left"
    main = main_process(host)
    converged(host)
    after = host.file(PAIR).content_string
    assert host.file(FRESH).exists
    assert len({before.partition("PRIVATE KEY")[2], after.partition("PRIVATE KEY")[2]}) == 2
    assert main_process(host) == main, "nothing was cut"
    timer = host.service("door-due.timer")
    assert (timer.is_running, timer.is_enabled) == (True, True)


@pytest.mark.usefixtures("as_before")
def test_other_sites_get_another_certificate_and_services_are_found_by_name(host: Host) -> None:
    name = "new.home.example"
    converged(host, door_sites={name: f"http://{host.backend.hostname}.incus:9002/health"})
    assert body(ask(host, get(host=name), name))["port"] == 9002
    assert host.run(f"python3 /run/client.py {CHAT} {get().encode().hex()}").rc != 0


@pytest.mark.usefixtures("as_before")
def test_a_certificate_of_ones_own_is_shown_and_exchanged_without_a_cut(host: Host) -> None:
    root = signed("root")
    pairs = [signed("own", root, CHAT, API), signed("renewed", root, "*.home.example")]
    put(host, "/run/root.pem", root.own)
    converged(host, **given(pairs[0]))
    host.check_output("rm -f /run/reloaded")
    answers: list[list[Any]] = []
    running = threading.Thread(
        target=lambda: answers.append(parts(host, CHAT, websocket(), "socket", "/run/reloaded")), daemon=True
    )
    running.start()
    established = "until ss -Htn state established '( sport = :443 )' | grep -q .; do sleep 0.1; done"
    host.check_output("timeout 20 sh -c %s", established)
    main = main_process(host)
    done = run_playbook(host, "converge.yml", "-vvv", "--diff", **given(pairs[1]))
    host.check_output("touch /run/reloaded")
    running.join(PATIENCE_S)
    shown = host.check_output(f"openssl s_client -connect 127.0.0.1:443 -servername {CHAT} </dev/null 2>/dev/null")
    put(host, "/run/root.pem", AUTHORITY.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert pairs[1].own.strip() in shown
    assert answers[0][1:] == ["before", "after"]
    assert main_process(host) == main
    assert not [line for line in pairs[1].key.splitlines()[1:-1] if line in done.stdout + done.stderr]
    assert host.file(PAIR).mode == 0o640
    assert host.file(FRESH).exists


def given(pair: Signed) -> dict[str, str]:
    """The options of a door with that certificate instead of an authority."""
    return {"door_certificate": pair.chain, "door_certificate_key": pair.key, "door_authority": ""}


DIRECTORY = "https://acme.home.example:14000/dir"
ACME_ROOT = signed("root of the house")
ACME = {
    "door_authority": "",
    "door_acme_email": "penny@home.example",
    "door_acme_agree": True,
    "door_acme_directory": DIRECTORY,
    "door_acme_ca": ACME_ROOT.own,
}
PEBBLE = {
    "listenAddress": "127.0.0.1:14000",
    "managementListenAddress": "",
    "certificate": "/run/acme.pem",
    "privateKey": "/run/acme.key",
    "httpPort": 80,
    "tlsPort": 443,
}


@pytest.fixture(scope="module")
def pebble(host: Host) -> Iterator[None]:
    """An authority that speaks ACME runs in the container, and finds the sites there."""
    own = signed("acme", ACME_ROOT, "acme.home.example")
    put(host, "/run/acme.pem", own.chain)
    put(host, "/run/acme.key", own.key)
    put(host, "/run/pebble.json", json.dumps({"pebble": PEBBLE}))
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pebble"
    host.check_output(f"apt-get update -qq && {install}")
    host.check_output(f"echo 127.0.0.1 {CHAT} {API} acme.home.example >> /etc/hosts")
    quick = "--setenv=PEBBLE_VA_NOSLEEP=1 --setenv=PEBBLE_WFE_NONCEREJECT=0"
    host.check_output(f"systemd-run --quiet --unit=pebble {quick} pebble -config /run/pebble.json")
    host.check_output("timeout 20 sh -c 'until ss -Htln sport = :14000 | grep -q .; do sleep 0.1; done'")
    yield
    # It forgets its accounts, and certbot does not.
    host.check_output("systemctl stop pebble; rm -r /etc/letsencrypt/accounts; sed -i /acme.home.example/d /etc/hosts")


def shown_certificate(host: Host) -> str:
    """What a client gets to see."""
    asked = f"openssl s_client -connect 127.0.0.1:443 -servername {CHAT} </dev/null 2>/dev/null"
    return host.check_output(f"{asked} | openssl x509 -noout -issuer -serial")


@pytest.mark.usefixtures("as_before", "pebble")
def test_certbot_gets_a_certificate_and_renews_it_without_a_cut(host: Host) -> None:
    converged(host, **ACME)
    first = shown_certificate(host)
    assert "Pebble Intermediate CA" in first
    again = run_playbook(host, "converge.yml", **ACME)
    assert again.returncode == 0
    assert " changed=0 " in again.stdout, again.stdout
    main = main_process(host)
    host.check_output(
        "sed -i 's/^# renew_before_expiry.*/renew_before_expiry = 9000 days/' /etc/letsencrypt/renewal/door.conf"
    )
    host.check_output("systemctl start certbot.service")  # as its timer does
    renewed = shown_certificate(host)
    assert "Pebble Intermediate CA" in renewed
    assert renewed != first
    assert main_process(host) == main
    assert not host.file(PAIR).exists, "its key is of no use any more"
    pair = host.file("/etc/door/acme/site.pem")
    assert (pair.user, pair.group, pair.mode) == ("root", "haproxy", 0o640)
    timer = host.service("certbot.timer")
    assert (timer.is_running, timer.is_enabled) == (True, True)
    challenge = get("/.well-known/acme-challenge/x")
    assert status(ask(host, challenge, "plain")) == 503, "certbot listens while it asks"
    assert status(ask(host, challenge.replace(CHAT, "other.example"), "plain")) == 404


@pytest.mark.usefixtures("as_before", "pebble", "one_distribution")
def test_an_authority_that_does_not_answer_is_told_and_the_door_stays(host: Host) -> None:
    converged(host, **ACME)
    before = shown_certificate(host)
    answer = run_playbook(host, "converge.yml", **{**ACME, "door_acme_directory": DIRECTORY.replace("14000", "14001")})
    said = " ".join((answer.stdout + answer.stderr).split())
    assert answer.returncode != 0
    assert "Unable to get a certificate from https://acme.home.example:14001/dir" in said, said
    assert shown_certificate(host) == before
    converged(host)
    assert not host.file("/etc/letsencrypt/renewal/door.conf").exists
    assert host.check_output("ls -A /etc/door/acme") == ""


@pytest.mark.usefixtures("one_distribution")
def test_the_secret_is_nowhere_but_where_it_is_told(host: Host) -> None:
    host.check_output(f"rm {PAIR} {FRESH}")
    done = run_playbook(host, "converge.yml", "-vvv", "--diff")
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "PRIVATE KEY" not in done.stdout + done.stderr
    inside = host.run(f"grep -rlF {SECRET} /etc /run /usr/local /var/log /var/lib /tmp /root --exclude-dir=lxcfs")
    assert inside.stdout == ""
    assert SECRET not in host.check_output("journalctl --no-pager --output cat")


@pytest.mark.usefixtures("one_distribution")
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"door_sites": {"a }\nbind *:1": "http://127.0.0.1:9001/"}}, "cannot be the name of a site"),
        ({"door_port": 9001}, "Unable to have the door listen on ports 9001 and 80"),
        ({"door_authority": "short"}, "it must have at least 20 printable ASCII characters"),
        (given(signed("own", None, CHAT)), f"it is not for {API}, but for {CHAT}"),
    ],
)
def test_what_it_could_not_do_is_refused_before_anything_is_touched(
    host: Host, variables: dict[str, Any], words: str
) -> None:
    before = host.file(CONFIG).sha256sum
    answer = run_playbook(host, "converge.yml", **variables)
    shown = " ".join((answer.stdout + answer.stderr).split())
    assert answer.returncode != 0
    assert words in shown, shown
    assert host.file(CONFIG).sha256sum == before
