"""The verbs of a lab on a host in memory: what is asked, what is done, how it ends, what is said."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from provisioner.reconcile.runner import TaskEvent
from provisioner.values import paths
from provisioner.values.errors import PreflightError
from provisioner.values.state import Instance, Status
from tests.raising import raising
from tests.unit.cli.conftest import ENGINE_KEY, GATEWAY_KEY, World

CONTAINERS = {"gateway", "llama"}
APPLIED = {"build": 3, "create": 2, "configure": 2}


def running(world: World) -> set[str]:
    return {name for name, one in world.host.containers.items() if one.instance.status is Status.RUNNING}


def is_stream(events: list[dict[str, object]], code: int) -> bool:
    """Whether it opens with the version and closes with its one summary, which tells the exit code."""
    kinds = [one["type"] for one in events]
    return (
        kinds[0] == "version"
        and kinds.count("version") == 1
        and kinds[-1] == "summary"
        and kinds.count("summary") == 1
        and events[-1]["exit_code"] == code
    )


def test_plan_says_what_up_would_do_and_touches_nothing(world: World) -> None:
    assert world.command("plan").ended(0) == world.snapshot
    stream = world.command("plan", "--json")
    assert len(stream.of("planned_change")) == 5
    assert stream.of("summary")[0]["counts"] == {"build": 3, "create": 2}
    assert world.command("plan", "--detailed-exitcode").code == 2
    assert world.host.containers == {}


def test_up_makes_the_lab_and_a_second_one_changes_nothing(world: World) -> None:
    answer = world.done("up", "--yes")
    assert running(world) == CONTAINERS
    assert answer.after_plan == world.snapshot
    assert world.command("plan", "--detailed-exitcode").code == 0
    assert world.command("plan", "--json").of("summary")[0]["counts"] == {}
    assert world.command("up").printed == world.snapshot


def test_a_host_that_goes_on_talking_opens_no_display_again(up: World) -> None:
    before = threading.active_count()
    up.host.on_progress("llama", "unpack image debian/12")
    assert threading.active_count() == before


def test_json_is_a_stream_with_one_summary(world: World) -> None:
    answer = world.command("up", "--yes", "--json")
    assert is_stream(answer.events, 0)
    assert answer.err == ""
    assert {line["target"] for line in answer.of("planned_change") if line["action"] == "create"} == CONTAINERS
    said = [(line["target"], line["message"]) for line in answer.of("apply_progress")]
    assert ("llama", "unpack image debian/12") in said
    assert {line["target"] for line in answer.of("check") if line["ok"]} == {"gateway/litellm", "llama/llama_cpp"}
    assert answer.of("summary")[0]["counts"] == APPLIED


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 4), ("\n", 4), ("", 4)])
def test_up_asks_on_a_terminal(world: World, typed: str, code: int) -> None:
    answer = world.command("up", typed=typed)
    assert answer.code == code
    assert "Do you want to apply? [y/N] " in answer.out
    assert running(world) == (CONTAINERS if code == 0 else set())


def test_a_terminal_sees_a_live_display_then_the_proofs_then_the_summary(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    answer = world.done("up", "--yes", on_terminal=True)
    screen = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", answer.out)
    assert "\033[?25l" in answer.out  # the cursor is hidden while the display is redrawn …
    assert answer.out.count("\033[?25l") == answer.out.count("\033[?25h")  # … and shown again
    display = screen.index("creating done")
    assert display < screen.index("ok   llama/llama_cpp: works") < screen.index("Up complete after")


def test_up_without_a_terminal_needs_yes(world: World) -> None:
    answer = world.command("up")
    assert answer.code == 4
    assert answer.after_plan == world.snapshot
    assert world.host.containers == {}


@pytest.mark.parametrize("typed", [None, "y\n"])
def test_json_never_asks_even_on_a_terminal(world: World, typed: str | None) -> None:
    answer = world.command("up", "--json", typed=typed)
    assert answer.code == 4
    assert is_stream(answer.events, 4)
    assert answer.of("diagnostic")[0]["severity"] == "error"
    assert world.host.containers == {}


def test_a_failure_says_what_was_done_and_exits_1(world: World) -> None:
    world.host.never_ready.add("llama")
    answer = world.command("up", "--yes")
    assert answer.code == 1
    assert "llama: creating failed: Unable to start container llama" in answer.out
    assert "The end of its console" in answer.err
    assert "Not done: " in answer.err


def test_a_failure_ends_the_stream_with_its_summary(world: World) -> None:
    world.host.never_ready.add("llama")
    stream = world.command("up", "--yes", "--json")
    assert is_stream(stream.events, 1)
    assert [line["target"] for line in stream.of("apply_errored")] == ["llama"]
    assert stream.of("diagnostic")[0]["message"] == "Unable to start container llama"


@pytest.mark.parametrize(
    ("task", "code"),
    [("verify | Complete", 3), ("llama_cpp : verify_device | Refuse", 3), ("install | Unpack", 1)],
    ids=["proof", "device", "role"],
)
def test_a_failed_proof_exits_3_and_a_failed_role_1(world: World, task: str, code: int) -> None:
    world.failures["site.yml"] = (TaskEvent("failed", "llama", "llama_cpp", task, "no answer"),)
    answer = world.command("up", "--yes")
    assert answer.code == code
    assert answer.after_plan == world.snapshot


def test_what_ansible_did_not_come_to_is_neither_done_nor_stamped(world: World, lab: Path) -> None:
    world.failures["site.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "install | Unpack", "disk full"),)
    world.unreached = {"gateway/litellm"}
    answer = world.command("up", "--yes", "--json")
    assert is_stream(answer.events, 1)
    errored = {line["target"]: line["message"] for line in answer.of("apply_errored")}
    assert errored["llama"] == "disk full"
    assert "disk full" in answer.of("diagnostic")[0]["details"]
    assert errored["gateway"] == "not configured: Ansible stopped when llama failed, before litellm"
    done = {line["target"] for line in answer.of("apply_complete") if line["action"] == "configure"}
    assert done == set()
    (journal,) = (lab.parent / ".provision/journal").glob("*.jsonl")
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    written = {line["type"] for line in lines if line.get("action") == "configure"}
    assert written == {"ApplyStart", "ApplyErrored"}
    world.failures.clear()
    world.unreached.clear()
    configured = {line["target"] for line in world.command("plan", "--json").of("planned_change")}
    assert "gateway/litellm" in configured


def test_a_host_that_does_not_answer_exits_4(world: World) -> None:
    world.host.available = False
    for verb in ("plan", "up", "status", "verify", "down", "destroy"):
        assert world.command(verb).code == 4


def test_a_strangers_container_is_never_touched(world: World) -> None:
    stranger = Instance("llama", "box", "another", "debian/12")
    world.host.create(stranger)
    assert world.command("up", "--yes").ended(4) == world.snapshot
    assert world.command("destroy", "--yes", "--lab", "homelab").code == 0
    assert set(world.host.containers) == {"llama"}


def test_a_container_of_an_example_is_told_with_its_file(world: World) -> None:
    world.host.create(Instance("llama", "box", "quickstart", "debian/12"))
    refused = world.command("up", "--yes").ended(4)
    file = paths.share() / "examples/quickstart.yml"
    assert f"host box has a container llama of lab quickstart (such as that of {file})" in " ".join(refused.split())


def test_interruption_exits_130_and_says_that_the_command_resumes(world: World) -> None:
    world.raises = KeyboardInterrupt()
    answer = world.command("up", "--yes")
    assert answer.code == 130
    assert answer.err == world.snapshot
    assert is_stream(world.command("up", "--yes", "--json").events, 130)
    world.raises = None
    assert world.command("up", "--yes").code == 0
    assert running(world) == CONTAINERS


def test_an_unforeseen_error_is_short_unless_verbose(world: World) -> None:
    world.raises = RuntimeError(f"odd, with {ENGINE_KEY}")
    short = world.command("up", "--yes")
    long = world.command("up", "--yes", "-v")
    assert (short.code, long.code) == (1, 1)
    assert short.err == world.snapshot
    assert "Traceback" in long.err
    assert ENGINE_KEY not in short.err + long.err


@pytest.mark.parametrize("form", [(), ("--json",), ("-v",)])
def test_a_secret_that_somebody_else_says_is_masked(
    world: World, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    awkward = 'canary-"quoted"\\back'
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", awkward)
    told = f"the engine said: {awkward}, twice: {awkward}"
    world.failures["site.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "install | Unpack", told),)
    answer = world.command("up", "--yes", *form)
    assert answer.code == 1
    assert "the engine said: ********, twice: ********" in answer.out + answer.err
    assert "canary" not in answer.out + answer.err


def test_status_shows_what_runs_and_what_is_missing(world: World) -> None:
    assert world.command("status").printed == world.snapshot
    world.command("up", "--yes")
    assert world.command("status", "llama").printed == world.snapshot
    world.health = 503
    assert world.command("status").printed == world.snapshot


def test_a_busy_service_is_healthy_and_no_reason_to_do_anything(up: World) -> None:
    up.played.clear()
    up.healths["llama/llama_cpp"] = "busy"
    assert up.command("status").printed == up.snapshot
    seen = {one["name"]: one for one in up.command("status", "--json").of("container")}
    healths = [(one["health"], one["healthy"]) for name in ("llama", "gateway") for one in seen[name]["services"]]
    assert healths == [("busy", True), ("healthy", True)]
    assert up.command("plan", "--detailed-exitcode").code == 0
    assert up.command("up", "--yes").ended(0) == up.snapshot
    assert up.played == []
    assert all(one.instance.snapshots == () for one in up.host.containers.values())


def test_one_that_does_not_answer_is_unhealthy_and_configured_again(up: World) -> None:
    up.healths["llama/llama_cpp"] = "timed out"
    seen = {one["name"]: one for one in up.command("status", "--json").of("container")}
    (service,) = seen["llama"]["services"]
    assert (service["health"], service["healthy"]) == ("unhealthy", False)
    assert up.command("plan", "--detailed-exitcode").code == 2


@pytest.mark.parametrize("state", ["not there", "failed", "inactive", "stopped"])
def test_nothing_is_said_to_compute_where_nothing_runs(up: World, state: str) -> None:
    up.units["llama/llama_cpp"] = state
    if state == "stopped":
        up.command("down", "--yes")
    seen = {one["name"]: one for one in up.command("status", "--json").of("container")}
    (service,) = seen["llama"]["services"]
    assert (service["processor"], service["why"]) == ("", "")
    row = next(line.split() for line in up.command("status").out.splitlines() if line.startswith("llama"))
    assert "CPU" not in row


PROVED = {"verdict": "GPU", "why": "CUDA0 has 33 of 33 layers; 48.2 tokens/s", "stale": ""}
UNPROVEN = "device named, unproven"


@pytest.mark.parametrize(
    ("noted", "shown"),
    [
        (PROVED, ("GPU", "CUDA0 has 33 of 33 layers; 48.2 tokens/s")),
        (None, (UNPROVEN, "not proved yet: provision verify")),
        (PROVED | {"stale": "it was started again"}, (UNPROVEN, "it was started again since its proof")),
        ({"verdict": UNPROVEN, "why": "too few", "stale": ""}, (UNPROVEN, "too few")),
    ],
    ids=["proved", "not proved", "started again", "too few"],
)
def test_status_says_gpu_only_of_an_engine_that_proved_it(
    world: World, lab: Path, noted: dict[str, str] | None, shown: tuple[str, str]
) -> None:
    lab.write_text(lab.read_text().replace("{ model: tiny,", "{ model: tiny, backend: vulkan,"))
    world.command("up", "--yes")
    world.verdicts = {"llama/llama_cpp": noted} if noted else {}
    services = {one["name"]: one["services"][0] for one in world.command("status", "--json").of("container")}
    assert {name: one["processor"] for name, one in services.items()} == {"gateway": "CPU", "llama": shown[0]}
    assert services["llama"]["why"].startswith(shown[1])
    assert world.command("status").printed == world.snapshot


@pytest.mark.parametrize(("layers", "health", "shown"), [("auto", 503, ""), ("0", 200, "CPU")])
def test_status_says_cpu_where_no_device_was_asked_for_and_nothing_where_nobody_answers(
    world: World, lab: Path, layers: str, health: int, shown: str
) -> None:
    options = f"{{ model: tiny, backend: vulkan, gpu_layers: {layers},"
    lab.write_text(lab.read_text().replace("{ model: tiny,", options))
    world.command("up", "--yes")
    world.health, world.verdicts = health, {"llama/llama_cpp": PROVED}
    seen = {one["name"]: one["services"][0]["processor"] for one in world.command("status", "--json").of("container")}
    assert seen == {"gateway": "CPU", "llama": shown}
    assert "Devices:" not in world.command("status").out


def test_status_as_json_has_a_line_for_each_container_and_its_drift(up: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("  llama:\n", "  llama:\n    cpu: 1\n"))
    answer = up.command("status", "--json")
    assert is_stream(answer.events, 0)
    assert [line["name"] for line in answer.of("container")] == ["gateway", "llama"]
    drift = answer.of("drift")
    assert drift == [{"type": "drift", "target": "llama", "changes": ["cpu"]}]


def test_what_is_no_longer_in_the_file_is_an_orphan(up: World, lab: Path) -> None:
    lab.write_text(lab.read_text().partition("  gateway:")[0])
    assert up.command("plan").printed == up.snapshot
    assert up.command("status", "--json").of("orphan") == [{"type": "orphan", "target": "gateway", "host": "box"}]
    up.command("up", "--yes")
    assert running(up) == CONTAINERS


def test_verify_exits_3_with_findings(up: World) -> None:
    assert up.command("verify").code == 0
    up.failures["verify.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "verify | Complete", "no answer"),)
    assert up.command("verify").ended(3) == up.snapshot
    assert up.command("verify", "--detailed-exitcode").code == 3
    assert is_stream(up.command("verify", "--json").events, 3)


def test_verify_tells_pending_changes_when_asked(up: World, lab: Path) -> None:
    lab.write_text(lab.read_text().replace("  llama:\n", "  llama:\n    cpu: 1\n"))
    assert up.command("verify").code == 0
    assert up.command("verify", "--detailed-exitcode").code == 2


def test_down_stops_and_up_starts_again(up: World) -> None:
    stored = {name: dict(container.files) for name, container in up.host.containers.items()}
    assert up.command("down").code == 4
    assert running(up) == CONTAINERS
    assert up.command("down", "--yes").code == 0
    assert set(up.host.containers) == CONTAINERS
    assert running(up) == set()
    assert up.command("down").printed == up.snapshot
    assert {name: dict(container.files) for name, container in up.host.containers.items()} == stored
    assert up.command("up", "--yes").code == 0
    assert running(up) == CONTAINERS


@pytest.mark.parametrize(
    ("arguments", "typed", "code"),
    [
        ((), None, 4),
        (("--yes",), None, 4),
        (("--lab", "homelab"), None, 4),
        (("--yes", "--lab", "other"), None, 4),
        (("--yes", "--lab", "homelab"), None, 0),
        ((), "homelab\n", 0),
        ((), "y\n", 4),
        (("--yes",), "\n", 4),
        (("--yes", "--lab", "homelab", "--json"), None, 0),
    ],
)
def test_destroy_needs_the_labs_name(up: World, arguments: tuple[str, ...], typed: str | None, code: int) -> None:
    assert up.command("destroy", *arguments, typed=typed).code == code
    assert set(up.host.containers) == (set() if code == 0 else CONTAINERS)


def test_destroy_of_nothing_says_so(world: World) -> None:
    assert world.command("destroy").ended(0) == world.snapshot


def test_destroy_can_name_an_orphan_and_refuses_a_typo(up: World, lab: Path) -> None:
    lab.write_text(lab.read_text().partition("  gateway:")[0])
    assert up.command("destroy", "gatevay", "--yes", "--lab", "homelab").code == 64
    assert set(up.host.containers) == CONTAINERS
    assert up.command("destroy", "gateway", "--yes", "--lab", "homelab").code == 0
    assert set(up.host.containers) == {"llama"}


def test_destroy_and_down_from_another_folder_leave_what_their_file_does_not_name(up: World, lab: Path) -> None:
    lab.write_text(lab.read_text().partition("  gateway:")[0])
    assert up.command("down", "--yes").code == 0
    assert running(up) == {"gateway"}
    answer = up.done("destroy", "--yes", "--lab", "homelab")
    assert set(up.host.containers) == {"gateway"}
    assert answer.printed == up.snapshot
    again = up.command("destroy", "--yes", "--lab", "homelab", "--json")
    assert [line["target"] for line in again.of("orphan")] == ["gateway"]
    assert set(up.host.containers) == {"gateway"}
    assert up.command("destroy", "--prune", "--yes", "--lab", "homelab").code == 0
    assert set(up.host.containers) == set()


def test_a_container_that_was_moved_out_of_reach_is_not_missing(up: World) -> None:
    del up.host.containers["gateway"]
    up.host.elsewhere["gateway"] = "in project attic"
    assert up.command("up", "--yes").ended(4) == up.snapshot
    assert up.command("status").printed == up.snapshot
    assert up.command("verify").ended(3) == up.snapshot
    assert up.command("destroy", "--yes", "--lab", "homelab").printed == up.snapshot


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "llama", "--", "true"),
        ("logs", "llama"),
        ("clone", "llama", "trial"),
        ("clone", "llama", "trial", "--yes", "--set", "services.llama_cpp.parallel=2"),
        ("snapshot", "llama"),
        ("rollback", "llama", "--yes"),
        ("bench", "llama", "--kind", "engine"),
    ],
    ids=lambda words: " ".join(words[:5]),
)
def test_a_verb_that_works_inside_says_where_a_container_is_that_was_moved(up: World, words: tuple[str, ...]) -> None:
    del up.host.containers["llama"]
    up.host.elsewhere["llama"] = "on node pve2, as CT 105"
    answer = up.command(*words)
    assert answer.code == 4
    assert "it is on node pve2, as CT 105 now" in answer.err
    assert "Bring it back." in answer.err
    assert "provision up" not in answer.err


def test_a_missing_image_hides_nothing_else_that_is_in_the_way(
    world: World, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = world.add_host("rack")
    text = lab.read_text().replace("hosts:\n", "hosts:\n  rack: { incus: https://rack:8443 }\n")
    text = text.replace("  llama:\n", "  llama:\n    host: box\n    image: debian/11\n")
    lab.write_text(text.replace("  gateway:\n", "  gateway:\n    host: rack\n    image: debian/10\n"))
    refuse = raising(
        PreflightError("Unable to carry out the plan on node box", details="no bridge vmbr9\nno storage fast")
    )
    monkeypatch.setattr(world.host, "review", refuse)
    monkeypatch.setattr(rack, "review", refuse)
    for verb in (("plan",), ("up", "--yes")):
        assert world.command(*verb).ended(4) == world.snapshot
    assert set(world.host.containers) == set()


@pytest.mark.parametrize("verb", ["plan", "up", "status", "verify", "down", "destroy"])
def test_a_container_that_is_not_in_the_file_exits_64(world: World, verb: str) -> None:
    assert world.command(verb, "lama").ended(64) == world.snapshot


@pytest.mark.parametrize("form", [(), ("--json",), ("-v",)])
def test_no_verb_prints_a_secret(world: World, form: tuple[str, ...]) -> None:
    world.failures["verify.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "x", f"leaks {ENGINE_KEY}"),)
    lines = [("plan",), ("up", "--yes"), ("status",), ("verify",), ("validate",), ("show",), ("show", "--expanded")]
    lines += [("show", "--client", one) for one in ("opencode", "openai", "openwebui")]
    lines += [("down", "--yes"), ("destroy", "--yes", "--lab", "homelab")]
    for line in lines:
        answer = world.command(*line, *form)
        assert answer.code in {0, 3}, answer.err
        assert ENGINE_KEY not in answer.out + answer.err
        assert GATEWAY_KEY not in answer.out + answer.err
