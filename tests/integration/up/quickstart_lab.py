"""A lab of two engines and a gateway, driven by the command as a user drives it, watched for secrets while it works."""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab_files import lab_text
from tests.processes import completed
from tests.waiting import PATIENCE_S

MASTER_KEY = "sk-CANARY1-{{lookup('pipe','>/tmp/provisioner-injected')}}-\"#%$x'y\\z"
"""A key that is a template, and holds every character that a shell, YAML, systemd or JSON might take for its own."""
ENGINE_KEY = "CANARY2-{{7*7}}-5d1f"
CANARIES = ("CANARY1", "CANARY2")
INJECTED = Path("/tmp/provisioner-injected")  # noqa: S108  # what the template in the key would make

FILE = lab_text("quickstart")


@dataclass
class Answer:
    """What came back over HTTP."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        """The words of a chat completion."""
        return str(self.body["choices"][0]["message"]["content"])


@dataclass
class Ran:
    """One run of the command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON stream."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        """The one result of the JSON stream."""
        (result,) = [line for line in self.lines if line["type"] == "result"]
        return result

    @property
    def checks(self) -> dict[str, bool]:
        """Return by the JSON stream whether the proof of each service held."""
        return {line["target"]: line["ok"] for line in self.lines if line["type"] == "check"}


@dataclass
class Lab:
    """The lab's folder and what its runs wrote."""

    folder: Path
    environment: Mapping[str, str]
    image: str
    bare: str
    """The image of all containers but the first: where there is one without python3, as public servers' are."""
    name: str = "e2e"
    owner: Mapping[str, str] = field(default_factory=dict)
    """What Incus' own client needs in its environment to find the daemon, where ``environment`` leads to none."""
    runs: list[Ran] = field(default_factory=list)
    arguments_seen: set[str] = field(default_factory=set)

    def write(self, text: str = FILE) -> None:
        """Write the file and its secrets."""
        text = text.replace("IMAGE", self.image).replace("BARE", self.bare)
        (self.folder / "homelab.yml").write_text(text, encoding="utf-8")
        secrets = self.folder / "secrets.env"
        secrets.write_text(f"master_key={MASTER_KEY}\nengine_key={ENGINE_KEY}\n", encoding="utf-8")
        secrets.chmod(0o600)

    def provision(self, *arguments: str) -> Ran:
        """Run the command in the folder, watching every process' arguments meanwhile."""
        command = [str(Path(sys.executable).parent / "provision"), *arguments]
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(stop,), daemon=True)
        watcher.start()
        try:
            done = completed(command, cwd=self.folder, env={**os.environ, **self.environment}, timeout_s=1800)
        finally:
            stop.set()
            watcher.join(PATIENCE_S)
        self.runs.append(Ran(done.returncode, done.stdout, done.stderr))
        return self.runs[-1]

    def succeeded(self, *arguments: str) -> Ran:
        """Return a run of the command, which has to succeed."""
        ran = self.provision(*arguments)
        assert ran.code == 0, f"{arguments}\n{ran.out[-4000:]}{ran.err[-4000:]}"
        return ran

    def shows_none_of(self, *secrets: str) -> None:
        """Assert that no run printed one of these, and that no process had a secret among its arguments."""
        assert self.arguments_seen == set()
        printed = "".join(run.out + run.err for run in self.runs)
        assert [one for one in secrets if one in printed] == []

    @contextmanager
    def gone_afterwards(self) -> Iterator[None]:
        """Delete what an interrupted run of a test left, and all that is there when the block ends; forget the runs."""
        self.provision("destroy", "--prune", "--yes", "--lab", self.name)
        self.runs.clear()
        yield
        self.succeeded("destroy", "--prune", "--yes", "--lab", self.name)

    @contextmanager
    def brought_up(self) -> Iterator[None]:
        """Bring it up, so that its first run is that ``up``, and delete it with all that it shares afterwards."""
        with self.gone_afterwards():
            self.succeeded("up", "--yes", "--json")
            yield

    def provision_of(self, version: Path, *arguments: str) -> Ran:
        """Run the command of another version, by its checkout."""
        done = completed(
            [sys.executable, "-m", "provisioner", *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environment, "PYTHONPATH": str(version / "src")},
            timeout_s=1800,
        )
        self.runs.append(Ran(done.returncode, done.stdout, done.stderr))
        return self.runs[-1]

    def incus(self, *arguments: str, check: bool = True) -> str:
        """What Incus' own client says; the yardstick for what ours says."""
        done = completed(["incus", *arguments], env={**os.environ, **self.environment, **self.owner}, timeout_s=300)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def made(self) -> list[dict[str, Any]]:
        """All that Incus says of this lab's containers; others' may be there, too."""
        listed = json.loads(self.incus("list", "--format", "json"))
        return [one for one in listed if (one["config"] or {}).get("user.provisioner.lab") == self.name]

    def address(self, container: str) -> str:
        """The container's address as Incus says it."""
        one = next(one for one in self.made() if one["name"] == container)
        addresses = one["state"]["network"]["eth0"]["addresses"]
        return str(next(each["address"] for each in addresses if each["family"] == "inet"))

    def ask(self, container: str, port: int, model: str, key: str | None, within_s: float = 120) -> Answer:
        """A chat completion over the network, as a client in the house asks for it."""
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        url = f"http://{self.address(container)}:{port}/v1/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # http to our own bridge
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=within_s) as answer:
                return Answer(answer.status, json.load(answer), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return Answer(error.code, {"error": error.read().decode()}, dict(error.headers))

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    arguments = (process / "cmdline").read_bytes()
                except OSError:
                    continue  # it ended meanwhile
                text = arguments.replace(b"\0", b" ").decode(errors="replace")
                if any(canary in text for canary in CANARIES):
                    self.arguments_seen.add(text)


def sh(lab: Lab, container: str, script: str) -> str:
    """What a script says in a container."""
    return lab.incus("exec", container, "--", "sh", "-ec", script)


@contextmanager
def asked_meanwhile(
    lab: Lab, container: str, model: str, *, port: int = 8080, pause_s: float = 0.0, within_s: float = 120
) -> Iterator[list[int]]:
    """Have a client ask the engine again and again until the block ends; the status of each answer."""
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            statuses.append(lab.ask(container, port, model, ENGINE_KEY, within_s).status)
            over.wait(pause_s)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield statuses
    finally:
        over.set()
        asking.join(within_s)
