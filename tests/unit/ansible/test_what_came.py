"""What a proof's judging tasks say came, as Ansible judges answers that are as they should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.configure import PROOF
from provisioner.values import paths
from tests.plays import rescued, run_cases
from tests.unit.ansible.test_tables_of_checks import USUAL, standard_output

ROOT = Path(__file__).resolve().parents[3]
UNIT = {"active": True, "serving": True, "main_pid": 5, "stale": [], "strangers": []}
LISTENS = {"pid": 5, "unit": "x.service", "command": "xrdp"}
SEEN = {**UNIT, "listeners": [LISTENS]}
MESSAGE = {"content": "Hello!\nI am here.", "reasoning_content": None}
CHAT = {
    "status": 200,
    "item": "tiny",
    "json": {
        "model": "tiny",
        "choices": [{"finish_reason": "length", "message": MESSAGE, "text": " world"}],
        "usage": {"completion_tokens": 8},
    },
}
EMBEDDED = {"status": 200, "item": "vectors", "json": {"data": [{"embedding": [0.6, 0.8]}, {"embedding": [1, 0]}]}}
RANKED = {"status": 200, "item": "order", "json": {"results": [{"relevance_score": 2.5}, {"relevance_score": -1.0}]}}
VERDICT = {"problem": "", "advice": "", "verdict": "GPU", "why": "33 of 33 layers, 6,900 MiB on the card"}
OPEN = {"asked": 12, "answered": [], "silent": 0, "problem": ""}
STACK = {
    "problem": "",
    "advice": "",
    "steps": [
        {"step": "names", "package": "torch", "module": "", "verdict": "ok", "said": "2.9.1+cu130"},
        {"step": "kernel", "package": "torch", "module": "torch", "verdict": "ok", "said": ""},
    ],
    "unproved": [],
}
OLLAMA = [
    {"name": "a", "status": 200, "ended": "stop", "tokens": 3, "size": 4, "on_card": 3, "said": "it answers: Hello"},
    {
        "name": "b",
        "status": 200,
        "ended": "stop",
        "tokens": 2,
        "size": 4,
        "on_card": 4,
        "said": "a vector of 2 numbers",
    },
]
RUNS = {"digest": "sha256:a", "published": {"127.0.0.1:18300": "80/tcp"}, "inside": [80], "root": "is nobody"}
VLLM_OPEN = {"sockets": [["api", "127.0.0.1", 18000, "vllm.service"]], "problem": "", "doors": [OPEN]}
ROUTES = {
    "aliases": ["tiny"],
    "engines": [],
    "deployments": [
        {"model_name": "tiny"},
        {"model_name": "vectors", "mode": "embedding"},
        {"model_name": "order", "mode": "rerank"},
    ],
    "context_window_fallbacks": [],
    "asked": ["tiny", "vectors", "order"],
}
SPOKEN = [
    {"item": "one", "rc": 0, **standard_output({"problem": "", "bytes": 96000, "bursts": 1, "first_s": 0.5})},
    {"item": "two", "rc": 0, **standard_output({"problem": "", "bytes": 240000, "bursts": 3, "first_s": 0.25})},
]
MODELS = {"status": 200, "json": {"data": [{"id": "tiny", "status": {"args": ["x", "--model", "/m/tiny.gguf"]}}]}}
LLAMA = {
    "llama_cpp_alias": "tiny",
    "llama_cpp_model": "/m/tiny.gguf",
    "llama_cpp_api_key": "k",
    "__llama_cpp_unit_seen": SEEN,
    "__llama_cpp_props": {
        "status": 200,
        "json": {"model_path": "/m/tiny.gguf", "modalities": {"vision": False}},
    },
    "__llama_cpp_stranger": {"status": 401},
    "__llama_cpp_unlocked": {"stdout": ""},
    "__llama_cpp_answer": CHAT,
    "__llama_cpp_passed": CHAT,
    "__llama_cpp_verdict": VERDICT,
    "__llama_cpp_heard": {"rc": 0, **standard_output({"problem": "", "status": 200, "said": "vectors of 3 numbers"})},
    "__llama_cpp_tried_answers": {"results": [CHAT]},
    "__llama_cpp_tried_result": {"stdout_lines": ["Result=success"]},
    "__llama_cpp_tried": {"serving": True},
}
SEVERAL = {
    "llama_cpp_models": [{"alias": "tiny", "path": "/m/tiny.gguf"}],
    "__llama_cpp_list": MODELS,
    "__llama_cpp_refused": {"status": 400},
    "__llama_cpp_answers": {"results": [CHAT]},
    "__llama_cpp_props_of": {"results": [{"status": 200, "json": {"model_path": "/m/tiny.gguf"}}]},
}
LITELLM = {
    "litellm_master_key": "sk-x",
    "litellm_routes": ROUTES,
    "__litellm_passed": {"status": 401},
    "__litellm_state": SEEN,
    "__litellm_stranger": {"status": 401},
    "__litellm_models": {"status": 200, "json": {"data": [{"id": "tiny"}]}},
    "__litellm_statuses": standard_output(
        {"a body that is too large": 413, "a path that is not on the list": 404, "a wrong key": 401}
    ),
    "__litellm_answers": {"results": [{**CHAT, "x_litellm_model_id": "0.1.x"}, EMBEDDED, RANKED]},
    "__litellm_spoken": {
        "results": [{"item": {"name": "voice"}, "rc": 0, **standard_output({"status": 200, "bytes": 4096, "said": ""})}]
    },
}
KNOWN: dict[str, dict[str, Any]] = {
    "cuda_toolkit": {
        "cuda_toolkit_version": "13.0.2",
        "cuda_toolkit_libraries": ["cublas"],
        "__cuda_toolkit_home": "/opt/cuda",
        "__cuda_toolkit_proof": {"problem": "", "version": "13.0.2", "said": ""},
    },
    "desktop": {
        **USUAL["desktop"],
        "__desktop_state": SEEN,
        "__desktop_sesman_state": {"stale": []},
        "__desktop_proof_run": {
            "rc": 0,
            **standard_output(
                {
                    "problem": "",
                    "notes": ["the session of ann was left alone"],
                    "took": {"refused": 2.1, "panel": 6.5},
                    "pictures": {"desktop": "mate"},
                }
            ),
        },
    },
    "door": {
        "door_sites": {"chat.home.example": "http://10.0.0.1:80/"},
        "door_hsts": "1h",
        "__door_seen": SEEN,
        "__door_visited": {"rc": 0, "stdout": "[]"},
    },
    "gpu_host": {
        "__gpu_host_now": {
            "cards": [{"pci": "01:00.0", "vendor": "nvidia", "name": "RTX 3060", "driver": "nvidia"}],
            "missing": [],
            "makers": ["nvidia-persistenced.service", "provision-gpu-devices.service"],
            "has_tools": True,
        },
        "__gpu_host_unit": "provision-gpu-devices.service",
        "__gpu_host_wants_tools": True,
    },
    "gpu_userspace": {
        "gpu_userspace_driver_version": "580.95",
        "__gpu_userspace_interfaces": ["cuda"],
        "__gpu_userspace_proof": {"problem": "", "advice": "", "said": "", "found": ["RTX 3060"]},
        "__gpu_userspace_state": {
            "kernel": "",
            "libraries": {"libcuda.so.1": "580.95"},
            "files": {},
            "leftovers": [],
            "kernel_packages": [],
        },
    },
    "incus_host": {
        "incus_host_images": ["debian/13"],
        "__incus_host_seen": {
            "answers": True,
            "reason": "",
            "devices": {"root": {"pool": "default"}, "eth0": {}},
            "pools": ["default"],
            "images": ["debian/13"],
        },
    },
    "kokoro": {
        **USUAL["kokoro"],
        "__kokoro_proved": standard_output({"commit": "a", "foreign": []}),
        "__kokoro_seen": SEEN,
        "__kokoro_spoken": {"results": SPOKEN},
    },
    "agent_team": {
        "agent_team_api_key": "k",
        "agent_team_members": [{"name": "coder", "instructions": "c", "model": "tiny"}],
        "agent_team_coordinator_engine": [{"model": "tiny", "base_url": "http://a/v1", "local": True}],
        "agent_team_member_engines": [{"model": "tiny", "base_url": "http://a/v1", "local": True}],
        "__agent_team_state": SEEN,
        "__agent_team_models": {"status": 200, "json": {"data": [{"id": "agent_team"}]}},
        "__agent_team_statuses": standard_output(
            {"a body that is too large": 413, "a path that is not on the list": 404, "a wrong key": 401}
        ),
        "__agent_team_answer": CHAT,
        "__agent_team_passed": {"status": 401},
    },
    "pipelines": {
        "pipelines_api_key": "0123456789abcdef",
        "pipelines_pipelines": [{"name": "team.py", "text": ""}, {"name": "many.py", "text": ""}],
        "pipelines_asked": True,
        "__pipelines_state": SEEN,
        "__pipelines_models": {"status": 200, "json": {"data": [{"id": "team"}, {"id": "many.one"}]}},
        "__pipelines_listed": {
            "status": 200,
            "json": {
                "data": [
                    {"id": "team", "name": "team", "type": "pipe", "valves": False},
                    {"id": "many", "name": "many", "type": "manifold", "valves": True},
                ]
            },
        },
        "__pipelines_statuses": standard_output(
            {
                "a body that is too large": 413,
                "a wrong key": 401,
                "a question without a key": 401,
                "code from elsewhere": 404,
                "code that is sent": 404,
                "deleting": 404,
                "loading again": 404,
                "settings": 404,
                "filters": 404,
            }
        ),
        "__pipelines_answer": {
            "rc": 0,
            **standard_output({"status": 200, "ended": True, "text": "Hello.", "problem": ""}),
        },
        "__pipelines_passed": {"status": 401},
    },
    "litellm": LITELLM,
    "llama_cpp": LLAMA,
    "ollama": {
        "ollama_api_key": "k",
        "ollama_device": "nvidia",
        "ollama_partial_offload": True,
        "__ollama_wants_device": True,
        "__ollama_proofs": {"rc": 0, **standard_output(OLLAMA)},
        "__ollama_journal": {"leaks": 0, "said": []},
        "__ollama_seen": SEEN,
        "__ollama_strangers": {"rc": 0, **standard_output({"doors": [OPEN]})},
        "__ollama_closed": {"status": 404},
    },
    "oci": {
        "oci_image": f"registry.example/a@sha256:{'a' * 64}",
        "oci_image_port": 80,
        "oci_looks": ["/"],
        "oci_api_key": "k",
        "__oci_seen": SEEN,
        "__oci_looked": {"rc": 0, **standard_output({"wrong": [], "saw": RUNS})},
        "__oci_closed": {"rc": 0, "stdout": "oifname podman* drop"},
        "__oci_asked": {"results": [{"status": 200}, {"status": 404}]},
        "__oci_stranger": {"status": 401},
        "__oci_journal": {"leaks": 0},
    },
    "open_webui": {
        "__open_webui_now": SEEN,
        "__open_webui_proof": {
            "rc": 0,
            **standard_output({"wrong": [], "came": ["a stranger gets: /docs 404", "tiny answers: Hello"]}),
        },
    },
    "switch": {
        "switch_name": "x",
        "__switch_slot": "a",
        "__switch_identity": "i",
        "__switch_seen": SEEN,
        "__switch_said": {
            "rc": 0,
            **standard_output({"identity": "i", "slots": {"a": {"status": "UP"}}, "may_wait": True, "asleep": False}),
        },
    },
    "tabbyapi": {
        **USUAL["tabbyapi"],
        "tabbyapi_packages": ["torch"],
        "tabbyapi_stack": "s",
        "__torch_stack_proof": STACK,
    }
    | {"__tabbyapi_answer": CHAT},
    "vllm": {
        "vllm_model": "tiny",
        "vllm_api_key": "k",
        "vllm_backend": "cuda",
        "vllm_packages": ["torch"],
        "vllm_stack": "s",
        "__torch_stack_proof": {**STACK, "steps": STACK["steps"][:1], "unproved": ["no card is here"]},
        "__vllm_seen": SEEN,
        "__vllm_journal": {"leaks": 0, "said": []},
        "__vllm_open": {"rc": 0, **standard_output(VLLM_OPEN)},
        "__vllm_models": {"status": 200, "json": {"data": [{"id": "tiny", "max_model_len": 4096}]}},
        "__vllm_stranger": {"status": 401},
        "__vllm_answer": CHAT,
        "__vllm_verdict": VERDICT,
    },
}
"""For each role options, and what its tasks register where all is as it should be."""
CAME: dict[tuple[str, str], list[str]] = {
    ("agent_team", "verify"): [
        "Process 5 of agent-team.service",
        "It offers agent_team",
        "a body that is too large: HTTP 413",
        'The team, asked "Say hello." (HTTP 200)',
        "Without the key, at port 4100: HTTP 401",
    ],
    ("pipelines", "verify"): [
        "Process 5 of pipelines.service",
        "It offers team, many.one",
        "code that is sent: HTTP 404",
        'team, asked "Say hello." (HTTP 200), to the end of the stream: Hello.',
        "Without the key, at port 9099: HTTP 401",
    ],
    ("oci", "verify"): [
        "/: HTTP 200 through the switch",
        "runs sha256:a, as the file says",
        "published at 127.0.0.1:18300 alone\nlistens inside at 80; its root is nobody",
        "on no list: HTTP 404; without the key: HTTP 401",
    ],
    ("cuda_toolkit", "verify"): ["CUDA 13.0.2 in /opt/cuda compiled and linked a program with cublas"],
    ("desktop", "verify"): [
        "is served by xrdp of xrdp.service",
        "a wrong password was refused after 2.1 s\na login had a desktop with its panel after 6.5 s",
        'the picture "desktop" shows: mate\nthe session of ann was left alone',
    ],
    ("door", "verify"): ["chat.home.example: HTTP 200 by TLS", "HTTP 421 by TLS"],
    ("gpu_host", "verify"): [
        "RTX 3060 (driver nvidia)",
        "provision-gpu-devices.service",
        "nvidia-container-cli is there",
    ],
    ("gpu_userspace", "verify_device"): ["By cuda answered: RTX 3060"],
    ("gpu_userspace", "verify_version"): ["libcuda.so.1 580.95", "0 libraries of other versions"],
    ("incus_host", "verify"): ["/unix.socket", "eth0, root; root lies on pool default", "debian/13"],
    ("kokoro", "verify"): ["/openapi.json at port 8880: HTTP 404"],
    ("kokoro", "verify_speech"): [
        '2.0 s of speech for "The lamp in the hall is on."\n5.0 s of speech',
        "first after 0.25 s, in 3 bursts",
        "HTTP 413",
    ],
    ("kokoro", "verify_start"): ["It is commit a, with changes in no file", "Process 5 of kokoro.service"],
    ("litellm", "verify"): ["HTTP 401"],
    ("litellm", "verify_gateway"): [
        "Process 5 of litellm.service",
        "Without the key: HTTP 401",
        "HTTP 200. It offers tiny",
        "a body that is too large: HTTP 413\na path that is not on the list: HTTP 404\na wrong key: HTTP 401",
        'tiny, asked "Say hello." (HTTP 200): 8 tokens, ended by length: Hello! I am here.\nvectors (HTTP',
        "a vector of 2 numbers for each of 2 texts\norder (HTTP 200): the scores 2.5, -1.0",
        "voice (HTTP 200): 4096 bytes of sound",
    ],
    ("llama_cpp", "trial"): ["It answered beside the one that serves"],
    ("llama_cpp", "verify"): [
        "Process 5 of llama-server.service",
        "It serves /m/tiny.gguf and takes no images (HTTP 200)",
        "Without the key: HTTP 401",
        "nothing of memory that it could not keep",
    ],
    ("llama_cpp", "verify_chat"): [
        'Asked "Say hello." (HTTP 200), tiny answers with 8 tokens, ended by length: Hello!\nI am here.'
    ],
    ("llama_cpp", "verify_device"): ["tiny is computed by: GPU (", "33 of 33 layers, 6,900 MiB on the card"],
    ("llama_cpp", "verify_models"): [
        "It lists tiny = /m/tiny.gguf (HTTP 200); another name: HTTP 400",
        "tiny answers with 8 tokens, ended by length: Hello!",
    ],
    ("llama_cpp", "verify_passed"): ["tiny answers, ended by length: Hello!"],
    ("llama_cpp", "verify_vectors"): ["vectors of 3 numbers"],
    ("ollama", "verify"): [
        "a (HTTP 200, 75% on the card): it answers: Hello\nb (HTTP 200, 100% on the card): a vector of 2 numbers",
        "12 routes asked, 0 answer",
    ],
    ("open_webui", "verify"): ["a stranger gets: /docs 404\ntiny answers: Hello"],
    ("switch", "verify"): ["slot a is UP"],
    ("tabbyapi", "verify"): [
        "0 lines of the journal hold a key\nprocess 5 of tabbyapi.service",
        "torch 2.9.1+cu130 is in the stack s; 2 looks at it found nothing; torch computed on cuda",
        'asked "Hello" (HTTP 200), model answers with 8 tokens, ended by length: " world"\nwithout a key: HTTP 401',
    ],
    ("vllm", "verify"): [
        "process 5 of vllm.service",
        "nothing was computed on a card\nnot proved here: no card is here",
        'asked "Hello" (HTTP 200), tiny answers with 8 tokens, ended by length: " world"',
        "of 12 routes asked 0 answer\nits own processes listen on 127.0.0.1 alone",
    ],
    ("vllm", "verify_device"): ["tiny is computed by: GPU. 33 of 33"],
}
"""What each file of tasks says at least."""

SILENT = {"status": -1, "item": "tiny", "msg": "Connection refused"}
"""What a request registers that nobody answered."""
EMPTY = {"finish_reason": None, "message": {"content": ""}}
DIED = {"rc": 1, "stdout": "", "stderr": "it died"}
"""What a program registers that ended without an answer."""
ODD = {**SILENT, "status": 200, "json": {"choices": [EMPTY], "data": None, "usage": {}, "model": "tiny"}}
WITHOUT_CHOICES = {**SILENT, "status": 200, "json": {"model": "tiny"}}
TEXT = {**SILENT, "status": 200, "content": "All is well."}
"""What a request registers that is answered with 200, and not as it should be."""
POOR: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no page of the model": ("llama_cpp", "verify", {"__llama_cpp_props": SILENT}),
    "a page without words": ("llama_cpp", "verify", {"__llama_cpp_props": {**SILENT, "json": {}}}),
    "open to all": ("llama_cpp", "verify", {"__llama_cpp_stranger": {"status": 200}}),
    "nobody is refused": ("llama_cpp", "verify", {"__llama_cpp_stranger": SILENT}),
    "no chat": ("llama_cpp", "verify_chat", {"__llama_cpp_answer": SILENT}),
    "an odd chat": ("llama_cpp", "verify_chat", {"__llama_cpp_answer": ODD}),
    "a chat without choices": ("llama_cpp", "verify_chat", {"__llama_cpp_answer": WITHOUT_CHOICES}),
    "a text in place of a chat": ("llama_cpp", "verify_chat", {"__llama_cpp_answer": TEXT}),
    "a switch without choices": ("llama_cpp", "verify_passed", {"__llama_cpp_passed": WITHOUT_CHOICES}),
    "a text of the switch": ("llama_cpp", "verify_passed", {"__llama_cpp_passed": TEXT}),
    "several without choices": (
        *("llama_cpp", "verify_models"),
        {"__llama_cpp_answers": {"results": [WITHOUT_CHOICES]}},
    ),
    "a text of several": ("llama_cpp", "verify_models", {"__llama_cpp_answers": {"results": [TEXT]}}),
    "a text in place of a page": ("llama_cpp", "verify", {"__llama_cpp_props": TEXT}),
    "no switch": ("llama_cpp", "verify_passed", {"__llama_cpp_passed": SILENT}),
    "an odd switch": ("llama_cpp", "verify_passed", {"__llama_cpp_passed": ODD}),
    "no list": ("llama_cpp", "verify_models", {"__llama_cpp_list": SILENT}),
    "no chat of several": ("llama_cpp", "verify_models", {"__llama_cpp_answers": {"results": [SILENT]}}),
    "an odd chat of several": ("llama_cpp", "verify_models", {"__llama_cpp_answers": {"results": [ODD]}}),
    "no vectors": ("llama_cpp", "verify_vectors", {"__llama_cpp_heard": DIED}),
    "no answer of a team": ("agent_team", "verify", {"__agent_team_answer": SILENT}),
    "an odd answer of a team": ("agent_team", "verify", {"__agent_team_answer": ODD}),
    "no answer of a pipeline": ("pipelines", "verify", {"__pipelines_answer": DIED}),
    "no list of pipelines": ("pipelines", "verify", {"__pipelines_listed": SILENT, "__pipelines_models": SILENT}),
    "odd lists of pipelines": ("pipelines", "verify", {"__pipelines_listed": ODD, "__pipelines_models": ODD}),
    "no look at an image": ("oci", "verify", {"__oci_looked": DIED}),
    "no rules of an image's network": ("oci", "verify", {"__oci_closed": DIED}),
    "no answer of an image": ("oci", "verify", {"__oci_asked": {"results": [SILENT, SILENT]}}),
    "no gateway": ("litellm", "verify_gateway", {"__litellm_models": SILENT}),
    "no answers": ("litellm", "verify_gateway", {"__litellm_answers": {"results": [SILENT]}}),
    "odd answers": ("litellm", "verify_gateway", {"__litellm_answers": {"results": [ODD]}}),
    "no sound": (
        *("litellm", "verify_gateway"),
        {"__litellm_spoken": {"results": [{"item": {"name": "voice"}, **DIED}]}},
    ),
    "no models": ("ollama", "verify", {"__ollama_proofs": DIED}),
    "a model that is gone": (
        "ollama",
        "verify",
        {"__ollama_proofs": standard_output([{"name": "a", "error": "gone"}]) | {"rc": 0}},
    ),
    "no proof of the web": ("open_webui", "verify", {"__open_webui_proof": DIED}),
    "no control": ("switch", "verify", {"__switch_said": DIED}),
    "no engine": ("vllm", "verify", {"__vllm_answer": SILENT, "__vllm_models": SILENT, "__vllm_stranger": SILENT}),
    "no routes": ("vllm", "verify", {"__vllm_open": DIED}),
    "no start": ("vllm", "verify", {"__vllm_seen": {"msg": "Unable to start"}}),
    "no image": ("oci", "verify", {"__oci_looked": DIED, "__oci_asked": {"results": [SILENT, SILENT]}}),
    "no desktop": ("desktop", "verify", {"__desktop_proof_run": {"rc": 1, "stderr_lines": ["it died"]}}),
    "no door": ("door", "verify", {"__door_visited": {"rc": 1, "stderr": "Unable: it died"}}),
    "no Incus": (
        "incus_host",
        "verify",
        {"__incus_host_seen": {"answers": False, "reason": "refused", "devices": {}, "pools": [], "images": []}},
    ),
}
"""Role and file, and what is registered where it is not as it should be: the words of success must not hide why."""


NOBODY_SPEAKS: dict[str, Any] = {"__litellm_spoken": {"results": []}, "__litellm_answers": {"results": []}}
NO_ROLE_SAYS_NOTHING = [
    ("litellm", "verify_gateway", NOBODY_SPEAKS),
    ("ollama", "verify", {"__ollama_proofs": {"rc": 0, "stdout": "[]"}}),
    ("open_webui", "verify", {"__open_webui_proof": {"rc": 0, "stdout": '{"wrong": [], "came": []}'}}),
    ("desktop", "verify", {"__desktop_proof_run": {"rc": 0, "stdout": '{"problem": "", "notes": []}'}}),
]
"""Roles and files that have nothing to say: a template of which nothing is left gives no text but none at all."""


def judging(tasks: Any) -> Iterator[dict[str, Any]]:
    """The asserts among these tasks, and in their blocks, that are steps of a proof."""
    for task in tasks or []:
        if "ansible.builtin.assert" in task and PROOF.match(task.get("name", "")):
            yield task
        for part in ("block", "rescue", "always"):
            yield from judging(task.get(part))


def without_words(task: Mapping[str, Any]) -> bool:
    """Whether it does not say what came: nothing, or what it would say whatever came."""
    return "{{" not in str(task["ansible.builtin.assert"].get("success_msg", ""))


def read(role: str, file: str) -> list[dict[str, Any]]:
    """The judging tasks of a role's file."""
    page = paths.roles() / role / "tasks" / f"{file}.yml"
    return list(judging(yaml.safe_load(page.read_text(encoding="utf-8"))))


