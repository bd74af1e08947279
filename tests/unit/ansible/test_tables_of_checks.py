"""What the tables of checks in roles refuse of what a container answered, as Ansible judges it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from tests.plays import rescued, run_cases

ROOT = Path(__file__).resolve().parents[3]
STRANGER = {"strangers": [{"command": "python3", "unit": "squatter.service"}]}
UNIT = {
    "exists": True,
    "active": True,
    "serving": True,
    "main_pid": 5,
    "stale": [],
    "strangers": [],
    "listeners": [{"pid": 5, "unit": "x.service"}],
}


def standard_output(answer: object) -> dict[str, str]:
    """What a task registers of a program that wrote this as JSON."""
    return {"stdout": json.dumps(answer)}


def description(method: str) -> dict[str, str]:
    """What a task registers of a model's page that names this quantization."""
    page = json.dumps({"quantization_config": {"quant_method": method}})
    return {"content": base64.b64encode(page.encode()).decode()}


def checkout(**differs: Any) -> dict[str, Any]:
    """What is registered of a checkout of Kokoro-FastAPI that can do everything, but for what differs."""
    nothing = {"state": "fixed", "reason": ""}
    settings = ["target_max_tokens", "target_min_tokens"]
    usual = {"commit": "a", "foreign": [], "voices": ["af_heart"], "settings": settings}
    return standard_output({**usual, "split": nothing, "guard": nothing, **differs})


def completion(ended: str) -> dict[str, Any]:
    """What is registered of a completion that ended in this way."""
    return {"status": 200, "json": {"usage": {"completion_tokens": 1}, "choices": [{"finish_reason": ended}]}}


def box(*lines: str) -> dict[str, list[str]]:
    """What is registered of a container's system and its confinement, whose first lines are these."""
    usual = ["debian/13", "0 100000 65536", "2", "no", "incus-box//&:incus:unconfined (enforce)"]
    return {"stdout_lines": [*lines, *usual[len(lines) :]]}


def seen(*, card: bool, manifest: bool) -> dict[str, Any]:
    """What is registered of the paths that Kokoro's role looks at."""
    there = {"/dev/nvidiactl": card, "/opt/kokoro/MANIFEST.sha256": manifest}
    return {"paths": {path: {"exists": exists} for path, exists in there.items()}}


