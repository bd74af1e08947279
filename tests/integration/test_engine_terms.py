"""``fit``, term by term, against what llama-server says of its own memory: real architectures, a GiB and more each.

The engine is the one that the role builds. On a processor it says the same terms as on a card; what of a model lies on
which is told by its list of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.models.gguf import read_header
from tests.engine_report import foretold, newest_build, reported, unpacked_server
from tests.random_models import MODELS, eye, write

pytestmark = pytest.mark.slow

GIB, MIB = 2**30, 2**20
CONTEXT = 16_384
WITHIN = 0.05
TRIED_PATCHES, MOST_PATCHES = 92**2, 128**2
"""Of the image that the engine reserves room for when it starts, and of the largest that it takes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine of the role's newest build."""
    build = newest_build()
    if build is None:
        pytest.skip("llama.cpp was not built here yet: `up` of any lab with llama_cpp does it")
    return unpacked_server(build, tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module", params=list(MODELS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model, and its projector where it has one; gone afterwards, as it is large."""
    place = tmp_path_factory.mktemp(request.param)
    write(MODELS[request.param](), place / "one.gguf")
    assert (place / "one.gguf").stat().st_size >= 0.99 * GIB
    if request.param == "seeing":
        write(eye(), place / "eye.gguf")
    yield place
    for file in place.glob("*.gguf"):
        file.unlink()


def of_the_processor(folder: Path) -> float:
    """MiB of the embeddings of as many tokens as are computed at once: they are looked up there, whoever computes."""
    values = read_header(folder / "one.gguf").values
    architecture = values["general.architecture"]
    layers = 1 + values.get(f"{architecture}.n_deepstack_layers", 0)
    return float(layers * values[f"{architecture}.embedding_length"] * 512 * 4 / MIB)


@pytest.mark.parametrize("slots", [1, 4])
def test_each_term_is_what_the_engine_says(server: Path, folder: Path, slots: int) -> None:
    told = foretold(folder, CONTEXT, slots)
    options = ["--parallel", str(slots)]
    if (folder / "eye.gguf").exists():
        options += ["--mmproj", str(folder / "eye.gguf")]
    real = reported(server, folder / "one.gguf", CONTEXT, *options)
    header = read_header(folder / "one.gguf")
    assert real["weights"] == pytest.approx(sum(header.tensors.values()) / MIB, rel=0.01)
    kept = 0 if "output.weight" not in header.tensors else header.tensors["token_embd.weight"] / MIB
    assert told["weights"] + kept == pytest.approx(real["weights"], rel=WITHIN)
    assert told["cache"] == pytest.approx(real["cache"], rel=WITHIN)
    assert told.get("recurrent state", 0) == pytest.approx(real.get("recurrent state", 0), rel=WITHIN)
    here = told["compute buffers"] + of_the_processor(folder)
    assert here == pytest.approx(real["compute buffers"], rel=WITHIN)
    if "image buffers" in told:
        of_tried_size = told["image buffers"] * TRIED_PATCHES / MOST_PATCHES
        assert of_tried_size == pytest.approx(real["image buffers"], rel=WITHIN)


def test_types_of_the_cache_are_what_the_engine_says(server: Path, folder: Path) -> None:
    told = foretold(folder, CONTEXT, 1, ", kv_cache: { k: q8_0, v: q4_0 }")
    real = reported(server, folder / "one.gguf", CONTEXT, "--parallel", "1", "-ctk", "q8_0", "-ctv", "q4_0")
    assert told["cache"] == pytest.approx(real["cache"], rel=WITHIN)
