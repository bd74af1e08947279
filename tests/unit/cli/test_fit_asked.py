"""``fit`` and ``up`` where an engine's own program tells what it takes; stand-ins of ``llama-memory`` answer."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.loads.terms import MIB
from provisioner.reconcile import artifacts
from provisioner.services.llama_cpp.loads import program_of
from provisioner.serving import engine_memory
from provisioner.values import paths
from provisioner.values.state import Artifact
from tests.gguf_bytes import gguf_bytes
from tests.graphics_cards import RTX_3060
from tests.unit.cli.conftest import World

FILE = """\
name: homelab
hosts: { box: { incus: local } }
models: { new: { source: "file:new.gguf" } }
containers:
  llama: { gpu: any, services: { llama_cpp: { model: new, context: 8192, parallel: 2, OPTIONS } } }
"""
ANSWER = "model 600000000 300000000 100000000"
GIB = 2**30


@pytest.fixture
def new(lab: Path) -> Path:
    """The lab's file with a model of an architecture that nobody here knows."""
    keys = {"general.architecture": "brandnew", "brandnew.block_count": 2, "brandnew.context_length": 8192}
    (lab.parent / "new.gguf").write_bytes(gguf_bytes(keys, {"token_embd.weight": (64, 8), "output.weight": (64, 8)}))
    lab.write_text(FILE.replace(", OPTIONS", ""), encoding="utf-8")
    return lab


def programmed(script: str) -> Path:
    """A program that runs these lines of a shell, where a build of the default source would have left its own."""
    options = load_catalog().services["llama_cpp"].options
    file = paths.cache() / "programs" / program_of(options["source"].default, options["source_sha256"].default)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o700)
    return file


def card(world: World, *words: str, memory: str = "2GiB") -> dict[str, Any]:
    """The first card of the answer."""
    (result,) = world.command("fit", "--memory", memory, "--json", *words).of("result")
    return dict(result["cards"][0])


@pytest.mark.usefixtures("new")
def test_what_nobody_knew_is_what_the_engines_own_program_says(world: World) -> None:
    assert world.command("fit", "--memory", "2GiB").code == 3
    programmed(f"echo {ANSWER}")
    assert world.command("fit", "--memory", "2GiB").ended(0) == world.snapshot
    assert card(world)["total"] == 1_000_000_000
    assert world.command("fit", "--memory", "900MiB").code == 4


@pytest.mark.usefixtures("new")
def test_the_largest_context_is_told_of_what_nobody_here_knows(world: World) -> None:
    answers = "echo model 600000000 300000000 0 ;; *) echo model 600000000 150000000 0 ;;"
    programmed(f'case "$*" in *"size 8192 "*) {answers} esac')
    (found,) = card(world, memory="1GiB")["contexts"]
    assert (found["asked"], found["largest"]) == (8192, 12_800)  # 173,741,824 more are 4,744 tokens, in steps of 512


@pytest.mark.usefixtures("new")
def test_what_drafts_is_counted_and_of_images_whichever_is_more(world: World) -> None:
    programmed(f"echo {ANSWER}; echo draft 1 2 3; echo projector 5000 0 0")
    assert card(world)["total"] == 1_000_005_006


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "--gpu-layers all"),
        (", kv_cache: { k: q8_0, v: q4_0 }", "--cache-type-k q8_0 --cache-type-v q4_0"),
        (
            ", extra_arguments: [--spec-type, draft-mtp, --temp, '0.7', -ot, exps=CPU]",
            "--spec-type draft-mtp -ot exps=CPU",
        ),
        (", batch: 4096, ubatch: 1024", "--batch-size 4096 --ubatch-size 1024"),
        (", ubatch: 4096", "--batch-size 4096 --ubatch-size 4096"),
        (", n_cpu_moe: 1", "--n-cpu-moe 1"),
        (", flash_attention: 'off', kv_offload: false", "--flash-attn off --no-kv-offload"),
    ],
)
def test_it_is_asked_with_the_words_that_its_server_is_started_with(
    world: World, new: Path, options: str, words: str
) -> None:
    beginning = f"CUDA0 --model {new.parent}/new.gguf --device CUDA0 --ctx-size"
    programmed(f'case "$* " in *--temp*) exit 1 ;; "{beginning} "[84]*" {words} "*) echo {ANSWER} ;; *) exit 2 ;; esac')
    new.write_text(FILE.replace(", OPTIONS", options), encoding="utf-8")
    assert card(world)["total"] == 1_000_000_000


