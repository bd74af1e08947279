"""The whole way of a lab on a real Incus: from an empty folder to answers, through failures, to nothing left.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.lab.artifacts import MODELS_PATH
from tests.integration.up.quickstart_lab import CANARIES, ENGINE_KEY, FILE, INJECTED, MASTER_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.processes import completed

pytestmark = [pytest.mark.incus, pytest.mark.core]

SECRET_FILES = {"/etc/litellm/secrets.env", "/etc/llama-server.api-key", "/run/llama-server/api-key"}
"""The files inside containers that hold a key, readable by their service alone."""


IMAGES = [
    pytest.param(("debian/12", "debian/12-bare"), id="debian-12"),
    pytest.param(("debian/13", "debian/13"), id="debian-13", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=IMAGES)
def lab(request: pytest.FixtureRequest, incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: what its first ``up`` said is its first run."""
    lab = Lab(tmp_path_factory.mktemp("quickstart"), incus_lab.environment, *request.param)
    lab.write()
    INJECTED.unlink(missing_ok=True)
    with lab.brought_up():
        yield lab


def test_the_stream_tells_the_whole_run(lab: Lab) -> None:
    lines = lab.runs[0].lines
    assert lines[0]["type"] == "version"
    assert [line["type"] for line in lines].count("summary") == 1
    assert lines[-1]["type"] == "summary"
    planned = {(line["target"], line["action"]) for line in lines if line["type"] == "planned_change"}
    assert {("llama", "create"), ("spare", "create"), ("gateway", "create")} <= planned
    checks = {line["target"]: line["ok"] for line in lines if line["type"] == "check"}
    assert checks == {"llama/llama_cpp": True, "spare/llama_cpp": True, "gateway/litellm": True}


def test_a_completion_comes_through_the_alias(lab: Lab) -> None:
    answer = lab.ask("gateway", 4000, "fast", MASTER_KEY)
    assert answer.status == 200, answer.body
    assert answer.text
    assert answer.body["usage"]["completion_tokens"] > 0


def test_a_completion_comes_from_the_engine_itself(lab: Lab) -> None:
    answer = lab.ask("llama", 8080, "tiny", ENGINE_KEY)
    assert answer.status == 200, answer.body
    assert answer.text


@pytest.mark.guarantee("keys")
@pytest.mark.parametrize(("container", "port", "model"), [("gateway", 4000, "fast"), ("llama", 8080, "tiny")])
def test_no_key_is_refused(lab: Lab, container: str, port: int, model: str) -> None:
    assert lab.ask(container, port, model, None).status == 401


@pytest.mark.guarantee("injection")
def test_nothing_in_the_file_was_run_as_a_template(lab: Lab) -> None:
    assert not INJECTED.exists()
    for container in ("gateway", "llama", "spare"):
        assert "injected" not in lab.incus("exec", container, "--", "ls", "/tmp")  # noqa: S108  # looked at, not used


def test_status_says_that_all_is_well(lab: Lab) -> None:
    ran = lab.succeeded("status", "--json")
    seen = {line["name"]: line for line in ran.lines if line["type"] == "container"}
    assert set(seen) == {"gateway", "llama", "spare"}
    for name, one in seen.items():
        assert one["status"] == "running"
        assert one["address"] == lab.address(name)
        assert one["drift"] == []
        assert [(each["unit"], each["healthy"], each["processor"]) for each in one["services"]] == [
            ("active", True, "CPU")
        ]


def site_logs(lab: Lab) -> list[Path]:
    """What Ansible said, the newest last."""
    return sorted((lab.folder / ".provision" / "logs").glob("*-site.log"), key=lambda file: file.stat().st_mtime)


@pytest.mark.guarantee("nothing changed")
def test_a_second_up_looks_and_runs_no_ansible(lab: Lab) -> None:
    before = site_logs(lab)
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    ran = lab.succeeded("up")
    assert "ok   gateway/litellm: works" in ran.out
    assert site_logs(lab) == before


def test_a_full_up_changes_nothing(lab: Lab) -> None:
    before = lab.made()
    lab.succeeded("up", "--yes", "--full")
    log = site_logs(lab)[-1]
    recap = [line for line in log.read_text(encoding="utf-8").splitlines() if "changed=" in line]
    assert len(recap) == 3
    assert [line for line in recap if "changed=0" not in line] == []
    assert [one["created_at"] for one in lab.made()] == [one["created_at"] for one in before]


@pytest.mark.guarantee("secrets")
def test_no_secret_is_written_or_said(lab: Lab) -> None:
    lab.shows_none_of(*CANARIES)
    files = [file for file in lab.folder.rglob("*") if file.is_file() and file.name != "secrets.env"]
    assert files
    assert [file for file in files for canary in CANARIES if canary.encode() in file.read_bytes()] == []
    told = json.dumps(lab.made()) + lab.incus("query", "/1.0/storage-pools/default/volumes?recursion=1")
    assert not [canary for canary in CANARIES if canary in told]


