"""A lab in memory: the real command line and workflows, a fake host, playbooks that only say how they ended."""

from __future__ import annotations

import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from provisioner.cli.app import run
from provisioner.cli.console import Console
from provisioner.cli.session import Session
from provisioner.hosts.fake import Container, FakeProvider
from provisioner.models import tiny
from provisioner.reconcile import capacity
from provisioner.reconcile.runner import PlaybookResult, TaskEvent
from provisioner.values.state import Execution

BENCHMARKS = Path(__file__).parents[2] / "data/benchmarks"
ENGINE_KEY = "canary-engine-5d1c"
GATEWAY_KEY = "sk-canary-gateway-77f0"
FILE = """\
name: homelab
hosts:
  box: { incus: local }
models:
  tiny: { source: "builtin:tiny", context: 4096 }
containers:
  llama:
    services:
      llama_cpp: { model: tiny, api_key: !secret engine_key }
  gateway:
    services:
      litellm: { master_key: !secret gateway_key, aliases: { fast: [tiny] } }
"""


STEP = re.compile(r"[\w./-]+: \w+ing\b")
"""A line of a plain display: what is done to what."""


@dataclass
class Answer:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def printed(self) -> str:
        """The text that a person reads, in the two streams it comes by.

        What goes on side by side ends in any order: its lines are put together by what they are about.
        """
        lines: list[str] = []
        for is_step, part in groupby(self.out.splitlines(keepends=True), lambda line: bool(STEP.match(line))):
            together = list(part)
            if is_step:
                together.sort(key=lambda line: line.partition(":")[0])
            lines += together
        return "".join(lines) + (f"--- standard error ---\n{self.err}" if self.err else "")

    def ended(self, code: int) -> str:
        """Return the printed text of a command that ended with this exit code."""
        assert self.code == code, self.printed
        return self.printed

    @property
    def after_plan(self) -> str:
        """The same from the line that sums a plan up: what comes of it."""
        return self.printed[self.printed.index("\nPlan: ") + 1 :]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The ``--json`` stream."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one type."""
        return [line for line in self.events if line["type"] == kind]


