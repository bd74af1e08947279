"""A lab is changed while people ask its door without a pause: no answer is cut, lost or refused."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from provisioner.models import tiny
from tests.integration.up.killing import killed_after
from tests.integration.up.quickstart_lab import MASTER_KEY, Lab, Ran, sh
from tests.lab.incus import Lab as Incus
from tests.processes import killed_at_end

pytestmark = pytest.mark.incus

ROOT = Path(__file__).resolve().parents[3]
LOAD = ROOT / "molecule" / "shared" / "load.py"
CLIENTS = 20
LAST_S = 240
"""So long the last answers may take."""
QUEUE_S = 120
FIRST_KILL_S, KILL_STEP_S, LEAST_KILLS = 3.0, 1.0, 5
"""Ansible begins after three seconds; a whole change takes ten to twenty."""
ENGINE, OTHER, GATEWAY, DOOR = "asked-engine", "asked-other", "asked-gateway", "asked-door"
SITE, ANOTHER_SITE = "asked.home.example", "models.home.example"
SECRETS = {
    "PROVISION_SECRET_AUTHORITY": "CANARY1-of-the-authority",
    "PROVISION_SECRET_ANOTHER_KEY": "CANARY2-{{7*7}}-another",
    "PROVISION_SECRET_SHARE_BOX": "CANARY1-of-those-who-share",
}
"""quickstart_lab watches all arguments for their first words."""
PARTS = {
    "share": "",
    "model": "builtin:tiny",
    "key": "engine_key",
    "engine": "",
    "gateway": "",
    "aliases": "fast: [small], code: [other]",
    "sites": f"{SITE}: {GATEWAY}/litellm",
}
FILE = f"""
name: asked
hosts:
  box: {{{{ incus: local{{share}} }}}}
models:
  small: {{{{ source: "{{model}}", context: 1024 }}}}
  other: {{{{ source: "builtin:tiny", context: 1024 }}}}
containers:
  {ENGINE}:
    services:
      llama_cpp: {{{{ model: small, parallel: 2, threads: 1, api_key: !secret {{key}}{{engine}} }}}}
  {OTHER}:
    services:
      llama_cpp: {{{{ model: other, parallel: 2, threads: 1 }}}}
  {GATEWAY}:
    services:
      litellm: {{{{ master_key: !secret master_key{{gateway}}, aliases: {{{{ {{aliases}} }}}} }}}}
  {DOOR}:
    services:
      door: {{{{ authority: !secret authority, sites: {{{{ {{sites}} }}}} }}}}
"""
REFUSING = (
    "{% if messages[0]['content'] == 'Say hello.' %}{{ raise_exception('not to this') }}{% endif %}"
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
)
DEAF = f', extra_arguments: ["--chat-template", "{REFUSING}"]'
"""With it llama-server is healthy, and answers no completion that its proof asks for."""
SHARE = f", share: [[{ENGINE}/llama_cpp, {OTHER}/llama_cpp]]"
BUILD = ", build_options: [GGML_CCACHE=OFF]"
"""Another build of the same source, by an option that changes nothing of the program."""


ANSWERS = (
    "python3 -IS /usr/local/lib/switch/control.py --socket /run/switch-llama-server/control.sock state"
    ' | grep -q "\\"a\\": {\\"status\\": \\"UP[^}]*running\\": [1-9]"'
)
"""Whether the engine is in service and answers somebody."""


def file(**parts: str) -> str:
    """The lab's file with these parts in place of the usual ones."""
    return FILE.format(**{**PARTS, **parts})


