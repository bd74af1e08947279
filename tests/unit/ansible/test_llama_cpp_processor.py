"""What role ``llama_cpp`` compiles for which processor, and what it says on one that lacks something."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from tests.plays import run_tasks

ROOT = Path(__file__).resolve().parents[3]
ROLE = paths.roles() / "llama_cpp"
VARIABLES: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
BASELINE = ["avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"]
WIDE = ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]
CPUINFO = "processor\t: 0\nflags\t\t: fpu avx avx2\nvmx flags\t: fma\n\nprocessor\t: 1\nflags\t\t: fpu\n"
HASWELL = {"SSE42", "AVX", "AVX2", "BMI2", "F16C", "FMA"}
OF_MACHINE = {"__llama_cpp_machine": {"stdout": " fpu avx avx_vnni sse4_2"}}
CASES: dict[str, tuple[dict[str, Any], set[str] | None]] = {
    "nothing said": ({}, HASWELL),
    "a Xeon": (
        {"llama_cpp_processor_flags": [*BASELINE, *WIDE, "avx512_vnni", "amx_int8", "amx_tile"]},
        HASWELL | {"AVX512", "AVX512_VNNI", "AMX_INT8", "AMX_TILE"},
    ),
    "half of AVX-512": ({"llama_cpp_processor_flags": ["avx512f", "avx512cd", "avx512_vnni"]}, set()),
    "an old one": ({"llama_cpp_processor_flags": ["avx", "sse4_2"]}, {"SSE42", "AVX"}),
    "all of them": ({"llama_cpp_processor_flags": []}, None),
    "all of them, in a play": ({"llama_cpp_instructions": "variants"}, None),
    "the machine of a play": (OF_MACHINE, {"SSE42", "AVX", "AVX_VNNI"}),
    "the same with a card": ({**OF_MACHINE, "llama_cpp_backend": "cuda"}, HASWELL),
    "the same, told otherwise": ({**OF_MACHINE, "llama_cpp_instructions": "baseline"}, HASWELL),
    "a machine that was not looked at": ({"__llama_cpp_machine": {"skipped": True}}, HASWELL),
}


def told(name: str, variables: dict[str, Any]) -> dict[str, Any]:
    """The task that writes down what cmake is told."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    inner = yaml.safe_load((ROLE / "vars/build.yml").read_text(encoding="utf-8"))
    content = "{{ __llama_cpp_processor_definitions | to_json }}"
    copy = {"content": content, "dest": f"{{{{ folder }}}}/{name}.told", "mode": "0600"}
    return {"copy": copy, "vars": {**defaults, **VARIABLES, **inner, **variables}}


def test_the_build_is_told_what_the_processor_can_do(tmp_path: Path) -> None:
    run_tasks(ROOT, tmp_path, [told(name, variables) for name, (variables, _) in CASES.items()])
    for name, (_, expected) in CASES.items():
        definitions = dict(one.split("=") for one in json.loads((tmp_path / f"{name}.told").read_text("utf-8")))
        if expected is None:
            assert definitions == {"BUILD_SHARED_LIBS": "ON", "GGML_BACKEND_DL": "ON", "GGML_CPU_ALL_VARIANTS": "ON"}
        else:
            assert definitions.pop("BUILD_SHARED_LIBS") == "OFF"
            assert set(definitions.values()) <= {"True", "False"}
            assert {one.removeprefix("GGML_") for one, value in definitions.items() if value == "True"} == expected, (
                name
            )


def fits(cpuinfo: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """The check that the unit makes before the server starts, of a machine whose kernel says that."""
    script = VARIABLES["__llama_cpp_fits"].replace("/proc/cpuinfo", shlex.quote(str(cpuinfo)))
    return subprocess.run(
        ["sh", "-c", script, "llama-server", *flags], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize(
    ("cpuinfo", "flags", "lacks"),
    [
        (CPUINFO, ["avx", "avx2"], ""),
        (CPUINFO, ["avx", "avx512f", "fma"], "avx512f fma"),
        (CPUINFO.replace("avx2", "avx2x"), ["avx2"], "avx2"),
        ("processor\t: 0\nFeatures\t: fp asimd\n", ["avx"], ""),
    ],
)
def test_what_an_older_processor_lacks_is_named_before_the_server_starts(
    tmp_path: Path, cpuinfo: str, flags: list[str], lacks: str
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo, encoding="ascii")
    done = fits(tmp_path / "cpuinfo", *flags)
    words = f"llama-server is built for another processor: this one lacks {lacks}. Run: provision up\n"
    assert (done.returncode, done.stderr) == ((1, words) if lacks else (0, ""))


def test_the_unit_asks_before_it_does_anything_else_and_sees_the_processor() -> None:
    unit = (ROLE / "templates/llama-server.service.j2").read_text(encoding="utf-8")
    first = re.search(r"^ExecStartPre=.*", unit, re.MULTILINE)
    assert first is not None
    # Only with all privileges does it see /proc as the container does (ProcSubset=pid hides the rest).
    assert first[0] == (
        "ExecStartPre=+/bin/sh -c {{ word(__llama_cpp_fits) }} llama-server {{ __llama_cpp_flags | join(' ') }}"
    )
