"""What users read: plans, states, errors, JSON lines."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.lab.served import Served
from provisioner.page.clients import CLIENTS, Gateway, client_text
from provisioner.reconcile.text import plan_text, status_text
from provisioner.report.messages import (
    check_text,
    error_text,
    event_line,
    findings_text,
    json_line,
    plain_value,
    summary_text,
    version_line,
)
from provisioner.report.style import Style, duration_text, limit_text, safe_text, table
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.values.events import ApplyProgress, Check, Diagnostic, PlannedChange, Summary
from provisioner.values.plan import Change, Plan
from provisioner.values.state import (
    Artifact,
    ContainerStatus,
    Device,
    Finding,
    Instance,
    Screen,
    Secret,
    Service,
    ServiceStatus,
    Status,
)

GIB = 1024**3
CANARY = "canary-7f3a"
LLAMA = Instance(
    name="llama",
    host="box",
    lab="homelab",
    image="debian/12",
    cpu=2,
    memory=2 * GIB,
    disk=10 * GIB,
    devices=(
        Device(
            "llama_cpp", "volume", {"volume": "provision-llama-cpp-ab", "path": "/opt/llama_cpp", "readonly": "true"}
        ),
        Device("lan", "publish", {"listen": "0.0.0.0:8080", "connect": "127.0.0.1:8080"}),
    ),
    services=(Service("llama_cpp", "llama", "engine", {"llama_cpp_api_key": Secret("engine_key", CANARY)}, port=8080),),
)
BUILD = Change(
    "build",
    "llama_cpp",
    None,
    Artifact("llama_cpp", "box", "ab" * 32, "llama_cpp", "/opt/llama_cpp", "debian/12", mounted_at="/opt/llama_cpp/ab"),
    "not on host box yet",
)
CREATE = Change("create", "llama", None, LLAMA, "in the file, not on the host")


def changed(**attributes: object) -> Instance:
    """``LLAMA`` as a host shows it, with other attributes."""
    return Instance(**{**{name: getattr(LLAMA, name) for name in LLAMA.__slots__}, **attributes})


NULL = {"path": "/dev/null", "mode": "0660", "uid": 0, "gid": 0}
LENT = changed(settings={"devices": (NULL,)})
PLANS = {
    "creation": Plan((BUILD, CREATE)),
    "update": Plan((Change("update", "llama", changed(memory=GIB), LLAMA, "memory changed in the file"),)),
    "replacement": Plan(
        (Change("replace", "llama", changed(image="debian/13", cpu=1), LLAMA, "image, cpu changed in the file"),)
    ),
    "start": Plan((Change("start", "llama", LLAMA, LLAMA, "because"),)),
    "stop": Plan((Change("stop", "llama", LLAMA, LLAMA, "because"),)),
    "delete": Plan((Change("delete", "llama", LLAMA, None, "because"),)),
    "orphans alone": Plan(orphans=(changed(name="old"),)),
    # The container calls its ports devices, its proxmox block the device files: neither hides the other.
    "ports beside device files": Plan((Change("create", "llama", None, LENT, "not there"),)),
    "device files alone": Plan((Change("update", "llama", changed(settings={"devices": ()}), LENT, "differs"),)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_says_what_will_be_done_why_and_how_much(plan: Plan, snapshot: SnapshotAssertion) -> None:
    assert plan_text(plan) == snapshot


def test_ports_that_differ_are_not_taken_for_device_files() -> None:
    before = changed(settings={"devices": (NULL,)}, devices=())
    assert set(Change("update", "llama", before, LENT, "differs").attributes()) == {"devices"}


def test_colour_adds_nothing_but_codes() -> None:
    plan = Plan((BUILD, CREATE), orphans=(changed(name="old"),))
    coloured = plan_text(plan, Style(color=True))
    assert "\033[32m+\033[0m" in coloured
    assert re.sub(r"\033\[\d+m", "", coloured) == plan_text(plan)


def test_a_name_cannot_steer_the_terminal() -> None:
    evil = "x\033[2Jy\r\u202ez"
    assert "\033" not in plan_text(Plan((Change("start", evil, LLAMA, LLAMA, evil),)))
    assert safe_text(evil) == "x\\x1b[2Jy\\r\\u202ez"
    assert "\033" not in status_text([ContainerStatus(evil, evil)])
    assert "\033" not in error_text(PreflightError(evil, details=evil, resolution=evil))


LLAMA_CPP = ServiceStatus("llama_cpp", "active", True, 8080, "CPU")
SEEN = (Screen("chat", "an answer of fast", "/lab/chat.png"), Screen("sign_in", "", "/lab/sign-in.png"))
STATES = {
    "drift, a failed unit, missing and orphaned": (
        ContainerStatus(
            "llama",
            "box",
            Status.RUNNING,
            "10.88.0.5",
            (LLAMA_CPP, ServiceStatus("litellm", "failed", None, 4000)),
            drift=("memory",),
        ),
        ContainerStatus("desk", "box"),
        ContainerStatus("old", "box", Status.STOPPED, orphan=True),
    ),
    "why a device is proved or not": (
        ContainerStatus(
            "a", "box", services=(replace(LLAMA_CPP, processor="GPU", why="CUDA0 has 33 of 33 layers; 48.2 tokens/s"),)
        ),
        ContainerStatus("b", "box", services=(replace(LLAMA_CPP, why="no device was asked for"),)),
    ),
    "pictures of proofs": (
        ContainerStatus(
            "chat", "box", services=(ServiceStatus("open_webui", "active", True, 8090, "CPU", screens=SEEN),)
        ),
        ContainerStatus(
            "desk",
            "box",
            services=(replace(LLAMA_CPP, role="desktop", screens=(Screen("desktop", "mate", "/lab/desk.png"),)),),
        ),
    ),
    "nothing": (),
}


@pytest.mark.parametrize("containers", STATES.values(), ids=STATES)
def test_a_state_has_a_row_for_each_service(
    containers: tuple[ContainerStatus, ...], snapshot: SnapshotAssertion
) -> None:
    assert status_text(containers) == snapshot


def test_messages(snapshot: SnapshotAssertion) -> None:
    error = PreflightError(
        "Unable to reach Incus", details="no socket\nat /x", resolution="Run: provision host prepare"
    )
    finding = Finding(Address("llama/llama_cpp"), "does not answer", "connection refused", "Run: provision up")
    texts = (
        error_text(error),
        error_text(PreflightError("Unable to x")),
        findings_text([finding]),
        findings_text([]),
        check_text(Check("llama/llama_cpp", "completion", True, "4 tokens")),
        table(("A", "B"), []),
    )
    assert "\n\n".join(texts) == snapshot


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        (
            Summary("up", 0, {"create": 2, "build": 1, "start": 0}, 93.2),
            "Up complete after 1m 33s: 2 created, 1 built.",
        ),
        (Summary("up", 1, {"create": 1}, 4.0), "Up stopped after 4.0s: 1 created."),
        (Summary("up", 4, {}, 0.1), ""),
        (Summary("up", 0), ""),
    ],
)
def test_summary_says_what_was_done_and_what_not(summary: Summary, expected: str) -> None:
    assert summary_text(summary) == expected


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "no limit"), (1000, "1000"), (2 * GIB, "2GiB"), (1536 * 1024**2, "1536MiB"), (GIB + 1, f"{GIB + 1}")],
)
def test_sizes_are_exact(size: int | None, text: str) -> None:
    assert limit_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0s"), (9.96, "10.0s"), (59.6, "1m 00s"), (185, "3m 05s"), (3720, "1h 02m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_stream_opens_with_the_version_and_names_types_in_snake_case() -> None:
    assert next(iter(json.loads(version_line()))) == "type"
    line = json.loads(event_line(PlannedChange("llama", "update", "why", {"memory": (1, 2)})))
    assert line == {
        "type": "planned_change",
        "target": "llama",
        "action": "update",
        "reason": "why",
        "changes": {"memory": [1, 2]},
        "meanwhile": "",
    }
    assert json.loads(event_line(ApplyProgress("llama", "a\nb")))["message"] == "a\nb"
    assert "\n" not in event_line(Diagnostic("error", "a\nb"))


def test_no_secret_in_any_output() -> None:
    secret = Secret("engine_key", CANARY)
    value = {"a": [secret, (LLAMA,)], "b": Change("create", "x", None, LLAMA, str(secret)), "c": {secret}}
    assert plain_value(secret) == "********"
    outputs = [
        json_line("result", {"value": value}),
        plan_text(Plan((CREATE,))),
        event_line(PlannedChange("x", "create", "y", {"services": (None, LLAMA.services)})),
        safe_text(LLAMA),
    ]
    for output in outputs:
        assert CANARY not in output
    assert "********" in outputs[0]


MODELS = {"fast": Served(131072), "eye": Served(16384, vision=True), "big": Served()}
GATEWAY = Gateway("homelab", "http://10.88.0.7:4000/v1", "PROVISION_SECRET_LITELLM_KEY", MODELS)


def test_opencode_snippet_is_valid_json_that_names_the_key() -> None:
    snippet = json.loads(client_text("opencode", GATEWAY))
    provider = snippet["provider"]["homelab"]
    assert snippet["$schema"] == "https://opencode.ai/config.json"
    assert provider["npm"] == "@ai-sdk/openai-compatible"
    assert provider["options"] == {"baseURL": GATEWAY.url, "apiKey": "{env:PROVISION_SECRET_LITELLM_KEY}"}
    assert provider["models"] == {
        "fast": {"name": "fast", "limit": {"context": 131072, "output": 8192}},
        "eye": {
            "name": "eye",
            "limit": {"context": 16384, "output": 4096},
            "attachment": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
        },
        "big": {"name": "big"},
    }


@pytest.mark.parametrize("client", ["openai", "openwebui"])
def test_variables_come_with_each_models_limits(client: str, snapshot: SnapshotAssertion) -> None:
    assert client_text(client, GATEWAY) == snapshot


@pytest.mark.parametrize("client", CLIENTS)
def test_every_snippet_gives_the_url_and_survives_a_lab_without_a_key(client: str) -> None:
    assert GATEWAY.url in client_text(client, GATEWAY)
    open_text = client_text(client, Gateway("homelab", GATEWAY.url, ""))
    assert "PROVISION_SECRET" not in open_text
    assert "env:" not in open_text