def of_all_roles() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The judging tasks of every role, by role and file."""
    found = {}
    for page in sorted(paths.roles().glob("*/tasks/*.yml")):
        role, file = page.parents[1].name, page.stem
        tasks = read(role, file)
        if tasks:
            found[role, file] = tasks
    return found


def test_every_judging_task_of_a_proof_says_what_came() -> None:
    silent = []
    for (role, file), tasks in of_all_roles().items():
        silent += [f"{role}/{file}: {task['name']}" for task in tasks if without_words(task)]
    assert silent == []
    assert of_all_roles().keys() == CAME.keys(), "each of them is run by this test"


@pytest.mark.parametrize("words", [{}, {"success_msg": "All is well."}, {"success_msg": ""}])
def test_one_that_says_nothing_of_what_came_is_found(words: dict[str, str]) -> None:
    task = {"name": "verify | Check it", "ansible.builtin.assert": {"that": "true", **words}}
    assert [without_words(found) for found in judging([{"block": [task]}])] == [True]


def variables(role: str, file: str, differs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What is registered where all is as it should be, but for what differs, beside the role's own variables."""
    own = {"role_name": role, "role_path": str(paths.roles() / role)}
    return own | KNOWN[role] | (SEVERAL if file == "verify_models" else {}) | dict(differs or {})


