"""Every wait for another program, host or container has an end, and no stream of one is read without a limit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "provisioner"
RUNS = ("subprocess.run", "subprocess.check_output", "subprocess.check_call", "subprocess.call", "urlopen")
OPENED = ("subprocess.Popen",)
ENDLESS = ("wait", "join", "communicate")
"""Without an argument these wait for ever."""
STREAMS = ("response", "stdout", "stderr", "connection", "socket", "answer", "pipe", "process")
"""What an unlimited ``read()`` of is one of something outside."""
ALLOWED = {
    "agent.py: subprocess.run": "sha256sum; the look that runs it has a time limit",
    "agent.py: subprocess.Popen": "systemctl, dpkg-query; the look that runs it has both limits",
    "agent.py: communicate": "the same",
    "cli/opening.py: subprocess.run": "the user's own RDP client, for as long as the user likes",
    "cli/opening.py: subprocess.Popen": "the same, left to itself",
    "cluster/turn.py: subprocess.Popen": "its lines are read with a deadline and a limit, its end waited for with one",
    "forwarder.py: join": "a thread of ours that serves, and was told to end",
    "guard.py: wait": "begins a timer",
    "providers/incus/attach.py: connection_to": "what the user attached to goes on for as long as the user likes",
    "providers/incus/attach.py: join": "what the user attached to goes on for as long as the user likes",
    "providers/proxmox/attach.py: subprocess.Popen": "what the user attached to goes on for as long as the user likes",
    "providers/proxmox/attach.py: wait": "the same; in a thread, and a signal ends it",
    "providers/proxmox/attach.py: join": "the same",
    "providers/proxmox/relay.py: wait": "its stderr has ended, or it was killed",
    "providers/proxmox/relay.py: join": "the killing has limits of its own",
    "providers/proxmox/shell.py: subprocess.Popen": "read by _Outputs: a deadline and limits",
    "tool_runs.py: subprocess.Popen": "a timer ends it, and its lines have a limit",
    "tool_runs.py: join": "a thread of ours that waits for the same, which the timer ends",
    "tool_runs.py: wait": "it was killed, or its output has ended: the timer goes on until it has",
    "artifacts/watching.py: join": "a thread of ours whose every look has a time limit",
    "providers/proxmox/client.py: wait": "a pause of our own (backoff), which has patience of its own",
}


def named(call: ast.Call) -> str:
    """What is called, as it is written."""
    return ast.unparse(call.func)


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
    ],
)
def test_what_has_no_end_is_found(text: str) -> None:
    (node,) = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    assert objection(node)


@pytest.mark.parametrize(
    "text",
    ["subprocess.run(['x'], timeout=3)", "process.wait(3)", "', '.join(names)", "response.read(1024)", "file.read()"],
)
def test_what_has_an_end_is_left_alone(text: str) -> None:
    (node,) = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    assert not objection(node)
