"""What role ``llama_cpp`` works out by its own tasks and variables: parts of prompts, the list of models, who it is."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.plays import rendered, run_cases, run_tasks

ROOT = Path(__file__).resolve().parents[3]
CARD = {"llama_cpp_backend": "cuda", "llama_cpp_mmproj": "/srv/models/eye/eye.gguf"}
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "text on the CPU": ({}, 2048, 512),
    "images on the CPU": ({"llama_cpp_mmproj": "/srv/models/eye/eye.gguf"}, 2048, 512),
    "images on a card of 8 GiB": ({**CARD, "__llama_cpp_devices": {"memory_mib": 8192}}, 128, 64),
    "images on a card of 12 GiB": ({**CARD, "__llama_cpp_devices": {"memory_mib": 12287}}, 2048, 512),
    "images on a card of unknown size": ({**CARD, "__llama_cpp_devices": {"memory_mib": 0}}, 2048, 512),
    "text on a card of 8 GiB": ({"llama_cpp_backend": "cuda", "__llama_cpp_devices": {"memory_mib": 8192}}, 2048, 512),
    "no layer on the card": (
        {**CARD, "llama_cpp_gpu_layers": 0, "__llama_cpp_devices": {"memory_mib": 8192}},
        2048,
        512,
    ),
    "a small batch": ({"llama_cpp_batch": 256}, 256, 256),
    "a large part": ({"llama_cpp_ubatch": 4096}, 4096, 4096),
    "written on a small card": ({**CARD, "llama_cpp_batch": 512, "__llama_cpp_devices": {"memory_mib": 4096}}, 512, 64),
}


def test_sizes_follow_the_card_and_what_is_written(tmp_path: Path) -> None:
    cases = {name: variables for name, (variables, _, _) in CASES.items()}
    sizes = {"sizes": "{{ [__llama_cpp_batch | int, __llama_cpp_ubatch | int] }}"}
    facts = run_cases(ROOT, tmp_path, "llama_cpp", cases, [{"set_fact": sizes}])
    assert {name: found["sizes"] for name, found in facts.items()} == {
        name: [batch, ubatch] for name, (_, batch, ubatch) in CASES.items()
    }


SMALL = {"alias": "small", "path": "/srv/models/small/small.gguf", "context": 512}
LARGE = {"alias": "org/large-2.5_Q4", "path": "/srv/models/large/large model.gguf"}


def test_each_model_gets_a_section_with_its_own_context(tmp_path: Path) -> None:
    options = {"models": [SMALL, LARGE], "context": 1024}
    mounted = {
        "/srv/models/small/MANIFEST.sha256": {"sha256": "0123"},
        "/srv/models/large/MANIFEST.sha256": {"sha256": ""},
    }
    variables = {f"llama_cpp_{key}": value for key, value in options.items()} | {"__llama_cpp_seen": {"paths": mounted}}
    written = {"text": rendered(ROOT / "roles/llama_cpp/templates/models.ini.j2")}
    text = run_tasks(ROOT, tmp_path, [{"set_fact": written, "vars": variables}])["text"]
    lines = [line for line in text.splitlines() if line and not line.startswith(";")]
    assert lines == [
        "version = 1",
        "[small]",
        "model = /srv/models/small/small.gguf",
        "ctx-size = 512",
        "[org/large-2.5_Q4]",
        "model = /srv/models/large/large model.gguf",
        "ctx-size = 1024",
    ]
    mounted_lines = [line.rpartition(": ")[2] for line in text.splitlines() if line.startswith("; Another file")]
    assert mounted_lines == ["0123", "without a manifest"]


ROLE = ROOT / "roles/llama_cpp"
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
HEAD = "llama_cpp_python-0.3.36/.git/modules/vendor/llama.cpp/HEAD"
PINNED = "pypi:llama-cpp-python==0.3.36"
TOLD = {
    "pinned": "LLAMA_BUILD_NUMBER=11312 LLAMA_BUILD_COMMIT=0c1e57098",
    "newer": "LLAMA_BUILD_NUMBER=0 LLAMA_BUILD_COMMIT=0c1e57098",
    "silent": "LLAMA_BUILD_NUMBER=0 LLAMA_BUILD_COMMIT=unknown",
    "git": "LLAMA_BUILD_NUMBER=0 LLAMA_BUILD_COMMIT=abababab" + "a",
    "archive": "LLAMA_BUILD_NUMBER=0 LLAMA_BUILD_COMMIT=unknown",
}


def distribution(folder: Path, files: dict[str, str]) -> None:
    """A source distribution with these files, as it was downloaded."""
    (folder / "download").mkdir(parents=True)
    with tarfile.open(folder / "download/source.tar.gz", "w:gz") as packed:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))


def read_commit(work: str) -> dict[str, Any]:
    """The task that reads the commit, over ``work``."""
    tasks = yaml.safe_load((ROLE / "tasks/build_pypi.yml").read_text(encoding="utf-8"))
    task: dict[str, Any] = next(task for task in tasks if "Read which commit" in task["name"])
    return task | {"vars": {"__llama_cpp_work": work}}


def tell(name: str, source: str) -> dict[str, Any]:
    """Keep what cmake is told."""
    inner = yaml.safe_load((ROLE / "vars/build.yml").read_text(encoding="utf-8"))
    told = {name: "{{ __llama_cpp_identity | join(' ') }}"}
    return {"set_fact": told, "vars": {**inner, "llama_cpp_source": source}}


def steps() -> Iterator[dict[str, Any]]:
    yield tell("archive", "https://example.org/llama.cpp.tar.gz")
    yield tell("git", f"git+https://example.org/llama.cpp@{'ab' * 20}")
    yield read_commit("{{ folder }}/silent")
    yield tell("silent", "pypi:llama-cpp-python==0.3.37")
    yield read_commit("{{ folder }}/pinned")
    yield tell("newer", "pypi:llama-cpp-python==0.3.37")
    yield tell("pinned", PINNED)


def test_it_tells_the_commit_where_the_source_says_one_and_the_number_that_is_known_of_the_default(
    tmp_path: Path,
) -> None:
    distribution(tmp_path / "silent", {"llama_cpp_python-0.3.37/README.md": "nothing"})
    distribution(tmp_path / "pinned", {HEAD: f"{COMMIT}\n"})
    facts = run_tasks(ROOT, tmp_path, steps())
    assert {name: facts[name] for name in TOLD} == TOLD


def test_the_known_number_is_that_of_the_default() -> None:
    numbers = yaml.safe_load((ROLE / "vars/build.yml").read_text(encoding="utf-8"))["__llama_cpp_numbers"]
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    assert list(numbers) == [defaults["llama_cpp_source"]] == [PINNED]
