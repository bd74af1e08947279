"""``provision bench --kind quality`` on a real host: a real llama-perplexity, and models of which ever less is left."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engine_series
from benchmarks.engine_series import model_in
from provisioner.models import tiny
from tests.integration.up.measured_lab import brought_up
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "quality"
JUDGE = f"{NAME}-judge"
BITS = {"fine": 8, "coarse": 3}
LOUDER = 8
"""So many times as large are the weights: else all tokens are as probable as each other."""
BLOCK = 32
FILE = lab_text("quality")


def rounded(content: bytes, bits: int) -> bytes:
    """Weights as a quant has them: in blocks with a scale of their own, each one of so many steps."""
    weights, steps = array.array("f", content), 2 ** (bits - 1)
    for start in range(0, len(weights), BLOCK):
        block = range(start, min(start + BLOCK, len(weights)))
        scale = max(abs(weights[place]) for place in block) or 1.0
        for place in block:
            weights[place] = round(weights[place] / scale * steps) / steps * scale
    return weights.tobytes()


def quant_in(folder: Path, name: str, bits: int, change: Callable[[object, str, Any], None]) -> None:
    """A model with the same weights, rounded to so many bits; 0: as they are."""

    def changed(target: object, attribute: str, value: Any) -> None:
        if isinstance(value, property):
            plain = value.fget

            def content(tensor: tiny.Tensor) -> bytes:
                assert plain is not None
                loud = array.array("f", (weight * LOUDER for weight in array.array("f", plain(tensor)))).tobytes()
                return rounded(loud, bits) if bits and len(tensor.shape) > 1 else loud

            value = property(content)
        change(target, attribute, value)

    model_in(folder, changed).rename(folder / f"{name}.gguf")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine_series, "SIZES", {"EMBEDDING": 128, "FEED_FORWARD": 256, "LAYERS": 2, "HEADS": 4})
        for name, bits in {"parent": 0, **BITS}.items():
            quant_in(folder, name, bits, patched.setattr)
    (folder / "text.txt").write_text("The kettle has boiled, and the bread is still warm on the table. " * 400)
    with brought_up(incus_lab, folder, NAME, FILE) as lab:
        yield lab


def judged(lab: Lab, *more: str) -> Any:
    asked = ("bench", JUDGE, "--kind", "quality", "--parent", "parent", "--yes", "--json")
    return lab.provision(*asked, "--text", "text.txt", *more)


def test_the_coarser_a_quant_is_the_more_it_has_lost(lab: Lab) -> None:
    found = judged(lab, "--chunks", "4")
    assert found.code == 0, found.out + found.err
    result = found.result
    fine, coarse = result["quants"]
    assert (fine["model"], coarse["model"]) == ("fine", "coarse")
    assert 0 <= fine["median"] < coarse["median"]
    assert coarse["same_top"] < fine["same_top"] <= 100
    assert fine["mean"] < coarse["mean"]
    again = judged(lab, "--chunks", "4")
    (second,) = [line for line in again.lines if line["type"] == "result"]
    assert [one["median"] for one in second["quants"]] == pytest.approx([fine["median"], coarse["median"]], rel=0.05)


def test_nothing_of_it_is_left_and_the_engine_serves(lab: Lab) -> None:
    left = lab.incus(
        "exec", JUDGE, "--", "sh", "-c", "ls /run/systemd/system /run /var/lib | grep provision-trial || true"
    )
    assert left == ""
    assert lab.ask(JUDGE, 8080, "fine", ENGINE_KEY).status == 200
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_a_text_that_is_too_short_is_told(lab: Lab) -> None:
    (lab.folder / "short.txt").write_text("The kettle has boiled.")
    found = lab.provision("bench", JUDGE, "--kind", "quality", "--parent", "parent", "--yes", "--text", "short.txt")
    assert found.code == 3, found.out + found.err
    assert "tokenizes to only" in found.err
    assert lab.ask(JUDGE, 8080, "coarse", ENGINE_KEY).status == 200


def test_no_secret_was_seen(lab: Lab) -> None:
    assert not lab.arguments_seen
