"""Pipelines behind their switch: an answer made of an engine's, what is closed, and a file that cannot be loaded."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from tests.case_files import read_case
from tests.molecule.playbooks import Scenario

FOLDER = Path(__file__).resolve().parents[1]
VARS = read_case(FOLDER / "vars.yml")
SCENARIO = Scenario(FOLDER, VARS["pipelines_api_key"], 9099)
SERVED = "/etc/pipelines/served"
ASK = """
import json, sys, urllib.error, urllib.request
key, method, path, body = json.load(sys.stdin)
headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + key} if key else {})
data = json.dumps(body).encode() if body is not None else None
request = urllib.request.Request("http://127.0.0.1:9099" + path, data, headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""


def ask(host: Host, method: str, path: str, body: Any = None, key: str = VARS["pipelines_api_key"]) -> tuple[int, str]:
    """Status and text of an answer at the service's port."""
    told = json.dumps([key, method, path, body])
    status, text = json.loads(host.check_output("printf %%s %s | python3 -c %s", told, ASK))
    return status, text


def said(host: Host, model: str) -> str:
    """What a pipeline answers."""
    question = {"model": model, "stream": False, "messages": [{"role": "user", "content": "Who?"}]}
    status, text = ask(host, "POST", "/v1/chat/completions", question)
    assert status == 200, text
    return str(json.loads(text)["choices"][0]["message"]["content"])


def test_pipelines_answer_and_have_their_environment_as_it_was_written(host: Host) -> None:
    assert said(host, "team") == "[Who?\n\nWhat was found: [Who?]]"
    assert said(host, "many.loud") == "WHO?"
    told = json.loads(said(host, "environment"))
    assert told["WORD"] == VARS["pipelines_environment"]["WORD"]
    assert told["FAR_KEY"] == VARS["pipelines_secrets"][0]["value"]
    assert json.loads(told["LAB_CONNECT"]) == {"llama/llama_cpp": VARS["pipelines_connect"][0]}


def test_what_people_ask_is_not_in_the_journal(host: Host) -> None:
    assert "Who?" not in host.check_output("journalctl -u pipelines -o cat")


def test_the_switch_passes_questions_and_the_list_of_models_alone(host: Host) -> None:
    question = {"model": "team", "messages": [{"role": "user", "content": "Who?"}]}
    assert ask(host, "GET", "/v1/models")[0] == 200
    assert ask(host, "POST", "/v1/chat/completions", question, key="")[0] == 401
    closed = (
        *("/v1/pipelines/add", "/pipelines/upload", "/v1/pipelines/reload", "/chat/completions"),
        *("/v1/team/valves/update", "/team/filter/inlet"),
    )
    assert {path: ask(host, "POST", path, {})[0] for path in closed} == dict.fromkeys(closed, 404)
    for path in ("/", "/v1/pipelines", "/v1/team/valves", "/openapi.json"):
        assert ask(host, "GET", path)[0] == 404, path


def test_the_server_cannot_write_to_what_it_runs(host: Host) -> None:
    for path in (SERVED, f"{SERVED}/team.py", f"{SERVED}/team/valves.json", "/opt/pipelines/source/main.py"):
        assert host.run("runuser -u pipelines -- test -w %s", path).rc != 0, path
    text = (FOLDER / "files/pipelines/told.py").read_text(encoding="utf-8")
    assert host.check_output(f"cat {SERVED}/told.py") == text.strip()


def test_keys_are_read_by_root_alone_and_stand_in_no_other_file(host: Host) -> None:
    secrets = host.file("/etc/pipelines/secrets.env")
    assert (secrets.mode, secrets.user) == (0o600, "root")
    assert "canary" not in host.check_output("cat /etc/pipelines/pipelines.json")


def test_one_that_cannot_be_loaded_stops_the_server_and_says_which_and_why(host: Host) -> None:
    text = host.check_output(f"cat {SERVED}/many.py")
    try:
        host.check_output("printf 'class Pipeline:\\n    word = nobody\\n' > %s", f"{SERVED}/many.py")
        host.run("systemctl restart pipelines")
        waited = "for i in $(seq 120); do systemctl is-failed -q pipelines && break; sleep 0.5; done"
        host.check_output(waited)
        assert host.run("systemctl is-failed pipelines").rc == 0
        journal = host.check_output("journalctl -u pipelines -o cat")
        assert "many.py, line 2 could not be loaded: NameError: name 'nobody' is not defined" in journal
        assert not host.file(f"{SERVED}/failed").exists
    finally:
        host.check_output("printf %%s %s > %s", f"{text}\n", f"{SERVED}/many.py")
        host.check_output("systemctl reset-failed pipelines; systemctl start pipelines")
        ready = "for i in $(seq 120); do curl -fs http://127.0.0.1:19099/health && exit 0; sleep 0.5; done; exit 1"
        host.check_output(
            ready.replace("curl -fs", "python3 -c 'import sys,urllib.request as r; r.urlopen(sys.argv[1])'")
        )


CONNECT = """
import json, os, socket, sys
user, places = json.load(sys.stdin)
if user:
    os.setuid(user)
for host, port in places:
    try:
        socket.create_connection((host, port), timeout=1).close()
        print(0)
    except OSError as error:
        print(error.errno)
"""


REFUSED = str(errno.ECONNREFUSED)


def connected(host: Host, user: str, *places: tuple[str, int]) -> list[str]:
    """Return for each place the number of the error, 0 for none."""
    told = json.dumps([host.user(user).uid, places])
    return str(host.check_output("printf %%s %s | python3 -c %s", told, CONNECT)).split()


@pytest.fixture
def unwatched(host: Host) -> Iterator[None]:
    """Have nobody mend the rules, and no packet of a test that takes them away leave the container."""
    hold = "add table ip hold; add chain ip hold out { type filter hook postrouting priority 0; }"
    hold += "; add rule ip hold out ip daddr 169.254.0.0/16 drop"
    host.check_output("systemctl stop egress-pipelines.timer; nft %s", hold)
    yield
    host.check_output("nft delete table ip hold; systemctl start egress-pipelines.timer")
    SCENARIO.passes("converge.yml")


def gateway_of(host: Host) -> str:
    return str(host.check_output("ip -4 route show default")).split()[2]


@pytest.mark.usefixtures("unwatched")
def test_what_it_runs_reaches_its_engine_and_nothing_else(host: Host) -> None:
    gateway = gateway_of(host)
    listening = (gateway, 53)
    assert connected(host, "root", listening) == ["0"]
    assert connected(host, "pipelines", listening, ("127.0.0.1", 9001)) == [REFUSED, "0"]
    assert said(host, "team").startswith("[Who?")
    SCENARIO.passes("converge.yml", pipelines_reaches=[f"{gateway}:53"])
    assert connected(host, "pipelines", listening) == ["0"]
    SCENARIO.passes("converge.yml", pipelines_reaches=["internet"])
    rules = host.check_output("nft list chain inet egress_pipelines kept")
    assert "169.254.0.0/16" in rules
    assert connected(host, "pipelines", listening) == [REFUSED]
    SCENARIO.refuses("converge.yml", "`reaches` (everything) must be internet", pipelines_reaches=["everything"])


LISTEN = """
import socket, time
listening = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True)
time.sleep(120)
"""


KEEPS = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in range(1200):
    link.sendall(b"x")
    time.sleep(0.1)
"""


@pytest.fixture
def neighbour(host: Host) -> Iterator[None]:
    """A machine beside the container at 10.99.0.2 and fd99::2, which listens on port 8080."""
    # A container without nesting makes no network by ip itself.
    host.check_output("systemd-run --unit=beside --collect -p PrivateNetwork=yes python3 -c %s", LISTEN)
    host.check_output(
        'pid=$(systemctl show --property=MainPID --value beside) && inside="nsenter -t $pid -n"'
        " && ip link add beside0 type veth peer name beside1 netns $pid"
        " && ip addr add 10.99.0.1/24 dev beside0 && ip -6 addr add fd99::1/64 dev beside0 nodad"
        " && ip link set beside0 up && $inside ip addr add 10.99.0.2/24 dev beside1"
        " && $inside ip -6 addr add fd99::2/64 dev beside1 nodad && $inside ip link set beside1 up"
        ' && timeout 20 sh -c "until $inside ss -tln | grep -q 8080; do sleep 0.1; done"'
    )
    # The first packets of a new link get lost.
    reach = 'import socket; socket.create_connection(("fd99::2", 8080), timeout=1)'
    host.check_output("timeout 20 sh -c 'until python3 -c \"$0\" 2>/dev/null; do sleep 0.1; done' %s", reach)
    yield
    host.check_output("ip link del beside0; systemctl stop beside")


@pytest.mark.usefixtures("neighbour", "unwatched")
def test_a_neighbour_is_reached_where_it_is_named_by_either_protocol(host: Host) -> None:
    places = [("10.99.0.2", 8080), ("fd99::2", 8080), ("::ffff:10.99.0.2", 8080)]
    assert connected(host, "root", *places) == ["0"] * 3
    assert connected(host, "pipelines", *places)[::2] == [REFUSED] * 2
    assert connected(host, "pipelines", places[1]) != ["0"]
    SCENARIO.passes("converge.yml", pipelines_reaches=["[fd99::2]:8080"])
    assert connected(host, "pipelines", *places) == [REFUSED, "0", REFUSED]
    # A connection that was begun while it was allowed ends with that.
    host.check_output("systemd-run --unit=keeps --uid=pipelines python3 -c %s fd99::2 8080", KEEPS)
    host.check_output("timeout 20 sh -c 'until ss -tn dst [fd99::2] | grep -q ESTAB; do sleep 0.1; done'")
    SCENARIO.passes("converge.yml")
    host.check_output("timeout 20 sh -c 'until systemctl is-failed -q keeps; do sleep 0.1; done'")
    host.check_output("systemctl reset-failed keeps")


@pytest.mark.usefixtures("unwatched")
def test_rules_that_are_gone_are_no_proof_and_come_back(host: Host) -> None:
    host.check_output("nft flush chain inet egress_pipelines output")
    SCENARIO.refuses("verify_alone.yml", "table inet egress_pipelines is not what its page says")
    host.check_output("systemctl start egress-pipelines.service")
    assert "jump kept" in host.check_output("nft list chain inet egress_pipelines output")
    host.check_output("nft delete table inet egress_pipelines")
    SCENARIO.refuses("verify_alone.yml", "Unable to keep pipelines in")


@pytest.mark.usefixtures("unwatched")
def test_one_that_runs_as_somebody_else_is_no_proof(host: Host) -> None:
    drop_in = "/run/systemd/system/pipelines.service.d"
    restart = "systemctl daemon-reload; systemctl restart pipelines"
    try:
        host.check_output(f"mkdir -p {drop_in}; printf '[Service]\\nUser=daemon\\n' > {drop_in}/user.conf; {restart}")
        user = "ps -o user= -p $(systemctl show --property=MainPID --value pipelines)"
        host.check_output(f"timeout 60 sh -c 'until [ \"$({user})\" = daemon ]; do sleep 0.1; done'")
        answer = host.run("python3 -BIS /usr/local/lib/egress/egress.py prove pipelines")
        assert json.loads(answer.stdout)["reached"] != [], answer.stderr
    finally:
        host.check_output(f"rm -r {drop_in}; {restart}")


def test_where_the_rules_cannot_be_loaded_it_does_not_start(host: Host) -> None:
    page = "/etc/egress-pipelines.json"
    text = host.check_output(f"cat {page}")
    try:
        host.check_output(f"sed -i s/pipelines/nobody-of-that-name/ {page}; systemctl stop pipelines")
        assert host.run("systemctl start pipelines").rc != 0
        assert "nobody-of-that-name" in host.check_output("journalctl -u pipelines -o cat")
    finally:
        host.check_output("printf %%s %s > %s", f"{text}\n", page)
        SCENARIO.passes("converge.yml")
