"""The whole way of a lab on an Incus elsewhere, from a controller that has none of its own.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from tests.integration.up.elsewhere_lab import elsewhere_lab
from tests.integration.up.quickstart_lab import CANARIES, MASTER_KEY, Lab
from tests.lab.far import FarIncus

pytestmark = [pytest.mark.incus, pytest.mark.slow]

LARGE_BYTES = 5_000_000


@pytest.fixture(scope="module")
def lab(far_incus: FarIncus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up: what its first ``up`` said is its first run."""
    lab = elsewhere_lab(far_incus, tmp_path_factory.mktemp("elsewhere"))
    with lab.brought_up():
        yield lab


def test_every_service_is_proved(lab: Lab) -> None:
    assert lab.runs[0].checks == {"far-llama/llama_cpp": True, "far-gateway/litellm": True}


def test_a_completion_comes_through_the_gateway(lab: Lab) -> None:
    answer = lab.ask("far-gateway", 4000, "fast", MASTER_KEY)
    assert answer.status == 200, answer.body
    assert answer.body["usage"]["completion_tokens"] > 0


def test_nothing_is_left_to_do(lab: Lab) -> None:
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    ran = lab.succeeded("status", "--json")
    seen = {line["name"]: line for line in ran.lines if line["type"] == "container"}
    assert {name: one["address"] for name, one in seen.items()} == {
        name: lab.address(name) for name in ("far-llama", "far-gateway")
    }
    lab.succeeded("verify")


def test_clients_are_told_the_address_of_the_machine_that_shows_the_gateway(lab: Lab) -> None:
    ran = lab.provision("show", "--client", "openai")
    assert "http://127.0.0.1:4000/v1" in ran.out


def test_doctor_looks_at_the_host_by_its_api(lab: Lab) -> None:
    ran = lab.succeeded("doctor")
    assert "debian/12-bare is there" in ran.out


def test_a_stopped_engine_is_found_and_mended(lab: Lab) -> None:
    lab.incus("exec", "far-llama", "--", "systemctl", "stop", "llama-server")
    assert lab.provision("verify").code == 3
    lab.succeeded("up", "--yes")
    assert lab.ask("far-gateway", 4000, "fast", MASTER_KEY).status == 200


def test_a_snapshot_is_gone_back_to(lab: Lab) -> None:
    assert lab.provision("snapshot", "far-llama", "--name", "before").code == 0
    lab.incus("exec", "far-llama", "--", "touch", "/root/later")
    lab.succeeded("rollback", "far-llama", "--to", "before", "--yes")
    assert "later" not in lab.incus("exec", "far-llama", "--", "ls", "/root")


def test_commands_and_logs_come_from_inside(lab: Lab) -> None:
    ran = lab.provision("exec", "far-llama", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ran.code, ran.out, ran.err) == (7, "out\n", "err\n")
    assert "llama" in lab.provision("logs", "far-llama").out


def test_bytes_of_any_number_arrive_whole(lab: Lab, far_incus: FarIncus, tmp_path: Path) -> None:
    far = IncusProvider("elsewhere", endpoint=far_incus.endpoint)
    large = secrets.token_bytes(LARGE_BYTES)
    assert {one["name"] for one in lab.made()} == {"far-gateway", "far-llama"}
    assert far.execute("far-llama", ["cat"], stdin=large).stdout == large
    far.push("far-llama", large, "/root/large")
    far.pull("far-llama", "/root/large", tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == large
    with ThreadPoolExecutor(10) as pool:
        said = pool.map(lambda n: far.execute("far-llama", ["sh", "-c", f"echo {n}; echo {n} >&2; exit 3"]), range(100))
        assert [(one.returncode, one.stdout, one.stderr) for one in said] == [
            (3, b"%d\n" % n, b"%d\n" % n) for n in range(100)
        ]


def test_neither_the_key_nor_a_secret_is_written_or_said(lab: Lab, far_incus: FarIncus) -> None:
    key = Path(far_incus.endpoint.key).read_text(encoding="ascii").splitlines()[1]
    lab.shows_none_of(*CANARIES, key)
    files = [file for file in lab.folder.rglob("*") if file.is_file() and file.name != "secrets.env"]
    assert files
    assert [file for file in files for one in (*CANARIES, key) if one.encode() in file.read_bytes()] == []


def test_destroy_leaves_nothing(lab: Lab) -> None:
    lab.succeeded("destroy", "--prune", "--yes", "--lab", lab.name, "--json")
    assert lab.made() == []
    volumes = json.loads(lab.incus("storage", "volume", "list", "default", "--format", "json"))
    assert [one["name"] for one in volumes if one["type"] == "custom"] == []