@pytest.mark.guarantee("secrets")
def test_inside_only_the_services_own_files_hold_a_key(lab: Lab) -> None:
    find = (
        f"grep -rlsE '{'|'.join(CANARIES)}' /etc /var /tmp /root /home /opt /usr/local /run --exclude-dir=cgroup; true"
    )
    for container in ("gateway", "llama"):
        found = set(lab.incus("exec", container, "--", "sh", "-c", find).split())
        held = {name for name in found if not name.startswith("/run/credentials/")}
        assert held
        assert held <= SECRET_FILES, held
        modes = lab.incus("exec", container, "--", "stat", "-c", "%a", *sorted(held)).split()
        assert set(modes) <= {"600", "400"}
        journal = lab.incus("exec", container, "--", "journalctl", "--no-pager")
        assert not [canary for canary in CANARIES if canary in journal]


def test_when_the_first_engine_stops_the_second_answers_and_verify_tells(lab: Lab) -> None:
    lab.incus("exec", "llama", "--", "systemctl", "stop", "llama-server")
    answer = lab.ask("gateway", 4000, "fast", MASTER_KEY)
    assert answer.status == 200, answer.body
    assert answer.text
    assert int(answer.headers["x-litellm-attempted-fallbacks"]) == 1
    ran = lab.provision("verify", "--json")
    assert ran.code == 3
    checks = ran.checks
    assert checks["llama/llama_cpp"] is False
    assert checks["spare/llama_cpp"] is True


def test_up_mends_it_and_verify_agrees(lab: Lab) -> None:
    lab.succeeded("up", "--yes")
    lab.succeeded("verify")
    assert int(lab.ask("gateway", 4000, "fast", MASTER_KEY).headers.get("x-litellm-attempted-fallbacks", 0)) == 0


def test_a_changed_size_is_changed_while_the_service_runs(lab: Lab) -> None:
    pid = lab.incus("exec", "spare", "--", "systemctl", "show", "-P", "MainPID", "llama-server")
    lab.write(FILE.replace("spare: { image:", "spare: { memory: 3GiB, image:"))
    assert lab.provision("plan", "--detailed-exitcode").code == 2
    ran = lab.provision("up", "--yes")
    lab.write()
    assert ran.code == 0, ran.out + ran.err
    assert lab.incus("config", "get", "spare", "limits.memory").strip() == str(3 * 1024**3)
    assert lab.incus("exec", "spare", "--", "systemctl", "show", "-P", "MainPID", "llama-server") == pid


@pytest.mark.guarantee("data")
def test_another_image_is_a_replacement_that_has_to_be_named(lab: Lab) -> None:
    born = [one["created_at"] for one in lab.made()]
    image = lab.incus("config", "get", "llama", "user.provisioner.image").strip()
    other = {"debian/12": "debian/13", "debian/13": "debian/12"}[image]
    lab.write(FILE.replace("llama: { image: IMAGE", f"llama: {{ image: {other}"))
    ran = lab.provision("up", "--yes")
    lab.write()
    assert ran.code == 4
    assert "--replace llama" in ran.err
    assert [one["created_at"] for one in lab.made()] == born


@pytest.mark.guarantee("unmanaged")
def test_a_strangers_name_is_refused_and_the_stranger_left_alone(lab: Lab) -> None:
    lab.incus("init", "debian/12", "stranger")
    try:
        lab.write(FILE + "  stranger: {}\n")
        ran = lab.provision("up", "--yes")
        assert ran.code == 4
        assert "stranger" in ran.err
        assert lab.incus("config", "get", "stranger", "user.provisioner.lab").strip() == ""
    finally:
        lab.write()
        lab.incus("delete", "-f", "stranger")


@pytest.mark.guarantee("data")
def test_what_left_the_file_is_an_orphan_and_stays(lab: Lab) -> None:
    without = FILE.replace(FILE[FILE.index("  spare: { image") : FILE.index("  gateway:")], "")
    lab.write(without.replace("[tiny, spare]", "[tiny]"))
    ran = lab.provision("plan", "--json")
    lab.write()
    assert [line["target"] for line in ran.lines if line["type"] == "orphan"] == ["spare"]
    assert "spare" in [one["name"] for one in lab.made()]


def test_down_stops_and_up_starts_again(lab: Lab) -> None:
    assert lab.provision("down", "--yes").code == 0
    assert [one["status"] for one in lab.made()] == ["Stopped"] * 3
    lab.succeeded("up", "--yes")
    assert lab.ask("gateway", 4000, "fast", MASTER_KEY).status == 200


def test_models_are_shared_read_only(lab: Lab) -> None:
    touch = completed(
        ["incus", "exec", "llama", "--", "sh", "-c", f"cd {MODELS_PATH}/*/tiny && touch x"],
        env={**lab.environment, "PATH": "/usr/bin:/bin"},
        timeout_s=120,
    )
    assert touch.returncode != 0
    assert "Read-only file system" in touch.stderr


def test_destroy_leaves_nothing(lab: Lab) -> None:
    lab.succeeded("destroy", "--prune", "--yes", "--lab", "e2e", "--json")
    assert lab.made() == []
    volumes = json.loads(lab.incus("storage", "volume", "list", "default", "--format", "json"))
    assert [one["name"] for one in volumes if one["name"].startswith("provision-model-spare-")] == []
    assert lab.provision("destroy", "--prune", "--yes", "--lab", "e2e").code == 0
    assert Path(lab.folder / "homelab.yml").exists()
