"""Every wait for another program, host or container has an end, and no stream of one is read without a limit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "provisioner"
RUNS = ("subprocess.run", "subprocess.check_output", "subprocess.check_call", "subprocess.call", "urlopen")
OPENED = ("subprocess.Popen",)
ENDLESS = ("wait", "join", "communicate")
"""Without an argument these wait for ever."""
CONNECTS = ("create_connection", "HTTPConnection", "HTTPSConnection")
"""Whose second argument, or that named timeout, is a time limit."""
STREAMS = ("response", "stdout", "stderr", "connection", "socket", "answer", "pipe", "process")
"""What an unlimited ``read()`` of is one of something outside."""
ALLOWED = {
    "inside/agent.py: subprocess.run": "sha256sum; the look that runs it has a time limit",
    "inside/agent.py: subprocess.Popen": "systemctl, dpkg-query; the look that runs it has both limits",
    "inside/agent.py: communicate": "the same",
    "cli/open.py: subprocess.run": "the user's own RDP client, for as long as the user likes",
    "cli/open.py: subprocess.Popen": "the same, left to itself",
    "cluster/run.py: subprocess.Popen": "its lines are read with a deadline and a limit, its end waited for with one",
    "measuring/endpoints.py: join": "a thread of ours that serves, and was told to end",
    "inside/request_limits.py: wait": "begins a timer",
    "hosts/incus/attach.py: connection_to": "what the user attached to goes on for as long as the user likes",
    "hosts/incus/attach.py: join": "what the user attached to goes on for as long as the user likes",
    "hosts/proxmox/attach.py: subprocess.Popen": "what the user attached to goes on for as long as the user likes",
    "hosts/proxmox/attach.py: wait": "a signal ends it, in a thread; or its stderr has ended, or it was killed",
    "hosts/proxmox/attach.py: join": "the same; and the killing has limits of its own",
    "hosts/proxmox/ssh.py: subprocess.Popen": "read by _SshOutputs: a deadline and limits",
    "hosts/proxmox/api.py: wait": "a pause of our own (backoff), which has patience of its own",
    "measuring/tools.py: subprocess.Popen": "a timer ends it, and its lines have a limit",
    "measuring/tools.py: join": "a thread of ours that waits for the same, which the timer ends",
    "measuring/tools.py: wait": "it was killed, or its output has ended: the timer goes on until it has",
    "reconcile/artifacts.py: join": "a thread of ours whose every look has a time limit",
}


def named(call: ast.Call) -> str:
    """What is called, as it is written; an owner that is more than names is a pair of parentheses."""
    names: list[str] = []
    node = call.func
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "()")
    return ".".join(reversed(names))


def has_timeout(call: ast.Call) -> bool:
    """Whether the call says how long it may take."""
    given = {keyword.arg for keyword in call.keywords}
    return bool(given & {"timeout", "timeout_s"}) or None in given


def objection(call: ast.Call) -> str:  # noqa: PLR0911 - a kind of call each
    """What a call does without an end, or nothing."""
    name = named(call)
    owner, _, method = name.rpartition(".")
    if (name in RUNS or method == "urlopen") and not has_timeout(call):
        return "subprocess.run" if name in RUNS else "urlopen"
    if name in OPENED:
        return name
    if owner and method in ENDLESS and not call.args and not has_timeout(call) and owner != "os":
        return method
    if method == "read" and not call.args and owner.rpartition(".")[2] in STREAMS:
        return f"{owner}.read"
    if name.endswith("connection_to") and any(ast.unparse(one.value) == "None" for one in call.keywords):
        return "connection_to"
    if owner.endswith(("requests", "session")) and method in {"get", "post", "request"} and not has_timeout(call):
        return f"{owner}.{method}"
    if owner and method in CONNECTS and len(call.args) < 2 + (method != "create_connection") and not has_timeout(call):
        return method
    return ""


def objections(path: Path) -> Iterator[tuple[str, int]]:
    """The calls of a file that have no end, and their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and (found := objection(node)):
            yield f"{path.relative_to(SOURCE)}: {found}", node.lineno


TASKS = SOURCE / "ansible" / "modules"
"""What runs as a task has that task's limits: ANSIBLE_TASK_TIMEOUT, and those of the connection."""
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.is_relative_to(TASKS))


def test_every_wait_has_an_end_or_a_reason() -> None:
    found = {what: line for path in MODULES for what, line in objections(path)}
    assert {what: line for what, line in found.items() if what not in ALLOWED} == {}
    assert sorted(ALLOWED.keys() - found.keys()) == [], "these reasons are needed no more"


