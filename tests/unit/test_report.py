"""What users read: plans, states, errors, JSON lines."""

from __future__ import annotations

import json
import re

import pytest

from provisioner.plan import Change, Plan
from provisioner.report.client import CLIENTS, Gateway, Served, client_text
from provisioner.report.lines import event_line, json_line, plain_value, version_line
from provisioner.report.messages import check_text, error_text, findings_text, summary_text
from provisioner.report.plan import count_line, plan_text
from provisioner.report.status import status_text
from provisioner.report.style import Style, duration_text, limit_text, safe_text, table
from provisioner.values.address import Address
from provisioner.values.errors import PreflightError
from provisioner.values.events import ApplyProgress, Check, Diagnostic, PlannedChange, Summary
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


def test_creation_shows_every_default_and_the_ports() -> None:
    text = plan_text(Plan((BUILD, CREATE)))
    assert "  # container llama will be created (in the file, not on the host)\n  + container llama\n" in text
    for line in ("image    = debian/12", "cpu      = 2", "memory   = 2GiB", "disk     = 10GiB", "nesting  = false"):
        assert f"      + {line}\n" in text
    assert "services = llama_cpp (port 8080)" in text
    assert "provision-llama-cpp-ab at /opt/llama_cpp (read-only); 0.0.0.0:8080 -> 127.0.0.1:8080" in text
    assert text.endswith("Plan: 1 to create, 0 to change, 0 to destroy, 1 artifact to build.")


def test_update_shows_only_what_differs_from_what_to_what() -> None:
    text = plan_text(Plan((Change("update", "llama", changed(memory=GIB), LLAMA, "memory changed in the file"),)))
    assert "      ~ memory = 1GiB -> 2GiB" in text
    assert "image" not in text
    assert text.endswith("Plan: 0 to create, 1 to change, 0 to destroy.")


def test_replacement_names_the_attribute_that_forces_it() -> None:
    before = changed(image="debian/13", cpu=1)
    text = plan_text(Plan((Change("replace", "llama", before, LLAMA, "image, cpu changed in the file"),)))
    assert "-/+ container llama" in text
    assert "~ image = debian/13 -> debian/12 # forces replacement" in text
    assert re.search(r"~ cpu +=? ?.*1 -> 2$", text, re.MULTILINE)
    assert text.endswith("Plan: 1 to create, 0 to change, 1 to destroy.")


@pytest.mark.parametrize(
    ("action", "sign", "count"),
    [("start", ">", "1 to start"), ("stop", ".", "1 to stop"), ("delete", "-", "1 to destroy")],
)
def test_every_other_action_has_its_sign_and_is_counted(action: str, sign: str, count: str) -> None:
    change = Change(action, "llama", LLAMA, None if action == "delete" else LLAMA, "because")  # type: ignore[arg-type]
    text = plan_text(Plan((change,)))
    assert re.search(rf"^ +{re.escape(sign)} container llama$", text, re.MULTILINE)
    assert count in count_line(Plan((change,)))


def test_empty_plan_says_so_and_orphans_are_named() -> None:
    text = plan_text(Plan(orphans=(changed(name="old"),)))
    assert "? old on host box" in text
    assert text.endswith("No changes: the containers, and what was put into them, are as the file says.")


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


def test_status_has_a_row_for_every_service() -> None:
    both = (ServiceStatus("llama_cpp", "active", True, 8080, "CPU"), ServiceStatus("litellm", "failed", None, 4000))
    text = status_text(
        [
            ContainerStatus("llama", "box", Status.RUNNING, "10.88.0.5", both, drift=("memory",)),
            ContainerStatus("desk", "box"),
            ContainerStatus("old", "box", Status.STOPPED, orphan=True),
        ]
    )
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == ["CONTAINER", "HOST", "STATE", "ADDRESS", "SERVICE", "PORT", "HEALTH", "ON", "DRIFT"]
    assert rows[1] == ["llama", "box", "running", "10.88.0.5", "llama_cpp", "8080", "healthy", "CPU", "drifted"]
    assert "  llama: memory" in text
    assert rows[2] == ["litellm", "4000", "failed", "-"]
    assert rows[3] == ["desk", "box", "missing", "-", "-", "-", "-", "-", "-"]
    assert rows[4] == ["old", "box", "stopped", "-", "-", "-", "-", "-", "orphan"]
    starts = {line.index(word) for line, word in zip(text.splitlines()[1:3], ("llama_cpp", "litellm"), strict=True)}
    assert len(starts) == 1


