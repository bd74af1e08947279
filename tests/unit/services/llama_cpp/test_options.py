"""Options of llama.cpp's server against each other, against the model's file, and against what this version can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.lab.opening import Lab, open_lab
from provisioner.lab.rules import model_option_problems, warnings
from provisioner.lab.served import Served
from provisioner.labfile.spec import Spec
from provisioner.models.header import Header
from provisioner.page.clients import entrance_of
from provisioner.values.errors import InputError
from provisioner.values.state import Secret
from tests.gguf_bytes import gguf_bytes, model_bytes
from tests.lab_files import spec_of, wanted_fleet
from tests.unit.services.llama_cpp.servers import resolved, spec_with, told

MODEL = Header("llama", layers=2, context=4096, key_size=128, value_size=128)
NARROW = Header("llama", layers=2, context=4096, key_size=80, value_size=80)
HEADS_OF_TWO_SIZES = Header("deepseek2", layers=2, context=4096, key_size=192, value_size=80)
EXPERTS = Header("llama", layers=2, context=4096, key_size=128, value_size=128, experts=8)
PART = Header("llama", context=4096, key_size=128, value_size=128, parts=3)
EYE = Header("clip")


def problems_of(header: Header | None, eye: Header = EYE, **options: Any) -> list[tuple[str, str]]:
    headers = {"m": header, "eye": eye} if header else {}
    return told(model_option_problems(resolved(spec_with(options), headers)))


def warnings_of(header: Header | None, model: Mapping[str, Any] | None = None, **options: Any) -> list[tuple[str, str]]:
    headers = {"m": header} if header else {}
    return told(warnings(resolved(spec_with(options, m=model or {}), headers)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"context": 0, "threads": 0},
        {"batch": 512, "ubatch": 512},
        {"batch": 256},
        {"kv_cache": {"k": "q8_0", "v": "q8_0"}, "flash_attention": "on"},
        {"kv_cache": {"k": "q8_0"}, "flash_attention": "off"},
        {"kv_cache": {"v": "bf16"}, "flash_attention": "off"},
        {"mmproj": "eye"},
        {"n_cpu_moe": 4},
    ],
)
def test_what_goes_together_is_taken(options: dict[str, Any]) -> None:
    assert problems_of(EXPERTS, **options) == []
    assert problems_of(None, **options) == []
    assert warnings_of(EXPERTS, **options) == []


@pytest.mark.parametrize(
    ("options", "where", "words"),
    [
        ({"batch": 256, "ubatch": 512}, "ubatch", "512 is larger than batch, 256"),
        ({"kv_cache": {"v": "q8_0"}, "flash_attention": "off"}, "kv_cache.v", "need flash attention"),
        ({"cpu_moe": True, "n_cpu_moe": 2}, "n_cpu_moe", "already"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], where: str, words: str) -> None:
    for header in (EXPERTS, None):
        ((path, message),) = problems_of(header, **options)
        assert path == where
        assert words in message


@pytest.mark.parametrize("name", ["q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"])
def test_a_head_that_a_type_of_the_cache_does_not_divide_is_refused(name: str) -> None:
    message = f"{name} packs 32 numbers together, the model's heads have 80"
    assert problems_of(NARROW, kv_cache={"k": name, "v": name}) == [("kv_cache.k", message), ("kv_cache.v", message)]
    assert problems_of(HEADS_OF_TWO_SIZES, kv_cache={"k": name, "v": name}) == [("kv_cache.v", message)]
    assert problems_of(MODEL, kv_cache={"k": name, "v": name}) == []


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_a_type_of_single_numbers_takes_every_head(name: str) -> None:
    assert problems_of(NARROW, kv_cache={"k": name, "v": name}) == []


def test_models_and_projectors_stand_in_their_own_places() -> None:
    assert problems_of(EYE) == [("model", "it only turns images into tokens")]
    assert problems_of(MODEL, eye=MODEL, mmproj="eye") == [
        ("mmproj", "it is a model (llama), not the projector of one")
    ]
    assert problems_of(PART) == []
    assert problems_of(replace(MODEL, architecture="eagle3")) == [("model", "it only drafts for another model")]
    assert problems_of(MODEL, eye=replace(EYE, parts=3), mmproj="eye") == [("mmproj", "its file is one of 3 parts")]


def test_keys_of_four_bits_are_warned_of_and_values_are_not() -> None:
    ((where, message),) = warnings_of(MODEL, kv_cache={"k": "q4_0", "v": "q4_0"})
    assert where == "kv_cache.k"
    assert "lose track of code" in message
    assert warnings_of(MODEL, kv_cache={"k": "q8_0", "v": "q4_0"}) == []


@pytest.mark.parametrize(
    ("model", "options", "warned"),
    [
        ({}, {"context": 4096}, False),
        ({}, {"context": 4097}, True),
        ({}, {"context": 8192, "parallel": 2}, False),
        ({}, {"context": 8194, "parallel": 2}, True),
        ({}, {"context": 0}, False),
        ({"context": 8192}, {}, True),
        ({"context": 8192}, {"context": 4096}, False),
    ],
)
def test_more_context_than_was_trained_is_warned_of(model: Any, options: Any, warned: bool) -> None:
    found = warnings_of(MODEL, model, **options)
    assert [where for where, _ in found] == (["context"] if warned else [])
    assert warnings_of(None, model, **options) == []


def test_experts_that_are_not_there_are_warned_of() -> None:
    assert [where for where, _ in warnings_of(MODEL, cpu_moe=True)] == ["cpu_moe"]
    assert [where for where, _ in warnings_of(MODEL, n_cpu_moe=1)] == ["n_cpu_moe"]


@pytest.mark.parametrize(
    ("header", "options", "context"),
    [
        (None, {}, 4096),
        (None, {"context": 9000, "parallel": 2}, 4500),
        (None, {"context": 0}, None),
        (MODEL, {"context": 0, "parallel": 2}, 2048),
        (MODEL, {"context": 131072}, 4096),
        (MODEL, {"context": 2048}, 2048),
    ],
)
def test_clients_are_told_what_one_request_can_fill(header: Any, options: Any, context: int | None) -> None:
    entrance = entrance_of(resolved(spec_with(options), {"m": header} if header else {}))
    assert entrance is not None
    assert entrance.models == {"m": Served(context)}


def test_a_gateways_name_takes_what_all_behind_it_take() -> None:
    engines = {
        "seeing": {"services": {"llama_cpp": {"model": "m", "mmproj": "eye", "context": 8192}}},
        "blind": {"services": {"llama_cpp": {"model": "n", "context": 2048}}},
        "gate": {
            "services": {
                "litellm": {
                    "master_key": Secret("gate", "sk-gate"),
                    "aliases": {
                        "eyes": ["m"],
                        "both": ["m", "n"],
                        "cloud": ["m", "up"],
                        "way": ["both"],
                        "long": {"engines": ["both"], "context_window_fallbacks": ["m"]},
                        "longest": {"engines": ["n"], "timeout": 3, "context_window_fallbacks": ["up"]},
                        "wrong": {"engines": ["m"], "context_window_fallbacks": ["n"]},
                    },
                }
            }
        },
    }
    models = {name: {"source": "builtin:tiny"} for name in ("m", "n", "eye")}
    upstreams = {"up": {"model": "openai/large", "base_url": "http://box/v1"}}
    spec = spec_of({"name": "lab", "models": models, "upstreams": upstreams, "containers": engines})
    entrance = entrance_of(resolved(spec))
    assert entrance is not None
    assert entrance.models == {
        "eyes": Served(8192, vision=True),
        "both": Served(2048),
        "cloud": Served(),
        "way": Served(2048),
        "long": Served(8192),
        "longest": Served(),
        "wrong": Served(8192, vision=True),
    }


SHORT = Header("llama", layers=2, context=1024, key_size=128, value_size=128)


def several(**options: Any) -> Spec:
    """A server of three models, of which the second has a context of its own."""
    return spec_with({"models": ["m", "n", "o"], **options}, n={"context": 2048})


@pytest.mark.parametrize(
    ("headers", "options", "problems"),
    [
        ({"m": MODEL, "n": EXPERTS, "o": SHORT}, {}, []),
        (
            {"m": MODEL, "n": NARROW},
            {"kv_cache": {"k": "q8_0"}},
            [("kv_cache.k", "q8_0 packs 32 numbers together, the heads of n have 80")],
        ),
        ({"m": PART, "o": EYE}, {}, [("models.2", "it only turns images into tokens")]),
        (
            {"eye": EYE},
            {"mmproj": "eye"},
            [("mmproj", "a projector belongs to one model, and this server has several")],
        ),
    ],
)
def test_each_of_several_models_is_looked_at(headers: Any, options: Any, problems: Any) -> None:
    assert told(model_option_problems(resolved(several(**options), headers))) == problems


def test_each_of_several_models_is_warned_of() -> None:
    headers = {"m": MODEL, "n": SHORT, "o": SHORT}
    found = warnings(resolved(several(context=1024), headers))
    message = "a request gets 2048 tokens, the model was trained with 1024, and gets no more"
    assert [(one.path[4:], one.message) for one in found] == [(("models", 1), message)]
    assert found[0].hint == "Give n a context of 1024 or less."


def test_experts_of_one_of_several_models_are_enough() -> None:
    def warned(headers: dict[str, Header]) -> list[str]:
        return [where for where, _ in told(warnings(resolved(several(cpu_moe=True), headers)))]

    assert warned({"m": MODEL, "n": EXPERTS, "o": MODEL}) == []
    assert warned({"m": MODEL, "n": MODEL}) == []
    assert warned({"m": MODEL, "n": MODEL, "o": MODEL}) == ["cpu_moe"]


def test_clients_are_told_of_each_of_several_models() -> None:
    entrance = entrance_of(resolved(several(context=8192, parallel=2), {"o": SHORT}))
    assert entrance is not None
    assert entrance.models == {"m": Served(4096), "n": Served(1024), "o": Served(1024)}


def test_a_gateways_name_takes_what_its_model_of_several_takes() -> None:
    server = several()
    gate = {"litellm": {"master_key": Secret("gate", "sk-gate"), "aliases": {"a": ["n"], "b": ["m", "n"]}}}
    file = {"name": "lab", "containers": {"g": {"services": gate}}}
    spec = server.model_copy(update={"containers": {**server.containers, **spec_of(file).containers}})
    entrance = entrance_of(resolved(spec))
    assert entrance is not None
    assert entrance.models == {"a": Served(2048), "b": Served(2048)}


def opened(folder: Path, model: bytes, service: str) -> Lab:
    (folder / "model.gguf").write_bytes(model)
    (folder / "eye.gguf").write_bytes(gguf_bytes({"general.architecture": "clip"}))
    file = folder / "lab.yml"
    models = "{ m: { source: 'file:model.gguf' }, eye: { source: 'file:eye.gguf' } }"
    file.write_text(f"name: lab\nmodels: {models}\ncontainers:\n  a:\n    services:\n      llama_cpp: {service}\n")
    return open_lab(file)


def test_a_labs_file_is_held_against_its_models_files(tmp_path: Path) -> None:
    lab = opened(tmp_path, model_bytes(attention__key_length=80), "{ model: m, mmproj: eye, context: 8192 }")
    assert [one.path[-1] for one in lab.loaded.warnings] == ["context"]
    mounts = {one.name: one.path for one in wanted_fleet(lab).artifacts}
    assert (mounts["model-m"], mounts["model-eye"]) == ("/srv/models/m", "/srv/models/eye")
    with pytest.raises(InputError, match=r"lab\.yml:6:\d+: .*kv_cache.k: q8_0 packs 32 numbers together"):
        opened(tmp_path, model_bytes(attention__key_length=80), "{ model: m, kv_cache: { k: q8_0 } }")


def test_a_file_that_was_cut_off_is_refused_when_the_lab_is_opened(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"lab\.yml:2:\d+: models.m.source: .* is no usable GGUF file: it ends after 100 b"
    ):
        opened(tmp_path, model_bytes()[:100], "{ model: m }")
