"""The programs of role ``vllm``: how the server is started, and which parsers it has."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from provisioner.values import paths
from tests.http_servers import QuietHandler
from tests.scenario_programs import module_at

PROGRAMS = paths.roles() / "vllm/programs"
SCENARIO = Path(__file__).resolve().parents[3] / "molecule/vllm/files/vllm"
KEY, FORMER = "canary-of-now-0123456789", "canary-of-before-0123456789"
FAKE = """\
import json, os, sys
def main():
    import importlib
    names = ("VLLM_API_KEY", "PROVISION_FORMER_KEY_FILE", "PROVISION_KEY_GRACE_S")
    made = []
    if "--middleware" in sys.argv:
        module, _, name = sys.argv[-1].rpartition(".")
        made = [type(getattr(importlib.import_module(module), name)(None)).__mro__[1].__name__]
    environment = {name: os.environ.get(name) for name in names}
    json.dump({"argv": sys.argv, "environment": environment, "made": made}, sys.stdout)
"""


@pytest.fixture
def started(tmp_path: Path) -> Any:
    """Start the launcher with a vLLM that says how it was started."""
    package = tmp_path / "packages/vllm/entrypoints/cli"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "main.py").write_text(FAKE, encoding="utf-8")

    def start(key_file: Path, former_file: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(PROGRAMS / "launch.py"), str(key_file), str(former_file), "900", *words]
        environment = {"PYTHONPATH": str(package.parents[2]), "PATH": os.environ["PATH"]}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)

    return start


def test_the_key_is_in_the_environment_and_in_no_argument(started: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n", encoding="utf-8")
    done = started(tmp_path / "key", tmp_path / "former", "/srv/models/a", "--port", "18000")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["argv"] == ["vllm", "serve", "/srv/models/a", "--port", "18000"]
    assert told["environment"]["VLLM_API_KEY"] == KEY


def test_a_former_key_has_the_server_take_it_too(started: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    (tmp_path / "former").write_text(FORMER, encoding="utf-8")
    told = json.loads(started(tmp_path / "key", tmp_path / "former", "model").stdout)
    assert told["argv"][-2:] == ["--middleware", "launch.WithFormerKey"]
    assert told["made"] == ["FormerKey"]
    assert FORMER not in str(told)
    os.utime(tmp_path / "former", (1, 1))
    assert json.loads(started(tmp_path / "key", tmp_path / "former", "model").stdout)["argv"][-1] == "model"


@pytest.mark.parametrize("content", ["", "\n", None])
def test_without_a_key_nothing_is_started(started: Any, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content, encoding="utf-8")
    done = started(tmp_path / "key", tmp_path / "former", "model")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("Unable to start vLLM: ")


parsers = module_at(PROGRAMS / "parsers.py")


def test_the_names_of_parsers_are_read_and_nothing_is_run() -> None:
    assert parsers.parsers_of(SCENARIO) == {"reasoning": ["deepseek_r1", "qwen3"], "tool": ["granite-20b-fc", "hermes"]}


@pytest.mark.parametrize("source", ["", "_TOOL = {}", "_OTHER = {'a': 1}", "_TOOL_PARSERS_TO_REGISTER = make()"])
def test_a_vllm_that_lists_them_in_another_way_is_told(source: str) -> None:
    with pytest.raises(LookupError, match="is not assigned there"):
        parsers.names_in(source, "_TOOL_PARSERS_TO_REGISTER")


def test_an_interpreter_without_vllm_is_told() -> None:
    command = [sys.executable, "-Ic", (PROGRAMS / "parsers.py").read_text(encoding="utf-8")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "there is no vLLM in it\n")


class Server:
    """Answers as vLLM does, so and so fast; what it was asked is kept."""

    def __init__(self, prompt_s: float, token_s: float, most: int = 10_000, busy: int = 0) -> None:
        self.asked: list[dict[str, Any]] = []
        self.busy = busy
        """So often it says that one may come again."""
        outer = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:  # its name in the library
                asked = json.loads(self.content())
                if outer.busy:
                    outer.busy -= 1
                    self.send_response(503)
                    self.send_header("Retry-After", "1")
                    self.end_headers()
                    return
                outer.asked.append({**asked, "key": self.headers["Authorization"], "path": self.path})
                made = min(asked["max_tokens"], most)
                threading.Event().wait(prompt_s + token_s * made)
                usage = {"prompt_tokens": 100, "completion_tokens": made}
                body = json.dumps({"usage": usage}).encode()
                self.give(200, body)

        self.served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.served.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        """Up to /v1."""
        return f"http://127.0.0.1:{self.served.server_port}/v1"


speed = module_at(PROGRAMS / "speed.py")


def asking(url: str) -> dict[str, Any]:
    """Return the questions for the program that measures speeds."""
    return {"url": url, "key": KEY, "model": "tiny", "length": 512, "within_s": 20}


def measured(url: str) -> dict[str, Any]:
    """Return the answers of the program that measures speeds."""
    command = [sys.executable, "-IBS", str(PROGRAMS / "speed.py")]
    done = subprocess.run(
        command, input=json.dumps(asking(url)), capture_output=True, text=True, check=True, timeout=60
    )
    assert KEY not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_speeds_of_prompt_and_answer_are_told_apart() -> None:
    server = Server(prompt_s=0.1, token_s=0.005)
    found = measured(server.url)
    assert (found["problem"], len(found["timings"])) == ("", 3)
    for one in found["timings"]:
        assert 100 < one["predicted_per_second"] < 230
        assert 500 < one["prompt_per_second"] < 1000
    prompts = [one["prompt"] for one in server.asked]
    assert len({*prompts}) == len(prompts) == 8, "a prompt that was there before is found in the cache"
    assert all(len(prompt) == (512 - 64) * 3 // 4 for prompt in prompts)
    assert {one["max_tokens"] for one in server.asked} == {1, 64}
    assert all(one["ignore_eos"] is True and one["key"] == f"Bearer {KEY}" for one in server.asked)
    assert {one["path"] for one in server.asked} == {"/v1/completions"}
    server.served.shutdown()


def test_an_answer_that_ends_before_is_no_measure() -> None:
    server = Server(prompt_s=0.0, token_s=0.0, most=5)
    assert measured(server.url) == {"timings": [], "problem": "ValueError: it made 5 of 64 tokens that were asked for"}
    server.served.shutdown()


def test_an_answer_that_takes_no_time_is_no_measure() -> None:
    """As that of a server whose first answer had to wait for somebody else's."""
    server = Server(prompt_s=0.05, token_s=-0.0005)
    assert "64 tokens came as fast as one" in measured(server.url)["problem"]
    server.served.shutdown()