def test_it_has_limits_and_nothing_of_the_environment_but_what_counts(world: World, new: Path) -> None:
    options = ', environment: { LLAMA_ARG_SWA_FULL: "1", LLAMA_ARG_TEMP: "1", TZ: UTC }'
    new.write_text(FILE.replace(", OPTIONS", options), encoding="utf-8")
    programmed(f'[ "$LLAMA_ARG_SWA_FULL$LLAMA_ARG_TEMP$TZ$HOME" = 1 ] && echo {ANSWER}')
    assert card(world)["total"] == 1_000_000_000
    program = programmed("ulimit -v; ulimit -t; ulimit -c; ulimit -f; pwd; exec /usr/bin/env")
    told = engine_memory._told(program, ["CUDA0"], {"A": "b"})
    had = told[1].split()
    assert had[:5] == [str(4 * GIB // 1024), "20", "0", "128", "/"]
    assert {"A=b", "LC_ALL=C.UTF-8"} <= set(had[5:]) <= {"A=b", "LC_ALL=C.UTF-8", "PWD=/", "LC_CTYPE=C.UTF-8"}


@pytest.mark.usefixtures("new")
@pytest.mark.parametrize(
    "script",
    [
        "exit 139",
        "exit 1",
        "true",
        "echo model 1 2",
        "echo model 0 5 5",
        f"echo {ANSWER}; echo {ANSWER}",
        f"echo {ANSWER}; echo else 1 2 3",
        "echo model -1 2 3",
        "echo model 9999999999999999 2 3",
        f"echo {ANSWER}; head -c 10000000 /dev/zero",
        f"echo {ANSWER}; exit 3",
        "printf '0.00.1 E first: key not found in model: x.y\\n0.00.2 E then\\n' >&2; exit 1",
    ],
)
def test_whatever_is_odd_is_unknown_and_never_fits(world: World, script: str) -> None:
    programmed(script)
    answer = world.command("fit", "--memory", "100GiB")
    assert answer.code == 3
    assert "its own program does not load what is known of it" in answer.out
    assert ("key not found in model: x.y (exit code 1)" in answer.out) == ("x.y" in script)


@pytest.mark.usefixtures("new")
def test_one_that_hangs_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_memory, "TIMEOUT_S", 0.2)
    programmed("exec sleep 60")
    answer = world.command("fit", "--memory", "100GiB")
    assert answer.code == 3
    assert "no answer within 0.2 s" in answer.out


@pytest.mark.usefixtures("new")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 126", "this machine has nothing to confine it with"),
        ("exit 127", "the kernel of this machine does not start it"),
        (
            'echo "$0: /lib/libc.so.6: version \\`GLIBC_2.99\' not found" >&2; exit 1',
            "it was built on a newer distribution, and needs a newer C library (glibc) than this machine has",
        ),
    ],
)
def test_a_program_that_cannot_run_here_is_as_none_and_the_reason_is_said(world: World, script: str, why: str) -> None:
    before = world.command("fit", "--memory", "2GiB")
    programmed(script)
    after = world.command("fit", "--memory", "2GiB")
    said = f"  guessed: llama/llama_cpp: its own program was not asked, and does not run here: {why}\n"
    assert (after.code, after.out.replace(said, "")) == (before.code, before.out)
    assert said in after.out