ENDS = ("killed_at_end", "awaited_at_end")
"""Of ``tests.processes``: a program that one of them is given has an end."""
MAY_WAIT = re.compile(
    r"subprocess|urlopen|connection|Connection\(|(requests|session)\.|\.(wait|join|communicate|result)\(\)"
)
"""A text without a match has no call that is looked for: most files need not be parsed."""
ALLOWED_IN_TESTS = {
    "molecule/agent_team/files/engine.py: wait": "a unit of a container: it serves for as long as that runs",
    "molecule/pipelines/files/engine.py: wait": "the same",
    "tests/integration/up/team_in_turns.py: wait": "the same",
    "tests/doubles/proxmox/lxc.py: subprocess.run": "plays lxc-attach, which runs for as long as its command",
    "tests/desktop_visit.py: subprocess.Popen": "runs where nothing of tests is; the client of the proof ends it",
    "tests/mutations.py: subprocess.Popen": "its session is ended in any case, which no signal may interrupt",
    "tests/unit/test_processes.py: subprocess.Popen": "is given to what it tests",
}


def objections_in_tests(text: str) -> Iterator[tuple[str, int]]:
    """The calls of a test, or of what serves tests, that have no end, and their lines."""
    if not MAY_WAIT.search(text):
        return
    tree = ast.parse(text)
    has_end: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Await):
            has_end.add(node.value)  # nothing of asyncio's has a limit of its own: that of ``wait_for`` is around it
        elif isinstance(node, ast.Call) and named(node) in ENDS:
            has_end.update(node.args)
        elif isinstance(node, ast.ImportFrom) and node.module == "subprocess":
            yield "from subprocess import", node.lineno  # the calls would not be known
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or node in has_end:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr == "result" and not node.args + node.keywords:
            yield "result", node.lineno  # of a future
        found = objection(node)
        if found and not found.endswith(".read"):  # what a test reads is what the test itself has written
            yield found, node.lineno


def test_every_wait_of_tests_and_measurements_has_an_end_or_a_reason() -> None:
    files = [path for folder in ("tests", "molecule", "benchmarks", ".ci") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 500
    found = {
        f"{path.relative_to(ROOT)}: {what}": line
        for path in files
        for what, line in objections_in_tests(path.read_text(encoding="utf-8"))
    }
    assert {what: line for what, line in found.items() if what not in ALLOWED_IN_TESTS} == {}
    assert sorted(ALLOWED_IN_TESTS.keys() - found.keys()) == [], "these reasons are needed no more"


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['x'], check=True)",
        "subprocess.check_output(['x'], text=True)",
        "process = subprocess.Popen(['x'])",
        "with subprocess.Popen(['x']) as process: process.kill()",
        "with killed_at_end(begun(subprocess.Popen(['x']))): pass",
        "answer = pool.submit(ask).result()",
        "thread.join()",
        "from subprocess import run",
    ],
)
def test_what_has_no_end_in_a_test_is_found(text: str) -> None:
    assert len(list(objections_in_tests(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['x'], check=True, timeout=60)",
        "with killed_at_end(subprocess.Popen(['x'])) as process: process.wait(3)",
        "stack.enter_context(awaited_at_end(subprocess.Popen(['x']), within_s=3))",
        "async def test(): await asyncio.Event().wait()",
        "answer = response.read()",
    ],
)
def test_what_has_an_end_in_a_test_is_left_alone(text: str) -> None:
    assert list(objections_in_tests(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['x'])",
        "process.wait()",
        "thread.join()",
        "process.communicate()",
        "urllib.request.urlopen(address)",
        "response.read()",
        "process.stdout.read()",
        "wire.connection_to(endpoint, timeout_s=None)",
        "session.request('GET', url)",
        "socket.create_connection((host, 80))",
        "http.client.HTTPConnection(host, 80)",
    ],
)
def test_what_has_no_end_is_found(text: str) -> None:
    (node,) = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    assert objection(node)


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(['x'], timeout=3)",
        "process.wait(3)",
        "', '.join(names)",
        "response.read(1024)",
        "file.read()",
        "socket.create_connection((host, 80), 5)",
        "http.client.HTTPConnection(host, 80, timeout=5)",
    ],
)
def test_what_has_an_end_is_left_alone(text: str) -> None:
    (node,) = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    assert not objection(node)
