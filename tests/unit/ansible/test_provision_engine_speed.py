"""How fast the CPU is: read from what llama-bench prints, measured once, and never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules.provision_engine_speed import (
    KEPT,
    Samples,
    UnmeasuredError,
    best_of_rounds,
    keep,
    kept_in,
    key_of,
    measure,
    samples_in,
)
from tests.case_files import read_cases

CASES = read_cases("ansible/provision_engine_speed")

# As llama-bench printed it for the tiny model, without the fields that nobody reads.
SAID: str = CASES["said"]
COUNTS = (32, 16, 2)


def program(folder: Path, script: str) -> str:
    file = folder / "llama-bench"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def test_the_speeds_of_each_run_are_read() -> None:
    assert samples_in(SAID) == Samples((188016.0, 182857.0), (42378.3,), "")


STEADY = Samples((100.0, 98.0, 95.0), (10.0, 9.9, 9.8), "a card")
DISTURBED = Samples((246.5, 20.9, 38.9), (2.2, 6.3, 2.5), "a card")
"""As they were measured while two compilers ran on the same two cores."""


def rounds(*seen: Samples) -> tuple[tuple[dict[str, Any], bool], int]:
    left = list(seen)
    return best_of_rounds(lambda: left.pop(0)), len(seen) - len(left)


def test_what_a_busy_host_disturbs_is_measured_again_and_the_best_counts() -> None:
    assert rounds(STEADY, DISTURBED) == (({"prompt": 100.0, "generated": 10.0, "gpu_info": "a card"}, True), 1)
    assert rounds(DISTURBED, STEADY) == (({"prompt": 246.5, "generated": 10.0, "gpu_info": "a card"}, True), 2)
    assert rounds(*[DISTURBED] * 4) == (({"prompt": 246.5, "generated": 6.3, "gpu_info": "a card"}, False), 3)


def test_a_slow_host_is_not_kept_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.ansible.modules.provision_engine_speed.ENOUGH_S", -1)
    assert rounds(DISTURBED, STEADY)[1] == 1


def test_it_is_run_without_any_device_and_goes_first_when_memory_runs_out(tmp_path: Path) -> None:
    script = f"echo \"$@\" > {tmp_path}/words; cat /proc/$$/oom_score_adj > {tmp_path}/adj; cat <<'END'\n{SAID}END"
    found = measure(program(tmp_path, script), "/srv/m.gguf", COUNTS, {"GGML_VK_VISIBLE_DEVICES": 0})
    assert found.generated == (42378.3,)
    words = (tmp_path / "words").read_text()
    assert words == "-m /srv/m.gguf -p 32 -n 16 -t 2 -r 3 -o json -ngl 0 -dev none -nopo 1\n"
    assert (tmp_path / "adj").read_text() == "1000\n"


@pytest.mark.parametrize(("script", "words"), CASES["a run that gives no figures says why"])
def test_a_run_that_gives_no_figures_says_why(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(UnmeasuredError) as caught:
        measure(program(tmp_path, script), "m", COUNTS, {})
    assert words in str(caught.value)


def test_a_run_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.ansible.modules.provision_engine_speed.TIMEOUT_S", 0.2)
    with pytest.raises(UnmeasuredError, match="had not ended"):
        measure(program(tmp_path, "exec sleep 60"), "m", COUNTS, {})


def test_figures_are_those_of_one_program_model_card_and_count_of_threads(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    bench, model = tmp_path / "bin" / "llama-bench", tmp_path / "m.gguf"
    bench.write_text("1")
    model.write_text("1")

    def key(card: str = "a card 580", counts: tuple[int, int, int] = COUNTS) -> str:
        return key_of(bench, model, card, counts)

    seen = [key(), key("a card 590"), key(counts=(32, 16, 4))]
    model.write_text("another")
    seen.append(key())
    (tmp_path / "MANIFEST.sha256").write_text("abc  bin/llama-bench\n")
    seen.append(key())
    bench.write_text("the manifest stands for it")
    assert key() == seen[-1]
    model.unlink()
    seen.append(key())
    assert len(set(seen)) == len(seen)


def test_figures_are_kept_for_root_alone_and_the_oldest_go(tmp_path: Path) -> None:
    file = tmp_path / "proofs" / "speed.json"
    assert kept_in(file) == {}
    figures: dict[str, Any] = {"prompt": 1.0, "generated": 2.0, "gpu_info": ""}
    keep(file, {str(number): figures for number in range(KEPT + 2)})
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(kept_in(file)) == [str(number) for number in range(2, KEPT + 2)]
    for damaged in ("", "[]", '{"a": 1}', json.dumps({"a": {"prompt": 1}})):
        file.write_text(damaged)
        assert kept_in(file) == {}