def test_it_is_asked_once_of_the_same_files(world: World, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    real = engine_memory._told

    def noted(program: Path, command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
        asked.append(program)
        return real(program, command, variables)

    monkeypatch.setattr(engine_memory, "_told", noted)
    program = programmed(f"echo {ANSWER}")
    for _ in range(2):
        assert card(world)["total"] == 1_000_000_000
    assert asked == [program] * 2, "for the context, and for half of it"
    os.utime(new.parent / "new.gguf", ns=(1, 1))
    assert card(world)["total"] == 1_000_000_000
    programmed("exit 1")
    for _ in range(2):
        assert world.command("fit", "--memory", "2GiB").code == 3
    assert asked == [program] * 5, "what does not load is not tried again, either"


@pytest.mark.usefixtures("new")
@pytest.mark.parametrize(
    "content", ["", "[]", '["a", 1, 2]', '{"a": 1}', "[0, 5, 6]", '[0, "model 0 0 0", ""]', "null"]
)
def test_what_is_damaged_of_the_answers_that_are_kept_fits_nothing(world: World, content: str) -> None:
    program = programmed(f"echo {ANSWER}")
    assert card(world)["total"] == 1_000_000_000
    for note in program.parent.glob("*.json"):
        note.write_text(content, encoding="utf-8")
    assert world.command("fit", "--memory", "2GiB").code in (0, 3)


def test_an_answer_counts_that_cannot_be_kept(world: World, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: Path, _text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine_memory, "replace_text", full)
    programmed(f"echo {ANSWER}")
    assert new.exists()
    assert card(world)["total"] == 1_000_000_000


@pytest.mark.parametrize(
    "options",
    [
        "extra_arguments: [--lora, x.gguf]",
        "extra_arguments: [--context-shift]",
        'extra_arguments: [--image-max-tokens, "16384"]',
        'environment: { GGML_CUDA_FORCE_MMQ: "1" }',
    ],
)
def test_what_the_program_does_not_see_stays_unknown(world: World, new: Path, options: str) -> None:
    programmed(f"echo {ANSWER}")
    new.write_text(FILE.replace("OPTIONS", options), encoding="utf-8")
    assert world.command("fit", "--memory", "100GiB").code == 3
    assert card(world)["total"] == 1_000_000_000


@pytest.mark.parametrize(
    "options",
    ["extra_arguments: [--model-draft, FILE]", "environment: { LLAMA_ARG_SPEC_DRAFT_MODEL: FILE }"],
)
def test_a_file_of_the_container_is_never_looked_for_on_this_machine(world: World, new: Path, options: str) -> None:
    programmed(f"echo {ANSWER}")
    options = options.replace("FILE", str(new.parent / "new.gguf"))
    new.write_text(FILE.replace("OPTIONS", options), encoding="utf-8")
    answer = world.command("fit", "--memory", "100GiB")
    assert answer.code == 3
    assert "; what these name is a file of the container, of which nothing can be read on this machine\n" in answer.out
    assert card(world)["total"] < MIB


def test_more_words_than_the_kernel_takes_are_not_asked(world: World, new: Path) -> None:
    programmed(f"echo {ANSWER}")
    words = f"extra_arguments: [-ot, '{'x' * 140_000}=CPU']"
    new.write_text(FILE.replace("OPTIONS", words), encoding="utf-8")
    assert world.command("fit", "--memory", "100GiB").code == 3


def test_what_free_words_change_is_no_reason_for_advice(world: World, new: Path) -> None:
    programmed(f"echo {ANSWER}")
    new.write_text(FILE.replace("OPTIONS", "extra_arguments: [-ot, exps=CPU]"), encoding="utf-8")
    assert card(world, memory="100MiB")["advice"] == []


def test_up_asks_what_it_has_just_built_before_it_makes_a_container(
    world: World, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host.cards.there = (RTX_3060,)

    def left(artifact: Artifact, _copy: Path) -> None:
        if artifact.role == "llama_cpp":
            programmed(f"echo model {100 * GIB} {MIB} {MIB}")

    monkeypatch.setattr(artifacts, "keep_program", left)
    assert world.command("fit").code == 3
    answer = world.command("up", "--yes")
    assert answer.code == 4, answer.printed
    assert "too much" in answer.printed
    assert not world.host.containers
    assert [name for name in world.host.volumes if "llama-cpp" in name]
    assert world.command("plan").code == 4
    assert new.exists()