class Terminal(io.StringIO):
    """A text stream that says whether somebody sits there."""

    def __init__(self, text: str = "", *, is_terminal: bool = False) -> None:
        super().__init__(text)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Whether it was made as a terminal."""
        return self._is_terminal


def provision(
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    session: Session | None = None,
    stdin: Terminal | None = None,
    on_terminal: bool = False,
) -> Answer:
    """Run ``provision`` with streams of its own; nobody sits at its input, where a test gives none."""
    out, err = Terminal(is_terminal=on_terminal), Terminal(is_terminal=on_terminal)
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setattr(sys, "stdin", stdin or Terminal())
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr("provisioner.cli.progress.THRESHOLD_S", 600.0)  # a busy machine has no more to say
        code = run(arguments, session)
    return Answer(code, out.getvalue(), err.getvalue())


@dataclass
class World:
    """One host in memory, and how playbooks end on it."""

    monkeypatch: pytest.MonkeyPatch
    host: FakeProvider = field(default_factory=lambda: FakeProvider("box"))
    others: dict[str, FakeProvider] = field(default_factory=dict)
    """More hosts, by name."""
    snapshot: SnapshotAssertion = field(init=False)
    """The texts that the test expects, which fixture ``world`` gives."""
    failures: dict[str, tuple[TaskEvent, ...]] = field(default_factory=dict)
    raises: BaseException | None = None
    health: int | str = 200
    healths: dict[str, int | str] = field(default_factory=dict)
    rests: dict[str, dict[str, float]] = field(default_factory=dict)
    """What is known of services that end when nobody asks them."""
    taken: set[str] = field(default_factory=set)
    """The addresses of services whose health pages answer while all of their slots are taken by clients."""
    """By address what a health page answers that answers something else."""
    units: dict[str, str] = field(default_factory=dict)
    """By address what systemd says of units that are not active."""
    drift: dict[str, list[list[str]]] = field(default_factory=dict)
    """By address what has changed in a container since its stamp was written, as its agent says it."""
    then: Callable[[], object] = lambda: None
    """What happens while a playbook runs."""
    unreached: set[str] = field(default_factory=set)
    """The addresses whose play ``site.yml`` does not come to."""
    changes: dict[str, int] = field(default_factory=dict)
    """How many tasks of a playbook change something, by container."""
    disk_full: bool = False
    unmended: dict[str, list[list[str]]] = field(default_factory=dict)
    """By role what its run leaves as it is, as the agent says it."""
    leftovers: list[str] = field(default_factory=list)
    """Roles that have a stamp in container llama and are not asked for."""
    verdicts: dict[str, dict[str, str]] = field(default_factory=dict)
    """By address what a proof noted of who computes, as the agent says it."""
    measured: dict[str, dict[str, int]] = field(default_factory=dict)
    """By address what its proof measures, as a module of ours says it to the controller."""
    active: set[str] = field(default_factory=set)
    """The units that systemd was told to start and not to stop again."""
    sockets: dict[str, list[list[Any]]] = field(default_factory=dict)
    """By container what listens in it, as ``openings`` says it."""
    answered: dict[str, list[list[Any]]] = field(default_factory=dict)
    """By address what answers strangers at each of its doors."""
    ceiling: int = 10**9
    """The longest context with which engines answer."""
    waiting: list[int] = field(default_factory=list)
    """How many requests wait in the switch, each time that it is asked."""
    told: list[tuple[str, str]] = field(default_factory=list)
    """What systemd was told: verb and unit."""
    layers: list[int] = field(default_factory=lambda: [0, 0])
    """How many layers of how many engines say that a card has."""
    per_s: float = 100.0
    """How many tokens an engine writes in a second, as llama-bench says it."""
    waited: float = 0.01
    """The part of the time in which something waits for a processor meanwhile."""
    forgets: int = 0
    """How often containers were told to forget what a trial has written."""
    free: int = 10**12
    """Bytes of a container's disk that nobody uses."""
    model: str = "e" * 64
    """The SHA-256 by which a unit names its model."""
    card: str = ""
    """The card of containers, as llama-bench's look says it."""
    crashes: bool = False
    """Whether llama-bench ends for want of memory."""
    drops: bool = False
    """Whether engines drop the first third of a prompt, and count all of it."""
    requests: Callable[[], int] = lambda: 0
    """How many requests an engine has answered so far."""
    strangers: list[int] = field(default_factory=list)
    """How many requests of others come between two looks, each time."""
    strange: int = 0
    looks: int = 0
    left: int = 0
    """How many routes of each door nobody could ask any more."""
    questions: list[dict[str, Any]] = field(default_factory=list)
    """What containers were asked for what is open in them."""
    systemctl_code: int = 0
    """How ``systemctl`` ends; one that fails does nothing."""
    scripts: list[tuple[str, list[str]]] = field(default_factory=list)
    """The containers in which a script was run, each with the script's words."""
    shell_code: int = 0
    """How scripts end."""
    inventories: list[str] = field(default_factory=list)
    """Those of all playbooks that were run."""
    played: list[tuple[str, list[str]]] = field(default_factory=list)
    """Each playbook that was run, with "group/host" for each host of its inventory."""

    def __post_init__(self) -> None:
        """Give every container the agent that ``probe`` asks."""
        self.host.programs["python3"] = self._agent
        self.host.programs["systemctl"] = self._systemctl
        self.host.programs["sh"] = self._shell

    def _shell(
        self, container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]
    ) -> Execution:
        self.scripts.append((container.instance.name, [*command[4:]]))
        return Execution(self.shell_code, b"", b"sh: no room" if self.shell_code else b"")

    def _systemctl(
        self, _container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]
    ) -> Execution:
        _, verb, _, unit = command
        self.told.append((verb, unit))
        if self.systemctl_code:
            return Execution(self.systemctl_code, b"", b"Job for it failed.")
        (self.active.add if verb == "start" else self.active.discard)(unit)
        return Execution(0, b"", b"")

    def add_host(self, name: str) -> FakeProvider:
        """One more host, whose containers have agents, too."""
        self.others[name] = FakeProvider(name)
        self.others[name].programs["python3"] = self._agent
        return self.others[name]

    def command(self, *arguments: str, typed: str | None = None, on_terminal: bool = False) -> Answer:
        """Run ``provision``; ``typed`` comes from a terminal (None: there is none), or output goes to one."""
        stdin = Terminal(typed or "", is_terminal=typed is not None)
        session = Session(Console(), lambda _lab: {"box": self.host, **self.others}, self._run_playbook)
        try:
            return provision(self.monkeypatch, *arguments, session=session, stdin=stdin, on_terminal=on_terminal)
        finally:
            session.console.stop_progress()  # a run that is killed by a test would go on talking in the next one

    def done(self, *arguments: str, typed: str | None = None, on_terminal: bool = False) -> Answer:
        """Run ``provision`` in the same way; it has to end well."""
        answer = self.command(*arguments, typed=typed, on_terminal=on_terminal)
        assert answer.code == 0, answer.printed
        return answer

    def _run_playbook(
        self, playbook: str, inventory: str, *, on_task: Callable[[TaskEvent], None], **_: Any
    ) -> PlaybookResult:
        assert ENGINE_KEY not in inventory
        if self.raises is not None:
            raise self.raises
        self.inventories.append(inventory)
        groups = yaml.load(inventory, Loader=yaml.CBaseLoader)["all"]["children"]  # noqa: S506  # plain strings only
        self.played.append(
            (playbook, sorted(f"{name}/{host}" for name, one in groups.items() for host in one["hosts"]))
        )
        if playbook == "site.yml":
            self.drift.clear()
            self._say_done(groups, on_task)
        for address, seen in self.measured.items():
            container, name = address.split("/")
            on_task(TaskEvent("ok", container, name, f"{name} : verify_device | Judge", facts=seen))
        failures = self.failures.get(playbook, ())
        self.then()
        for host, role in (("llama", "llama_cpp"), ("gateway", "litellm")) if playbook == "verify.yml" else ():
            on_task(TaskEvent("ok", host, role, f"{role} : verify | Ask"))
        return PlaybookResult(2 if failures else 0, failures, dict(self.changes))

    def _say_done(self, groups: Mapping[str, Any], on_task: Callable[[TaskEvent], None]) -> None:
        """What Ansible says of each container that a play has reached, in the order of plays."""
        for name, group in groups.items():
            role = "base" if name == "containers" else name.removeprefix("service_")
            for host in group["hosts"]:
                if f"{host}/{role}" not in self.unreached:
                    on_task(TaskEvent("ok", host, role, f"{role} : install | Install"))

    def _agent(
        self, container: Container, command: Sequence[str], stdin: bytes, _environment: Mapping[str, str]
    ) -> Execution:
        """The container's side, its stamps kept as files of the fake container."""
        if "--socket" in command:
            return self._switch(command)
        part = zlib.decompressobj()
        part.decompress(stdin)
        asked = json.loads(part.unused_data)
        if asked["do"] == "openings":
            return self._openings(container, asked)
        others = {"bench": self._benching, "trying": self._trying, "load": self._load, "live": at_this_moment}
        if asked["do"] in others:
            return others[asked["do"]](asked)
        if asked["do"] == "stamp":
            if self.disk_full:
                return Execution(0, b'{"problem": "No space left on device"}', b"")
            container.files |= {f"stamp/{one['role']}": json.dumps(one).encode() for one in asked["stamps"]}
            unmended = {role: self.unmended.get(role, []) for role in asked["compare"]}
            return Execution(0, json.dumps({"unmended": unmended}).encode(), b"")
        assert asked["do"] == "look"
        answer = {
            "stamps": {role: self._stamp(container, role, asked["of"]) for role in asked["roles"]},
            "leftovers": self.leftovers if container.instance.name == "llama" else [],
            "unit": {
                one["address"]: self.units.get(one["address"], "active") for one in asked["services"] if one["unit"]
            },
            "health": {
                one["address"]: "busy"
                if one["late"] and one["address"] in self.taken
                else self.healths.get(one["address"], self.health)
                for one in asked["services"]
                if one["health"]
            },
            "verdict": {
                one["address"]: self.verdicts[one["address"]]
                for one in asked["services"]
                if one["address"] in self.verdicts
            },
            "rest": {
                one["address"]: self.rests[one["address"]] for one in asked["services"] if one["address"] in self.rests
            },
            "closed": [one["address"] for one in asked["services"] if one["closed_by"] in self.active],
            "damaged": [],
        }
        return Execution(0, json.dumps(answer).encode(), b"")

    def _switch(self, command: Sequence[str]) -> Execution:
        """What a switch answers to who asks how many wait, or has them wait."""
        if "hold" in command:
            self.told.append(("hold", command[command.index("--socket") + 1]))
            return Execution(0, b"", b"")
        waiting = self.waiting.pop(0) if self.waiting else 0
        return Execution(0, json.dumps({"waiting": waiting}).encode(), b"")

    def _trying(self, asked: dict[str, Any]) -> Execution:
        """How one context of an engine went that has a ceiling."""
        self.questions.append(asked)
        context = int(asked["shows"][1])
        answer: dict[str, Any] = {"outcome": "answered", "words": "", "load_s": 0.5, "heard": []}
        answer |= {"sent": asked["ask"]["tokens"], "layers": self.layers, "memory": 2**30, "left": -1, "card": -1}
        if context > self.ceiling:
            answer |= {"outcome": "no room", "words": "out of memory"}
            return Execution(0, json.dumps(answer).encode(), b"")
        for number, changed in enumerate(asked["ask"]["changed"]):
            drops = self.drops and changed is not None and changed < asked["ask"]["tokens"] // 3
            moved = 0 if changed is None or drops else number
            answer["heard"].append({"tokens": asked["ask"]["tokens"], "following": {"1": -1.0 - moved}})
        return Execution(0, json.dumps(answer).encode(), b"")

    def _benching(self, asked: dict[str, Any]) -> Execution:
        """How an engine is served, or what llama-bench measures of it."""
        if not asked["command"]:
            self.forgets += bool(asked.get("forget"))
            words = ["/opt/bin/llama-server", "--model", "/srv/m.gguf", "--batch-size", "2048", "--threads", "2"]
            told = {
                "processor": "EPYC",
                "card": self.card,
                "driver": "",
                "build": "b" * 64,
                "model": self.model,
                "free": self.free,
            }
            return Execution(0, json.dumps({"words": words, "threads": 2, **told}).encode(), b"")
        self.questions.append(asked)
        answer: dict[str, Any] = {"outcome": "answered", "words": "", "lines": [], "took_s": 1.5, "waited": self.waited}
        if self.crashes:
            answer |= {"outcome": "no room", "words": "signal: out of memory"}
        elif asked["command"][0].endswith("llama-perplexity"):
            said = "judged" if "--kl-divergence" in asked["command"] else "base"
            answer["lines"] = (BENCHMARKS / f"llama_perplexity_{said}.txt").read_text().splitlines()
        else:
            per_s = self.per_s * (1 + len(self.questions) % 5 / 1000)
            read = {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ts": [10 * per_s]}
            answer["lines"] = [
                json.dumps(read),
                json.dumps({**read, "n_prompt": 0, "n_gen": 128, "samples_ts": [per_s]}),
            ]
        return Execution(0, json.dumps(answer).encode(), b"")

    def _load(self, _asked: dict[str, Any]) -> Execution:
        """What is in the way: a quarter of the time something waits, and what strangers ask besides."""
        self.looks += 1
        if self.looks % 2 == 0:  # the second look of a pair
            self.strange += self.strangers.pop(0) if self.strangers else 0
        told = {"at_s": 4.0 * self.looks, "waited_us": 1_000_000 * self.looks, "throttled_us": 0}
        return Execution(0, json.dumps({**told, "answered": self.requests() + self.strange}).encode(), b"")

    def _openings(self, container: Container, asked: dict[str, Any]) -> Execution:
        """What is open in the container: by its page, and what was made open besides."""
        self.questions.append(asked)
        doors = []
        for door in asked["doors"]:
            told = {word: door[word] for word in ("name", "url")} | dict.fromkeys(("silent", "left"), 0)
            answered = self.answered.get(door["name"], [])
            told["left"] = self.left
            doors.append({**told, "asked": len(door["routes"]), "answered": answered, "problem": ""})
        sockets = self.sockets.get(container.instance.name, [])
        return Execution(0, json.dumps({"sockets": sockets, "problem": "", "doors": doors}).encode(), b"")

    def _stamp(self, container: Container, role: str, of: str) -> dict[str, Any]:
        if f"stamp/{role}" not in container.files:
            return {"problem": "not proved yet"}
        stamp = json.loads(container.files[f"stamp/{role}"])
        if stamp["of"] != of:
            return {"problem": f"its stamp is of {stamp['of']}"}
        told = {name: stamp[name] for name in ("inputs", "secrets", "salt")}
        return {**told, "changed": self.drift.get(f"{container.instance.name}/{role}", [])}


def at_this_moment(asked: dict[str, Any]) -> Execution:
    """What ``top`` is answered of services that run, which show no figures."""
    return Execution(
        0, json.dumps({"services": {one["address"]: live() for one in asked["services"]}, "cards": []}).encode(), b""
    )


def live() -> dict[str, Any]:
    """What is seen of one service that runs."""
    told: dict[str, Any] = {"unit": "active", "start": "first", "status": "UP", "check": "L7OK", "problem": ""}
    return told | {"sleeps": False, "models": [], "vram": -1, "running": 0, "waiting": 0, "at_s": 4.0}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a lab, in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PROVISION_SECRET_ENGINE_KEY", ENGINE_KEY)
    monkeypatch.setenv("PROVISION_SECRET_GATEWAY_KEY", GATEWAY_KEY)
    file = tmp_path / "homelab.yml"
    file.write_text(FILE)
    return file


@pytest.fixture(scope="session")
def tiny_bytes() -> bytes:
    """The file of the built-in model, made once: each test has a cache of its own, which begins empty."""
    return tiny.tiny_model()


@pytest.fixture
def world(lab: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, tiny_bytes: bytes) -> World:
    """The lab's only host, empty."""
    assert lab.exists()
    monkeypatch.setattr(tiny, "tiny_model", lambda: tiny_bytes)
    monkeypatch.setattr(capacity, "SS", "true")
    made = World(monkeypatch)
    made.snapshot = snapshot
    return made


@pytest.fixture
def up(world: World) -> World:
    """The lab, brought up; what was played, asked and told for that is forgotten."""
    world.done("up", "--yes")
    for noted in (world.played, world.inventories, world.questions, world.told):
        noted.clear()
    return world
