"""What role ``llama_cpp`` compiles for which processor, and what it says on one that lacks something."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from provisioner.values import paths

ROLE = paths.roles() / "llama_cpp"
VARIABLES: dict[str, Any] = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
BASELINE = ["avx", "avx2", "bmi2", "f16c", "fma", "sse4_2"]
WIDE = ["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"]
CPUINFO = "processor\t: 0\nflags\t\t: fpu avx avx2\nvmx flags\t: fma\n\nprocessor\t: 1\nflags\t\t: fpu\n"
HASWELL = {"SSE42", "AVX", "AVX2", "BMI2", "F16C", "FMA"}
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing said": ({}, HASWELL),
    "a Xeon": (
        {"llama_cpp_processor_flags": [*BASELINE, *WIDE, "avx512_vnni", "amx_int8", "amx_tile"]},
        HASWELL | {"AVX512", "AVX512_VNNI", "AMX_INT8", "AMX_TILE"},
    ),
    "half of AVX-512": ({"llama_cpp_processor_flags": ["avx512f", "avx512cd", "avx512_vnni"]}, set()),
    "an old one": ({"llama_cpp_processor_flags": ["avx", "sse4_2"]}, {"SSE42", "AVX"}),
    "one that can do nothing": ({"llama_cpp_processor_flags": []}, set()),
}
SAYS = "fpu avx sse4_2 avx_vnni f16c"
PLAYS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "its machine": (SAYS, {}, ["avx", "avx_vnni", "f16c", "sse4_2"]),
    "its machine alone": (SAYS, {"llama_cpp_instructions": "common"}, ["avx", "avx_vnni", "f16c", "sse4_2"]),
    "told otherwise": (SAYS, {"llama_cpp_instructions": "baseline"}, ["avx", "f16c", "sse4_2"]),
    "with a card": (SAYS, {"llama_cpp_backend": "cuda"}, ["avx", "f16c", "sse4_2"]),
    "with a card and experts": (
        SAYS,
        {"llama_cpp_backend": "cuda", "llama_cpp_n_cpu_moe": 2},
        ["avx", "avx_vnni", "f16c", "sse4_2"],
    ),
    "it does not tell": ("", {}, BASELINE),
}
"""What the machine of a play says, the role's options, and for what it is built there."""


def variable(name: str, told: dict[str, Any]) -> Any:
    """What Ansible makes of a variable of the role, where these are told."""
    loader = DataLoader()
    variables: dict[str, Any] = {}
    for page in ("defaults/main.yml", "vars/main.yml", "vars/build.yml"):
        variables |= loader.load_from_file(str(ROLE / page), trusted_as_template=True)
    return Templar(loader, variables=variables | told).template(trust_as_template(f"{{{{ {name} }}}}"))


@pytest.mark.parametrize("play", PLAYS)
def test_a_play_builds_for_the_machine_in_which_it_builds(play: str) -> None:
    says, options, expected = PLAYS[play]
    options = {"__llama_cpp_machine": {"stdout": says}, **options}
    assert variable("__llama_cpp_flags", options) == expected
    in_a_lab = {**options, "llama_cpp_artifact_path": "/opt/llama_cpp/0123456789abcdef"}
    assert variable("__llama_cpp_flags", in_a_lab) == BASELINE


@pytest.mark.parametrize("case", CASES)
def test_the_build_is_told_what_the_processor_can_do(case: str) -> None:
    options, expected = CASES[case]
    definitions = dict(one.split("=") for one in variable("__llama_cpp_processor_definitions", options))
    assert set(definitions.values()) <= {"True", "False"}
    assert {one.removeprefix("GGML_") for one, value in definitions.items() if value == "True"} == expected


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