def test_who_is_told_to_come_again_does_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "AGAIN_S", 0.1)
    server = Server(prompt_s=0.01, token_s=0.001, busy=1)
    assert len(speed.measured(asking(server.url))) == 3
    assert server.busy == 0
    server.served.shutdown()


def test_who_is_busy_for_too_long_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(speed, "AGAIN_S", 0.1)
    server = Server(prompt_s=0.01, token_s=0.001, busy=99)
    speed.main(asking(server.url) | {"within_s": 0.3})
    assert "HTTPError: HTTP Error 503" in json.loads(capsys.readouterr().out)["problem"]
    server.served.shutdown()


def test_who_does_not_answer_is_told() -> None:
    found = measured("http://127.0.0.1:9/v1")
    assert found["timings"] == []
    assert "refused" in found["problem"]


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ({}, 1.0),
        ({"num_experts": 128, "num_experts_per_tok": 8}, 1 / 16),
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, 1 / 4),
        ({"text_config": {"n_routed_experts": 64, "num_experts_per_tok": 6}}, 6 / 64),
        ({"num_experts": 0, "num_experts_per_tok": 8}, 1.0),
        ({"num_experts": 8}, 1.0),
    ],
)
def test_of_experts_a_token_needs_those_that_it_asks(
    config: dict[str, Any], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    processor = module_at(PROGRAMS / "processor.py")
    assert processor.share_of_experts(config) == share
    monkeypatch.setattr(processor, "read_per_second", lambda: 10e9)
    monkeypatch.setattr(processor, "operations_per_second", lambda: 100e9)
    assert processor.speeds(1_000_000_000, config) == {"generated": 10 / share, "prompt": 100 / share}
