"""What role ``llama_cpp`` has llama-server tell of itself, by its own tasks and variables."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.plays import run_tasks

ROOT = Path(__file__).resolve().parents[3]
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