USUAL: dict[str, dict[str, Any]] = {
    "kokoro": {
        "kokoro_commit": "a",
        "__kokoro_fetches": False,
        "__kokoro_seen_files": seen(card=False, manifest=True),
        "__kokoro_checked": {"rc": 0, "stdout": "", "stderr": ""},
        "__kokoro_before": UNIT,
        "__kokoro_looked": checkout(),
        "__kokoro_knocked": standard_output({"large": 413}),
        "__kokoro_page": {"status": 404},
        "__kokoro_spoken": {"results": [{"item": "one", "rc": 0, **standard_output({"problem": ""})}]},
    },
    "tabbyapi": {
        "tabbyapi_model": "maker/model",
        "tabbyapi_commit": "a",
        "__tabbyapi_fetches": False,
        "__tabbyapi_found": {
            "backends": ["exllamav3"],
            "ngram": "needless",
            "reason": "",
            "commit": "a",
            "clean": True,
        },
        "__tabbyapi_unknown_lines": "",
        "__tabbyapi_model_files": {"files": [{"path": "/models/config.json"}], "skipped_paths": {}},
        "__tabbyapi_description": description("exl3"),
        "__tabbyapi_prefix": {"rc": 0},
        "__tabbyapi_before": UNIT,
        "__tabbyapi_imported": {"rc": 0, "stdout_lines": ['{"failed": {}, "python": "3.13"}'], "stderr": ""},
        "__tabbyapi_seen": UNIT,
        "__tabbyapi_journal": {"leaks": 0, "said": []},
        "__tabbyapi_next": {"listeners": []},
        "__tabbyapi_card": {"status": 200, "json": {"id": "model"}},
        "__tabbyapi_knocked": standard_output({"large": 413}),
        "__tabbyapi_page": {"status": 404},
        "__tabbyapi_stranger": {"status": 401},
        "__tabbyapi_answer": completion("length"),
    },
    "desktop": {
        "desktop_user": "penny",
        "desktop_password": "x",
        "__desktop_system": box(),
        "__desktop_before": UNIT,
    },
}
"""For each role options and what its tasks register where nothing is to be refused."""
REFUSED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "a voice of Japan": ("kokoro", "preflight", {"kokoro_voices": ["jf_alpha"]}, "Unable to use jf_alpha"),
    "no card": ("kokoro", "preflight", {"kokoro_device": "nvidia"}, "(/dev/nvidiactl is missing)"),
    "a card and torch for the CPU": (
        *("kokoro", "preflight"),
        {"kokoro_device": "nvidia", "__kokoro_seen_files": seen(card=True, manifest=True)},
        "torch was installed for the CPU",
    ),
    "no venv": (
        "kokoro",
        "preflight",
        {"__kokoro_seen_files": seen(card=False, manifest=False)},
        "Kokoro's venv and weights",
    ),
    "a damaged venv": (
        *("kokoro", "preflight"),
        {"__kokoro_checked": {"rc": 1, "stdout": "x: FAILED", "stderr": ""}},
        "differ from its manifest. x: FAILED",
    ),
    "Kokoro's port": (
        "kokoro",
        "preflight",
        {"__kokoro_before": UNIT | STRANGER},
        "python3 (squatter.service) listens",
    ),
    "a missing voice": ("kokoro", "abilities", {"kokoro_voices": ["af_sky"]}, "Unable to speak with af_sky"),
    "no parting": (
        *("kokoro", "abilities"),
        {
            "kokoro_patches": "none",
            "__kokoro_looked": checkout(settings=[], split={"state": "open", "reason": ""}),
        },
        "Unable to stream sentences",
    ),
    "an odd parting": (
        *("kokoro", "abilities"),
        {"__kokoro_looked": checkout(settings=[], split={"state": "unknown", "reason": "no loop"})},
        'no loop. Write patches: none (with streaming: "off")',
    ),
    "an odd player": (
        *("kokoro", "abilities"),
        {"kokoro_web_player": True, "__kokoro_looked": checkout(guard={"state": "unknown", "reason": "no head"})},
        "no head. Write patches: none (with the web player",
    ),
    "a long text": (
        "kokoro",
        "verify_speech",
        {"__kokoro_knocked": standard_output({"large": 200})},
        "200 instead of 413",
    ),
    "an open page": ("kokoro", "verify", {"__kokoro_page": {"status": 200}}, "/openapi.json, which is not on its list"),
    "noise": (
        *("kokoro", "verify_speech"),
        {"__kokoro_spoken": {"results": [{"item": "one", "rc": 0, **standard_output({"problem": "it is noise"})}]}},
        "one sentence: it is noise",
    ),
    "a GGUF file": ("tabbyapi", "preflight_model", {"tabbyapi_model": "a/b.gguf"}, "GGUF is for llama_cpp"),
    "a folder of GGUF": (
        *("tabbyapi", "preflight_model"),
        {"__tabbyapi_model_files": {"files": [{"path": "/models/a.gguf"}], "skipped_paths": {}}},
        "GGUF is for llama_cpp",
    ),
    "an empty folder": (
        *("tabbyapi", "preflight_model"),
        {"__tabbyapi_model_files": {"files": [], "skipped_paths": {}}},
        "it holds no config.json",
    ),
    "no folder": (
        *("tabbyapi", "preflight_model"),
        {"__tabbyapi_model_files": {"files": [], "skipped_paths": {"/models": "is not a directory"}}},
        "there is no such folder",
    ),
    "weights of the other backend": (
        *("tabbyapi", "preflight"),
        {"__tabbyapi_description": description("exl2")},
        "its weights are exl2. Set `backend` to exllamav2",
    ),
    "no interpreter": ("tabbyapi", "preflight", {"__tabbyapi_prefix": {"rc": 2}}, "is no program. Role torch_stack"),
    "tabbyAPI's port": ("tabbyapi", "preflight", {"__tabbyapi_before": UNIT | STRANGER}, "(squatter.service) listens"),
    "no backend": ("tabbyapi", "abilities", {"tabbyapi_backend": "exllamav2"}, "Unable to serve maker/model with"),
    "an unknown option": (
        *("tabbyapi", "abilities"),
        {"__tabbyapi_unknown_lines": "model.reasoning\n"},
        "it knows nothing of model.reasoning",
    ),
    "unknown n-grams": (
        *("tabbyapi", "abilities"),
        {
            "tabbyapi_draft_mode": "ngram",
            "__tabbyapi_found": {"backends": ["exllamav3"], "ngram": "unknown", "reason": "no class"},
        },
        "Unable to draft by n-grams with commit a of tabbyAPI: no class.",
    ),
    "a crash of the imports": (
        *("tabbyapi", "imports"),
        {"__tabbyapi_imported": {"rc": -11, "stdout_lines": ["torch"], "stderr": "dumped"}},
        "it ended with -11 while it imported torch. dumped",
    ),
    "a crash before the imports": (
        *("tabbyapi", "imports"),
        {"__tabbyapi_imported": {"rc": 1, "stdout_lines": []}},
        "it ended with 1 while it imported nothing",
    ),
    "a missing package": (
        *("tabbyapi", "imports"),
        {"__tabbyapi_imported": {"rc": 0, "stdout_lines": ['{"failed": {"rich": "none"}, "python": "3.13"}']}},
        "(Python 3.13): rich (none). Role torch_stack",
    ),
    "a leak": ("tabbyapi", "verify", {"__tabbyapi_journal": {"leaks": 2, "said": []}}, "2 lines of tabbyapi.service"),
    "no room": (
        *("tabbyapi", "verify"),
        {
            "__tabbyapi_seen": {"msg": "Unable to start"},
            "__tabbyapi_journal": {"leaks": 0, "said": ["Insufficient VRAM in split for model and cache"]},
        },
        "need more memory than the cards have",
    ),
    "no answer": (
        *("tabbyapi", "verify"),
        {"__tabbyapi_seen": {"msg": "Unable to start", "log": ["a", "b"]}},
        "Unable to start. Its last words: a | b",
    ),
    "older files": ("tabbyapi", "verify", {"__tabbyapi_seen": UNIT | {"stale": ["/x"]}}, "had started: /x. Run the"),
    "another process": ("tabbyapi", "verify", {"__tabbyapi_seen": UNIT | {"serving": False}}, "is process 5, and 5"),
    "the next port": (
        *("tabbyapi", "verify"),
        {"__tabbyapi_next": {"listeners": [{"pid": 5, "unit": "tabbyapi.service"}]}},
        "it listens on port 15001, too",
    ),
    "no model": (
        *("tabbyapi", "verify"),
        {"__tabbyapi_card": {"status": 503}, "__tabbyapi_answer": {"status": 503}},
        "the model model is not loaded (HTTP 503, no model)",
    ),
    "another model": ("tabbyapi", "verify", {"__tabbyapi_card": {"status": 200, "json": {"id": "x"}}}, "(HTTP 200, x)"),
    "a large body": (
        "tabbyapi",
        "verify",
        {"__tabbyapi_knocked": standard_output({"large": 401})},
        "401 instead of 413",
    ),
    "an open page of tabbyAPI": (
        *("tabbyapi", "verify"),
        {"__tabbyapi_page": {"status": 200}},
        "at port 5000 /.well-known/serviceinfo, which is not on its list, is answered with 200 instead of 404",
    ),
    "no key": ("tabbyapi", "verify", {"__tabbyapi_stranger": {"status": 200}}, "was answered with 200 instead of 401"),
    "no token": (
        *("tabbyapi", "verify"),
        {"__tabbyapi_answer": {"status": 200, "json": {"usage": None}}},
        "HTTP 200, no tokens",
    ),
    "half an answer": (
        *("tabbyapi", "verify"),
        {"__tabbyapi_answer": completion("abort")},
        "the answer ends by abort instead of stop or length",
    ),
    "root": ("desktop", "preflight", {"desktop_user": "root"}, "Unable to set up a desktop for root"),
    "a user twice": (
        *("desktop", "preflight"),
        {"desktop_users": [{"name": "penny", "password": "y"}]},
        "a desktop for penny, penny",
    ),
    "another browser": ("desktop", "preflight", {"desktop_browser": "chrome"}, "with browser chrome"),
    "a keyboard of two lines": (
        "desktop",
        "preflight",
        {"desktop_keyboard": "de\n"},
        "Unable to set up a desktop with",
    ),
    "sound where there is none": (
        *("desktop", "preflight"),
        {"desktop_sound": True, "desktop_image": "debian/12", "__desktop_system": box("debian/12")},
        "sound needs debian/13",
    ),
    "another system": ("desktop", "preflight", {"__desktop_system": box("debian/12")}, "debian/13 on debian/12: write"),
    "root of the host": (
        *("desktop", "preflight"),
        {"__desktop_system": box("debian/13", "0 0 4294967295")},
        "(root is 0 on the host, seccomp 2,",
    ),
    "no filter": ("desktop", "preflight", {"__desktop_system": box("debian/13", "0 1 1", "0")}, "seccomp 0,"),
    "unconfined": (
        *("desktop", "preflight"),
        {"__desktop_system": box("debian/13", "0 1 1", "2", "no", "unconfined")},
        "AppArmor unconfined)",
    ),
    "the desktop's port": ("desktop", "preflight", {"__desktop_before": UNIT | STRANGER}, "python3 (squatter.service)"),
}
"""The role, its file of tasks, what differs from the usual, and what is said of it."""


