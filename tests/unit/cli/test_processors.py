"""What a plan says of an engine that is built for the processor of its host."""

from __future__ import annotations

import pytest

from provisioner.services.llama_cpp.builds import BASELINE_FLAGS
from tests.unit.cli.conftest import World

WIDE = BASELINE_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fpu"}
OLD = BASELINE_FLAGS - {"avx2", "bmi2", "fma"}


@pytest.mark.usefixtures("lab")
def test_a_host_that_comes_to_another_processor_gets_another_build_and_is_told_why(world: World) -> None:
    world.host.processor_flags = WIDE
    assert "made for a processor with avx512bw, avx512cd, avx512dq, avx512f, avx512vl" in world.command("plan").out
    assert world.command("up", "--yes").code == 0
    assert world.command("plan", "--detailed-exitcode").code == 0
    world.host.processor_flags = OLD
    answer = world.command("plan", "--detailed-exitcode")
    assert answer.code == 2
    assert "not on host box yet; made for a processor without avx2, bmi2, fma" in answer.out
    assert "the host's processor is another one" in answer.out
    world.host.processor_flags = BASELINE_FLAGS
    assert "made for" not in world.command("plan").out
    assert world.command("up", "--yes").code == 0
    assert world.command("plan", "--detailed-exitcode").code == 0


@pytest.mark.usefixtures("lab")
def test_a_host_that_tells_what_was_guessed_before_keeps_what_it_has_built(up: World) -> None:
    up.host.processor_flags = BASELINE_FLAGS | {"fpu"}
    assert up.command("plan", "--detailed-exitcode").code == 0