def unconditional(role: str, file: str) -> list[dict[str, Any]]:
    """The judging tasks of a role's file, which judge whatever else is the case."""
    return [{key: value for key, value in task.items() if key != "when"} for task in read(role, file)]


def told(folder: Path, role: str, file: str) -> list[str]:
    """What the judging tasks of a file said, task by task."""
    said = "came.results | default([came]) | map(attribute='msg') | join('\n')"
    tasks: list[dict[str, Any]] = []
    for task in unconditional(role, file):
        note = {"told": f"{{{{ told | default([]) + [{said}] }}}}"}
        tasks += [{**task, "register": "came"}, {"set_fact": note}]
    answers: list[str] = run_cases(ROOT, folder, role, {"case": variables(role, file)}, tasks)["case"]["told"]
    return answers


@pytest.mark.parametrize(("role", "file"), CAME)
def test_the_words_of_the_answers_are_told(tmp_path: Path, role: str, file: str) -> None:
    said = told(tmp_path, role, file)
    assert len(said) == len(read(role, file))
    assert all(words.strip() for words in said), said
    together = "\n".join(said)
    assert [words for words in CAME[role, file] if words not in together] == [], together


@pytest.mark.parametrize("case", POOR)
def test_what_is_not_as_it_should_be_is_told_as_before(tmp_path: Path, case: str) -> None:
    role, file, differs = POOR[case]
    judges = rescued(*unconditional(role, file))
    facts = run_cases(ROOT, tmp_path, role, {case: variables(role, file, differs)}, [judges])[case]
    assert facts.get("said", "").startswith("Unable"), facts.get("said")


@pytest.mark.parametrize(("role", "file", "bare"), NO_ROLE_SAYS_NOTHING, ids=lambda one: str(one)[:12])
def test_where_nothing_came_it_holds_all_the_same(tmp_path: Path, role: str, file: str, bare: dict[str, Any]) -> None:
    tasks: list[dict[str, Any]] = [{"set_fact": {"ended": []}}]
    for task in unconditional(role, file):
        ended = {"set_fact": {"ended": "{{ ended + [ansible_failed_result.msg | string] }}"}}
        tasks.append({"block": [task], "rescue": [ended]})
    words = run_cases(ROOT, tmp_path, role, {"case": variables(role, file, bare)}, tasks)["case"]["ended"]
    assert [said for said in words if "success_msg" in said] == []