Change = tuple[str, dict[str, str], bool]
"""What is changed, the file's parts by then, and whether that succeeds."""
WITH_KEY = {"engine": ", batch: 256", "key": "another_key"}
WITH_ALIAS = {**WITH_KEY, "aliases": f"{PARTS['aliases']}, slow: [small]"}
WITH_SITE = {**WITH_ALIAS, "sites": f"{PARTS['sites']}, {ANOTHER_SITE}: {GATEWAY}/litellm"}
CHANGES: tuple[Change, ...] = (
    ("an option of the engine", {"engine": ", batch: 256"}, True),
    ("an engine that answers no completion", {"engine": DEAF}, False),
    ("the engine's key", WITH_KEY, True),
    ("an alias", WITH_ALIAS, True),
    ("the certificate", WITH_SITE, True),
    ("turns on one card", {**WITH_SITE, "share": SHARE}, True),
)
SLOW_CHANGES: tuple[Change, ...] = (
    ("another model under the same name", {"model": "file:other.gguf"}, True),
    ("an exchange", {"engine": ", beside: false, batch: 256"}, True),
    ("an option of the gateway", {"gateway": ", num_retries: 1"}, True),
    ("how long requests wait", {"engine": ", queue: 3m", "gateway": ", queue: 3m"}, True),
)


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab as it is before the first change; beside its file lies another model."""
    environment = {**incus_lab.environment, **SECRETS}
    lab = Lab(tmp_path_factory.mktemp("asked"), environment, "debian/12", "debian/12", name="asked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "RULED_OUT", tiny.RULED_OUT - 1)
        (lab.folder / "other.gguf").write_bytes(tiny.tiny_model())
    lab.write(file())
    with lab.gone_afterwards():
        made(lab)
        yield lab


def made(lab: Lab, **parts: str) -> None:
    """Have the lab as its file says with these parts."""
    lab.write(file(**parts))
    lab.succeeded("up", "--yes")


def while_asked(lab: Lab, happening: Callable[[], object], models: str = "fast,code") -> dict[str, Any]:
    """What became of all answers that the door was asked for meanwhile, as ``molecule/shared/load.py`` says it."""
    stop, key, root = lab.folder / "load.stop", lab.folder / "load.key", lab.folder / "load.pem"
    stop.unlink(missing_ok=True)
    key.touch(mode=0o600)
    key.write_text(MASTER_KEY, encoding="utf-8")
    root.write_text(lab.provision("show", "--ca").out, encoding="utf-8")
    words = ["443", str(CLIENTS), str(stop), "model", str(key), models]
    words += ["--at", lab.address(DOOR), "--site", SITE, "--ca", str(root), "--slowly", "0.8", "--keep"]
    with killed_at_end(
        subprocess.Popen([sys.executable, str(LOAD), *words], stdout=subprocess.PIPE, text=True)
    ) as load:
        try:
            happening()
        finally:
            stop.touch()
            told, _ = load.communicate(timeout=LAST_S)
    return dict(json.loads(told))


def mounted(lab: Lab) -> set[str]:
    """The models that are mounted in the engine's container."""
    devices = next(one for one in lab.made() if one["name"] == ENGINE)["devices"].values()
    return {device["source"] for device in devices if device.get("path", "").startswith("/srv/models/")}


def assert_nothing_is_refused_over(lab: Lab, changes: Sequence[Change]) -> None:
    """Make these changes one after the other while the door is asked."""
    ran: list[tuple[str, Ran, bool]] = []

    def change() -> None:
        for what, parts, succeeds in changes:
            lab.write(file(**parts))
            ran.append((what, lab.provision("up", "--yes"), succeeds))

    became = while_asked(lab, change)
    for what, answer, succeeds in ran:
        assert (answer.code == 0) is succeeds, (what, answer.out[-3000:], answer.err[-3000:])
    assert set(became) == {"whole", "slowest"}, became
    assert became["slowest"] < QUEUE_S
    assert became["whole"] > 10 * len(ran)
    lab.succeeded("verify")


@pytest.mark.guarantee("answers")
def test_no_answer_is_cut_lost_or_refused_over_a_change(lab: Lab) -> None:
    assert_nothing_is_refused_over(lab, CHANGES[:1])


def test_nor_over_changes_of_each_kind(lab: Lab) -> None:
    assert_nothing_is_refused_over(lab, CHANGES[1:])


