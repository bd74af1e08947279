"""``llama-memory`` of the role's build against llama-server of the same: every architecture that llama.cpp can make.

The heads in ``tests/data/architectures.tar.xz`` are of the small models that the ``test-llama-archs`` of llama.cpp
0.5.0 writes (``-o``), of 122 architectures. Without a device the program tells of the host's memory what the server
tells when it starts, term by term.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import pytest

from provisioner.loads.terms import terms_of
from provisioner.models.gguf import read_header
from provisioner.services.llama_cpp.loads import MISTOLD, PROGRAM, loads_of
from provisioner.serving import confined_program
from provisioner.serving.engine_memory import read_answer
from provisioner.values.address import Address
from tests.checkout import git
from tests.engine_report import newest_build, reported, unpacked
from tests.processes import completed
from tests.unit.services.llama_cpp.servers import resolved, spec_with

HEADS = Path(__file__).parents[1] / "data/architectures.tar.xz"
MIB = 2**20
MEMORY = PROGRAM.rpartition("/")[2]
ARCHITECTURES = 122
WITHIN = 0.03
LEAST, MOSTLY_KNOWN = 0.85, 80
"""The part of the buffers that is added up at least, of models as small as these; and how many are added up at all."""
ONE_HEAD = frozenset({"deepseek2"})
"""Its small model has one head of latent attention, which cards compute without flash attention; real ones have 16."""
ROUNDED = 0.1
"""MiB: the server says two digits of each of its buffers, of which there may be several."""
WHOLE = ("--load-mode", "none")
WORDS = [
    ("--ctx-size", context, "--parallel", parallel, "--cache-type-k", kind, "--cache-type-v", kind)
    for context, parallel, kind in itertools.product(("512", "2048"), ("1", "4"), ("f16", "q8_0"))
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of the role's newest build."""
    build = newest_build()
    if build is None:
        pytest.skip("llama.cpp was not built here yet: `up` of any lab with llama_cpp does it")
    folder = tmp_path_factory.mktemp("engine")
    for name in ("llama-server", MEMORY):
        unpacked(build, folder, name)
    return folder


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Files that begin with the heads and have a hole in the place of their tensors."""
    folder = tmp_path_factory.mktemp("heads")
    with tarfile.open(HEADS) as packed:
        packed.extractall(folder, filter="data")
    files = sorted(folder.glob("*.gguf"))
    for file in files:
        os.truncate(file, 1 << 30)
        tensors = gguf.GGUFReader(file).tensors
        os.truncate(file, max(int(tensor.data_offset + tensor.n_bytes) for tensor in tensors))
    yield files
    for file in files:
        file.unlink()


def asked(programs: Path, device: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    confined = [sys.executable, "-I", confined_program.__file__]
    return completed([*confined, programs / MEMORY, device, *words], timeout_s=60)


def told(programs: Path, head: Path, *words: str) -> dict[str, float] | None:
    """The terms that the program tells of the host's memory in MiB; None where it loads no such thing."""
    done = asked(programs, "-", "--model", head, *words)
    if done.returncode != 0:
        return None
    weights, kept, computing = (int(size) / MIB for size in done.stdout.split()[1:])
    return {"weights": weights, "kept": kept, "computing": computing}


def said(programs: Path, head: Path, *words: str) -> dict[str, float] | None:
    """The same as the server says it when it starts; None where it does not."""
    try:
        real = reported(programs / "llama-server", head, int(words[1]), *words[2:], "--no-warmup", *WHOLE)
    except AssertionError:
        return None
    kept = sum(real.get(name, 0.0) for name in ("cache", "recurrent state", "state"))
    return {"weights": real["weights"], "kept": kept, "computing": real["compute buffers"]}


@pytest.mark.slow
def test_each_architecture_is_told_as_its_server_says_it(programs: Path, heads: list[Path]) -> None:
    assert hold(programs, heads) < len(heads), "of most of them caches can be packed"
    assert len({read_header(head).architecture for head in heads}) == ARCHITECTURES


