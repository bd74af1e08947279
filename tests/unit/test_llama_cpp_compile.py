"""How llama.cpp is compiled: by real CMake, on a project of empty files whose targets have the names of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from provisioner.values import paths
from tests.processes import completed

INCLUDED = paths.roles() / "llama_cpp/files/less_optimised.cmake"
TARGETS = ("cpp-httplib", "llama", "llama-bench-impl", "llama-common", "llama-server-impl", "mtmd", "server-context")

pytestmark = pytest.mark.skipif(
    not shutil.which("cmake") or not shutil.which("ninja"), reason="there is no cmake or no ninja"
)


def named() -> dict[str, list[str]]:
    """The sources that the file names, by target."""
    text = INCLUDED.read_text(encoding="utf-8")
    calls = re.findall(r"compile_together\(([\w-]+) -\w+ TOGETHER \d+([^)]*)\)", text)
    return {target: re.findall(r"\S+\.cpp", words) for target, words in calls}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Each target in a folder of its own, with the sources that the file names and two more."""
    lines = ["cmake_minimum_required(VERSION 3.18)", "project(played CXX)"]
    for target in TARGETS:
        folder = tmp_path / target
        folder.mkdir()
        sources = [*named().get(target, []), "first.cpp", "second.cpp"]
        for source in sources:
            (folder / source).touch()
        (folder / "CMakeLists.txt").write_text(f"add_library({target} STATIC {' '.join(sources)})\n", encoding="utf-8")
        lines.append(f"add_subdirectory({target})")
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def configure(project: Path, known: str) -> subprocess.CompletedProcess[str]:
    """Have CMake configure the project as the role has it configure llama.cpp."""
    return completed(
        [
            *("cmake", "-S", project, "-B", project / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
            *(f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={INCLUDED}", f"-DPROVISION_KNOWN_SOURCE={known}"),
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        ],
        timeout_s=120,
    )


def levels(project: Path) -> dict[str, str]:
    """The level that counts, which is the last one, of each file that is compiled."""
    commands = json.loads((project / "build/compile_commands.json").read_text(encoding="utf-8"))
    return {
        Path(one["file"]).relative_to(project).as_posix(): re.findall(r" -O(\w)", one["command"])[-1]
        for one in commands
    }


def test_what_computes_keeps_its_level_and_the_rest_is_compiled_together(project: Path) -> None:
    done = configure(project, "ON")
    assert done.returncode == 0, done.stderr
    found = levels(project)
    assert found["llama/llama-sampler.cpp"] == "3"
    assert found["mtmd/mtmd-audio.cpp"] == "3"
    assert found["mtmd/clip.cpp"] == "g"
    assert found["cpp-httplib/first.cpp"] == "1"
    together = [file for file in found if "Unity" in file]
    assert {file.split("/CMakeFiles/")[0].removeprefix("build/") for file in together} == set(named())
    assert {found[file] for file in together} == {"1", "g"}
    assert not [file for file in found if file.endswith("first.cpp") and file.split("/")[0] in named()]


def test_of_an_unknown_source_what_computes_is_compiled_as_upstream_does_it(project: Path) -> None:
    done = configure(project, "OFF")
    assert done.returncode == 0, done.stderr
    found = levels(project)
    assert not [file for file in found if "Unity" in file]
    assert {level for file, level in found.items() if file.startswith(("llama/", "mtmd/"))} == {"3"}
    assert {level for file, level in found.items() if not file.startswith(("llama/", "mtmd/"))} == {"1", "g"}


def test_a_source_that_is_no_longer_there_is_an_error(project: Path) -> None:
    lists = project / "llama/CMakeLists.txt"
    lists.write_text(lists.read_text(encoding="utf-8").replace("llama-sampler.cpp", ""), encoding="utf-8")
    (project / "llama/llama-sampler.cpp").unlink()
    done = configure(project, "ON")
    assert done.returncode != 0
    assert "llama-sampler.cpp" in done.stderr


def test_an_unknown_source_may_lack_a_target(project: Path) -> None:
    text = (project / "CMakeLists.txt").read_text(encoding="utf-8")
    (project / "CMakeLists.txt").write_text(text.replace("add_subdirectory(cpp-httplib)", ""), encoding="utf-8")
    assert configure(project, "OFF").returncode == 0