@pytest.mark.slow
def test_nor_over_forty_changes_of_all_kinds(lab: Lab) -> None:
    made(lab, engine=BUILD)  # its build is there before it is asked for, as is the usual one
    made(lab)
    before = mounted(lab)
    kinds = (*SLOW_CHANGES[:2], ("another build", {"engine": BUILD}, True), *CHANGES, *SLOW_CHANGES[2:])
    changes = (*itertools.islice(itertools.cycle(kinds), 39), ("as it was", {}, True))
    assert_nothing_is_refused_over(lab, changes)
    assert mounted(lab) == before, "any other model is gone"


@pytest.mark.slow
def test_an_engine_that_is_killed_cuts_what_it_was_answering_and_nothing_else(lab: Lab) -> None:
    """A stream that it was answering ends without an end, one answer in a piece is told to have failed by its status.

    So nobody takes it for whole. Nothing is asked again, as it may have been what ended the engine; all others are
    answered.
    """
    made(lab)
    kills = 5

    def kill() -> None:
        for _ in range(kills):
            sh(lab, ENGINE, f"timeout 60 sh -c 'until {ANSWERS}; do sleep 0.1; done'")
            sh(lab, ENGINE, "pkill --signal KILL --exact llama-server")

    became = while_asked(lab, kill, "fast")
    died_with_it = {"cut", "500", "502"}
    assert set(became) <= {"whole", "slowest"} | died_with_it, became
    assert became["whole"] > 5 * kills
    assert sum(became.get(kind, 0) for kind in died_with_it) <= kills * 2, "it answers two at a time"


@pytest.mark.slow
def test_a_failed_trial_leaves_everything_as_it_was(lab: Lab) -> None:
    made(lab)
    seen = "systemctl show --value --property=MainPID llama-server; sha256sum /etc/systemd/system/llama-server.service"
    before = sh(lab, ENGINE, seen), mounted(lab)
    lab.write(file(model="file:other.gguf", engine=DEAF))
    answer = lab.provision("up", "--yes")
    assert answer.code == 3, answer.out + answer.err
    assert "tried beside the server that serves, the new one did not answer" in answer.err
    assert f"{ENGINE}: nothing was changed in it" in answer.err
    assert (sh(lab, ENGINE, seen), mounted(lab)) == before
    lab.write(file())
    assert lab.provision("plan", "--detailed-exitcode").code == 0, "what is there is what the file before says"


@pytest.mark.slow
def test_killed_at_any_moment_of_a_change_answers_go_on_and_one_engine_is_left(lab: Lab) -> None:
    """Each run is killed a second later than the one before, until one comes to its end first."""
    made(lab)
    options = itertools.cycle([", batch: 256", ""])
    left = list[str]()

    def change() -> None:
        seconds = FIRST_KILL_S
        lab.write(file(engine=next(options)))
        while killed_after(lab, seconds, signal.SIGKILL):
            again = lab.provision("up", "--yes")
            assert again.code == 0, f"killed after {seconds} s: {again.out[-3000:]}{again.err[-3000:]}"
            left.append(sh(lab, ENGINE, "pgrep --count --exact llama-server").strip())
            lab.write(file(engine=next(options)))
            seconds += KILL_STEP_S

    became = while_asked(lab, change)
    assert len(left) > LEAST_KILLS
    assert set(left) == {"1"}
    assert set(became) == {"whole", "slowest"}, became


@pytest.mark.slow
def test_without_the_queue_the_same_changes_refuse_requests(lab: Lab) -> None:
    """The gate can fail: requests that may not wait are refused while an engine is exchanged that is slow to start."""
    made(lab, engine=", beside: false, queue: 0s", gateway=", num_retries: 0")
    drop_in = "/run/systemd/system/llama-server.service.d"
    sh(lab, ENGINE, f"mkdir {drop_in} && printf '[Service]\\nExecStartPre=/bin/sleep 5\\n' > {drop_in}/slow.conf")
    became = while_asked(
        lab, lambda: made(lab, engine=", beside: false, queue: 0s, batch: 128", gateway=", num_retries: 0")
    )
    assert set(became) - {"whole", "slowest"}, became


@pytest.mark.guarantee("secrets")
def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of("CANARY")
