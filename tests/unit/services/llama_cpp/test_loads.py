"""What the sums take for granted of the role stands in the role as well."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from provisioner.loads.engines import SMALL_CARD
from provisioner.loads.terms import MIB
from provisioner.models.header import Header
from provisioner.services.llama_cpp.loads import BATCH, DEVICES, SMALL_BATCH, SMALL_UBATCH, UBATCH, loads_of
from provisioner.values import paths
from provisioner.values.address import Address
from tests.unit.services.llama_cpp.servers import resolved, service_with, spec_with

VARIABLES: dict[str, Any] = yaml.safe_load((paths.roles() / "llama_cpp" / "vars" / "main.yml").read_text("utf-8"))


def ubatch_of_role(written: dict[str, Any], *, is_tight: bool = False) -> tuple[object, object]:
    """The ``batch`` and ``ubatch`` that the role writes with these options."""
    options = {"batch": 0, "ubatch": 0, "context": 4096, "parallel": 1, "embedding": False, "rerank": False, **written}
    variables: dict[str, object] = {f"llama_cpp_{name}": value for name, value in options.items()}
    variables["__llama_cpp_is_tight"] = is_tight
    for name in ("kind", "longest_text", "usual_batch", "usual_ubatch", "batch", "ubatch"):
        text = NativeEnvironment().from_string(VARIABLES[f"__llama_cpp_{name}"])
        variables[f"__llama_cpp_{name}"] = text.render(variables)
    return variables["__llama_cpp_batch"], variables["__llama_cpp_ubatch"]


@pytest.mark.parametrize(
    ("is_tight", "batch", "ubatch"), [(False, BATCH, UBATCH), (True, SMALL_BATCH, SMALL_UBATCH)], ids=["usual", "tight"]
)
def test_defaults_of_batches_are_those_of_the_role(*, is_tight: bool, batch: int, ubatch: int) -> None:
    assert ubatch_of_role({}, is_tight=is_tight) == (batch, ubatch)


@pytest.mark.parametrize("kind", ["embedding", "rerank"])
@pytest.mark.parametrize(
    ("written", "ubatch"),
    [
        ({}, 4096),
        ({"context": 8192, "parallel": 4}, 2048),
        ({"context": 0}, 2048),
        ({"batch": 256}, 256),
        ({"ubatch": 128}, 128),
        ({"context": 512, "ubatch": 1024}, 1024),
    ],
)
def test_a_whole_text_is_computed_at_once_where_one_vector_or_score_is_made_of_it(
    kind: str, written: dict[str, int], ubatch: int
) -> None:
    of_role = ubatch_of_role({**written, kind: True})
    assert of_role[1] == ubatch
    assert isinstance(of_role[0], int)
    assert of_role[0] >= ubatch
    assert ubatch_of({**written, kind: True}, is_tight=False) == ubatch


@pytest.mark.parametrize("is_tight", [False, True], ids=["usual", "tight"])
@pytest.mark.parametrize(
    "written", [{}, {"ubatch": 32}, {"ubatch": 1024}, {"batch": 256}, {"batch": 16}, {"batch": 4096, "ubatch": 4096}]
)
def test_what_is_computed_at_once_is_what_the_role_writes(written: dict[str, int], *, is_tight: bool) -> None:
    assert ubatch_of(written, is_tight=is_tight) == ubatch_of_role(written, is_tight=is_tight)[1]


def test_small_cards_are_those_of_the_role() -> None:
    assert VARIABLES["__llama_cpp_small_card_mib"] * MIB == SMALL_CARD


def ubatch_of(written: dict[str, Any], *, is_tight: bool) -> int:
    """Tokens that the sums take for computed at once."""
    projector = {"mmproj": "eyes"} if is_tight else {}
    return loads_of(service_with({**projector, **written}), {}, SMALL_CARD).loads[0].ubatch


@pytest.mark.parametrize(
    ("options", "device"),
    [
        ({}, "CUDA0"),
        ({"backend": "vulkan"}, "Vulkan0"),
        ({"backend": "cuda", "device": "CUDA1"}, "CUDA1"),
        ({"backend": "cuda", "device": "CUDA0,CUDA1"}, None),
    ],
)
def test_the_program_stands_in_for_the_card_that_the_role_names(options: dict[str, str], device: str | None) -> None:
    question = loads_of(service_with(options), {}, 0).question
    assert (question.arguments["m"][:3] if question else None) == (device and (device, "--device", device))


def test_devices_are_called_as_the_role_calls_them() -> None:
    text = VARIABLES["__llama_cpp_device"]
    named = {
        backend: NativeEnvironment().from_string(text).render(llama_cpp_device="", llama_cpp_backend=backend)
        for backend in DEVICES
    }
    assert named == DEVICES


@pytest.mark.parametrize("kind", ["embedding", "rerank"])
def test_of_vectors_and_scores_the_whole_text_is_asked_for_at_once(kind: str) -> None:
    question = loads_of(service_with({kind: True, "context": 8192, "parallel": 4}), {}, 0).question
    assert question is not None
    words = " ".join(question.arguments["m"])
    assert "--batch-size 2048 --ubatch-size 2048" in words
    assert {"embedding": "--embedding", "rerank": "--reranking"}[kind] in words


def test_of_several_models_each_is_asked_with_its_own_context_and_file() -> None:
    models = {name: {"context": context} for name, context in (("m", 1024), ("n", 2048))}
    service = resolved(spec_with({"models": ["m", "n"], "models_max": 2}, **models)).services[
        Address.of("a", "llama_cpp")
    ]
    question = loads_of(service, {}, 0).question
    assert question is not None
    assert {name: words[4] for name, words in question.arguments.items()} == {"m": "1024", "n": "2048"}
    assert question.files == {"m": {"--model": "m"}, "n": {"--model": "n"}}


def test_an_architecture_of_which_the_program_tells_too_little_is_not_asked() -> None:
    headers = {"m": Header("minimax-01")}
    service = resolved(spec_with({}), headers).services[Address.of("a", "llama_cpp")]
    assert loads_of(service, {}, 0).question is None