def tables(role: str, file: str) -> list[dict[str, Any]]:
    """The tasks of a role's file that hold a table of checks."""
    page = paths.roles() / role / "tasks" / f"{file}.yml"
    tasks = yaml.safe_load(page.read_text(encoding="utf-8"))
    return [task for task in tasks if "__checks" in task.get("vars", {})]


FILES = sorted({(role, file) for role, file, _, _ in REFUSED.values()})
USUALLY = "usual"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, str]]:
    """Return what a role's file says to each of its cases and to what is usual; no entry where it is taken."""

    @cache
    def of_file(role: str, file: str) -> dict[str, str]:
        differing = {name: case[2] for name, case in REFUSED.items() if case[:2] == (role, file)}
        cases = {
            name: {"role_name": role, **USUAL[role], **differs} for name, differs in {USUALLY: {}, **differing}.items()
        }
        facts = run_cases(ROOT, tmp_path_factory.mktemp("play"), role, cases, [rescued(*tables(role, file))])
        return {name: found["said"] for name, found in facts.items() if "said" in found}

    return of_file


@pytest.mark.parametrize(("role", "file"), FILES)
def test_nothing_else_is_refused(told: Callable[[str, str], dict[str, str]], role: str, file: str) -> None:
    assert USUALLY not in told(role, file)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_with_is_refused(told: Callable[[str, str], dict[str, str]], name: str) -> None:
    role, file, _, words = REFUSED[name]
    assert words in told(role, file).get(name, "")


def test_a_server_that_did_not_answer_is_not_called_another_process(
    told: Callable[[str, str], dict[str, str]],
) -> None:
    assert "Unable to trust port" not in told(*REFUSED["no answer"][:2])["no answer"]