def test_status_says_below_why_a_device_is_proved_or_not() -> None:
    proved = ServiceStatus("llama_cpp", "active", True, 8080, "GPU", "CUDA0 has 33 of 33 layers; 48.2 tokens/s")
    idle = ServiceStatus("llama_cpp", "active", True, 8080, "CPU", "no device was asked for")
    text = status_text(
        [ContainerStatus(name, "box", services=(one,)) for name, one in {"a": proved, "b": idle}.items()]
    )
    assert text.splitlines()[1].split()[7] == "GPU"
    assert text.endswith("\n\nDevices:\n  a/llama_cpp: GPU: CUDA0 has 33 of 33 layers; 48.2 tokens/s")


def test_status_names_the_pictures_of_proofs() -> None:
    seen = (Screen("chat", "an answer of fast", "/lab/chat.png"), Screen("sign_in", "", "/lab/sign-in.png"))
    chat = ServiceStatus("open_webui", "active", True, 8090, "CPU", screens=seen)
    desk = ServiceStatus("desktop", "active", True, 3389, "CPU", screens=(Screen("desktop", "mate", "/lab/desk.png"),))
    text = status_text(
        [ContainerStatus("chat", "box", services=(chat,)), ContainerStatus("desk", "box", services=(desk,))]
    )
    assert text.endswith(
        "\n\nPictures:\n"
        "  chat/open_webui: chat, judged to show an answer of fast: /lab/chat.png\n"
        "  chat/open_webui: sign_in, judged to show something unknown: /lab/sign-in.png\n"
        "  desk/desktop: desktop, judged to show a desktop: /lab/desk.png"
    )


def test_empty_status_says_so() -> None:
    assert "no containers" in status_text([])


def test_error_shows_message_details_and_what_to_do() -> None:
    error = PreflightError(
        "Unable to reach Incus", details="no socket\nat /x", resolution="Run: provision host prepare"
    )
    assert error_text(error) == (
        "Error: Unable to reach Incus\n  no socket\n  at /x\n  What to do: Run: provision host prepare"
    )
    assert error_text(PreflightError("Unable to x")) == "Error: Unable to x"


def test_findings_are_told_one_by_one_and_counted() -> None:
    text = findings_text(
        [Finding(Address("llama/llama_cpp"), "does not answer", "connection refused", "Run: provision up")]
    )
    assert text == (
        "FAIL llama/llama_cpp: does not answer\n  connection refused\n  What to do: Run: provision up\n1 finding."
    )
    assert "everything works" in findings_text([])
    assert check_text(Check("llama/llama_cpp", "completion", True, "4 tokens")).startswith("ok ")


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
    [
        (None, "no limit"),
        (1000, "1000"),
        (2 * GIB, "2GiB"),
        (1536 * 1024**2, "1536MiB"),
        (GIB + 1, f"{GIB + 1}"),
    ],
)
def test_sizes_are_exact(size: int | None, text: str) -> None:
    assert limit_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0s"), (9.96, "10.0s"), (59.6, "1m 00s"), (185, "3m 05s"), (3720, "1h 02m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_table_without_rows_is_its_head() -> None:
    assert table(("A", "B"), []) == "A  B"


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


def test_openais_variables_come_with_each_models_limits() -> None:
    lines = client_text("openai", GATEWAY).splitlines()
    assert lines[:4] == [
        "# models: fast, eye, big",
        "# fast: text, 131072 tokens of context, 8192 of them for the answer",
        "# eye: text and images, 16384 tokens of context, 4096 of them for the answer",
        "# big: text",
    ]
    assert lines[4] == f"export OPENAI_BASE_URL={GATEWAY.url}"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_snippet_gives_the_url_and_survives_a_lab_without_a_key(client: str) -> None:
    assert GATEWAY.url in client_text(client, GATEWAY)
    open_text = client_text(client, Gateway("homelab", GATEWAY.url, ""))
    assert "PROVISION_SECRET" not in open_text
    assert "env:" not in open_text


def test_device_files_of_the_host_stand_beside_volumes_and_ports() -> None:
    """Both are called ``devices``, one by the container, one by its ``proxmox`` block: neither hides the other."""
    null = {"path": "/dev/null", "mode": "0660", "uid": 0, "gid": 0}
    wanted = changed(settings={"devices": (null,)})
    text = plan_text(Plan((Change("create", "llama", None, wanted, "not there"),)))
    assert re.search(r"\+ devices +=.* 0\.0\.0\.0:8080 -> 127\.0\.0\.1:8080", text)
    assert re.search(r"\+ host devices +=.* path=/dev/null", text)
    before = changed(settings={"devices": (null,)}, devices=())
    assert set(Change("update", "llama", before, wanted, "differs").attributes()) == {"devices"}
    before = changed(settings={"devices": ()})
    text = plan_text(Plan((Change("update", "llama", before, wanted, "differs"),)))
    assert re.search(r"~ host devices += none -> path=/dev/null", text)