@pytest.mark.parametrize("place", range(4))
def test_four_others_with_each_commit_are_told_as_their_server_says_it(
    programs: Path, heads: list[Path], place: int, record_property: Callable[[str, object], None]
) -> None:
    commit = git(HEADS.parent, "rev-parse", "HEAD").strip()
    head = heads[(int(commit, 16) + place * len(heads) // 4) % len(heads)]
    record_property("architecture", head.stem)
    assert hold(programs, [head]) in (0, len(WORDS) // 2), head.stem


def hold(programs: Path, heads: list[Path]) -> int:
    """Hold what the program tells against what the server says; how many both of them refuse."""
    wrong: list[str] = []
    refused = 0
    for head, words in itertools.product(heads, WORDS):
        here, real = told(programs, head, *words), said(programs, head, *words)
        if here is None or real is None:
            refused += 1
            if here != real:
                wrong.append(f"{head.stem} {' '.join(words)}: {here}, {real} by its server")
            continue
        is_mistold = read_header(head).architecture in MISTOLD
        for name, size in real.items():
            is_near = abs(here[name] - size) <= max(ROUNDED, WITHIN * size)
            if not is_near and not (is_mistold and name == "computing"):
                wrong.append(f"{head.stem} {' '.join(words)}: {name} {here[name]:.2f}, {size:.2f} by its server")
    assert not wrong, "\n".join(wrong)
    return refused


@pytest.mark.parametrize("packed", ["f16", "q8_0"])
@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize("context", [512, 2048])
def test_what_is_added_up_here_is_what_the_program_says(
    programs: Path, heads: list[Path], context: int, parallel: int, packed: str
) -> None:
    """Of the architectures that are known here: weights, cache and states, and never much less of buffers."""
    cache = {"k": packed, "v": packed}
    options = {"context": context, "parallel": parallel, "kv_cache": cache, "backend": "cuda"}
    wrong: list[str] = []
    known: set[str] = set()
    for head in heads:
        header = read_header(head)
        service = resolved(spec_with(options), {"m": header}).services[Address.of("a", "llama_cpp")]
        engine = loads_of(service, {"m": head.stat().st_size}, 0)
        if engine.unknown or engine.question is None or header.architecture in ONE_HEAD:
            continue
        device, *words = engine.question.arguments["m"]
        done = asked(programs, device, "--model", head, *words)
        if done.returncode != 0:
            continue  # heads that cannot be packed
        known.add(header.architecture)
        weights, kept, computing = (int(size) for size in done.stdout.split()[1:])
        told = {term.name: term.bytes for term in terms_of(engine.loads[0])}
        here = told.get("cache", 0) + told.get("recurrent state", 0)
        if abs(told["weights"] - weights) > WITHIN * weights or abs(here - kept) > max(WITHIN * kept, 4096):
            wrong.append(f"{head.stem}: {told}, the program {weights}, {kept}, {computing}")
        if told["compute buffers"] < LEAST * computing:
            wrong.append(f"{head.stem}: buffers {told['compute buffers']}, the program {computing}")
    assert not wrong, "\n".join(wrong)
    assert len(known) >= MOSTLY_KNOWN


def test_a_device_is_stood_in_for_and_has_all_that_is_not_looked_up(programs: Path, heads: list[Path]) -> None:
    for head in heads:
        done = asked(
            programs, "CUDA0", "--device", "CUDA0", "--model", head, "--gpu-layers", "all", "--ctx-size", "512"
        )
        assert done.returncode == 0, (head.name, done.stderr[-500:])
        assert read_answer(done.stdout)["model"] > 0


def test_it_writes_no_file_and_speaks_to_nobody(programs: Path, heads: list[Path], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.5)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/x.gguf"
        done = asked(programs, "-", "--model", heads[0], "--log-file", tmp_path / "log")
        assert not (tmp_path / "log").exists()
        done = asked(programs, "-", "--model-url", address)
        assert done.returncode != 0
        with pytest.raises(TimeoutError):
            listening.accept()


@pytest.mark.parametrize("size", [0, 64, 4096])
def test_of_half_a_head_it_answers_nothing(programs: Path, heads: list[Path], tmp_path: Path, size: int) -> None:
    half = tmp_path / "half.gguf"
    half.write_bytes(heads[0].read_bytes()[:size])
    done = asked(programs, "-", "--model", half)
    assert done.returncode != 0
    assert "model " not in done.stdout
