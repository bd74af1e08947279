"""For which processors llama.cpp is built: as its hosts tell, and as the file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import ModelFile, desired_fleet, problems, resolve
from provisioner.services.llama_cpp.builds import BASELINE_FLAGS, USED_FLAGS
from provisioner.values import paths
from provisioner.values.state import Artifact, Fleet, HostState
from tests.lab_files import spec_of

BASELINE = sorted(BASELINE_FLAGS)
WIDE = {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
XEON = BASELINE_FLAGS | WIDE | {"avx512_vnni", "amx_int8", "amx_tile", "fpu", "vmx"}
ALDER_LAKE = BASELINE_FLAGS | {"avx_vnni", "fpu"}
IVY_BRIDGE = frozenset({"sse4_2", "avx", "f16c", "fpu"})
NOBODY_KNOWS: frozenset[str] = frozenset()
CUDA = {"backend": "cuda", "cuda_architectures": ["86"]}


def fleet_of(hosts: Mapping[str, frozenset[str]], **options: Any) -> Fleet:
    """A lab with a server on each host."""
    containers = {f"on-{name}": {"host": name, "services": {"llama_cpp": {"model": "m", **options}}} for name in hosts}
    file = {
        "name": "lab",
        "hosts": {name: {"incus": "local"} for name in hosts},
        "models": {"m": {"source": "builtin:tiny"}},
        "containers": containers,
    }
    resolved = resolve(spec_of(file), load_catalog())
    assert problems(resolved) == []
    observed = {name: HostState(name, processor_flags=flags) for name, flags in hosts.items()}
    return desired_fleet(resolved, {"m": ModelFile("/m.gguf", "m.gguf", "a" * 64)}, observed)


def builds(fleet: Fleet) -> dict[str, Artifact]:
    """What is built, by hosts."""
    return {one.host: one for one in fleet.artifacts if one.role == "llama_cpp"}


def build(flags: frozenset[str], **options: Any) -> Artifact:
    """What is built on one host."""
    return builds(fleet_of({"box": flags}, **options))["box"]


def flags_of(artifact: Artifact) -> list[str]:
    """What the build is told; the role's default where that is nothing."""
    told: list[str] = artifact.variables.get("llama_cpp_processor_flags", BASELINE)
    return told


@pytest.mark.parametrize(
    ("flags", "expected", "words"),
    [
        (
            XEON,
            sorted(BASELINE_FLAGS | WIDE | {"avx512_vnni", "amx_int8", "amx_tile"}),
            "for a processor with amx_int8, amx_tile, avx512_vnni, avx512bw, avx512cd, avx512dq, avx512f, avx512vl",
        ),
        (ALDER_LAKE, sorted(BASELINE_FLAGS | {"avx_vnni"}), "for a processor with avx_vnni"),
        (BASELINE_FLAGS | {"fpu"}, BASELINE, ""),
        (IVY_BRIDGE, ["avx", "f16c", "sse4_2"], "for a processor without avx2, bmi2, fma"),
        (NOBODY_KNOWS, BASELINE, ""),
    ],
)
def test_a_build_uses_what_the_processor_of_its_host_can_do(
    flags: frozenset[str], expected: list[str], words: str
) -> None:
    made = build(flags)
    assert (flags_of(made), made.made_for) == (expected, words)


def test_another_processor_is_another_build_and_what_ggml_does_not_use_is_none() -> None:
    digests = {
        name: build(flags).digest for name, flags in {"xeon": XEON, "old": IVY_BRIDGE, "none": NOBODY_KNOWS}.items()
    }
    assert len(set(digests.values())) == 3
    assert build(XEON | {"sgx"}).digest == digests["xeon"]
    assert build(BASELINE_FLAGS).digest == digests["none"]


def test_the_service_knows_what_its_program_needs() -> None:
    (container,) = fleet_of({"box": ALDER_LAKE}).instances
    (service,) = [one for one in container.services if one.role == "llama_cpp"]
    assert service.variables["llama_cpp_processor_flags"] == flags_of(build(ALDER_LAKE))
    assert service.variables["llama_cpp_artifact_path"] == build(ALDER_LAKE).mounted_at


def test_hosts_with_different_processors_have_builds_of_their_own() -> None:
    made = builds(fleet_of({"old": IVY_BRIDGE, "new": XEON, "twin": XEON}))
    assert flags_of(made["old"]) != flags_of(made["new"])
    assert made["new"].volume == made["twin"].volume


def test_a_common_build_uses_what_the_processors_of_all_hosts_can_do() -> None:
    made = builds(fleet_of({"a": XEON, "b": ALDER_LAKE | WIDE}, instructions="common"))
    assert flags_of(made["a"]) == sorted(BASELINE_FLAGS | WIDE)
    assert made["a"].digest == made["b"].digest
    with_unknown = builds(fleet_of({"a": XEON, "b": NOBODY_KNOWS}, instructions="common"))
    assert [flags_of(one) for one in with_unknown.values()] == [BASELINE, BASELINE]


@pytest.mark.parametrize(
    ("options", "flags", "expected"),
    [
        ({"instructions": "baseline"}, XEON, BASELINE),
        ({"instructions": "baseline"}, IVY_BRIDGE, ["avx", "f16c", "sse4_2"]),
        (CUDA, XEON, BASELINE),
        (CUDA | {"gpu_layers": "all"}, ALDER_LAKE, BASELINE),
        (CUDA | {"gpu_layers": 20}, ALDER_LAKE, sorted(BASELINE_FLAGS | {"avx_vnni"})),
        (CUDA | {"cpu_moe": True}, ALDER_LAKE, sorted(BASELINE_FLAGS | {"avx_vnni"})),
        (CUDA | {"n_cpu_moe": 4}, ALDER_LAKE, sorted(BASELINE_FLAGS | {"avx_vnni"})),
    ],
)
def test_the_file_may_say_otherwise_and_a_card_that_computes_all_needs_none(
    options: dict[str, Any], flags: frozenset[str], expected: list[str]
) -> None:
    assert flags_of(build(flags, **options)) == expected


def test_the_role_says_the_same_of_what_counts() -> None:
    role = paths.roles() / "llama_cpp"
    variables = yaml.safe_load((role / "vars/main.yml").read_text("utf-8"))
    assert set(variables["__llama_cpp_used_flags"]) == USED_FLAGS
    assert variables["__llama_cpp_baseline_flags"] == BASELINE
    assert load_catalog().services["llama_cpp"].options["processor_flags"].default == BASELINE
    named = (role / "vars/build.yml").read_text("utf-8")
    assert [flag for flag in USED_FLAGS if f"'{flag}'" not in named] == []
