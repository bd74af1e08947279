"""Whatever is wrong with a file is said at once: the form of one part hides nothing of another one."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.lab.rules import model_option_problems
from provisioner.labfile.parsing import Remainder, parse_spec, remainder
from provisioner.values.declared import Secret
from tests.case_files import read_case

CASES = sorted((Path(__file__).parents[2] / "cases/resolve/problems").glob("*.yml"))
"""Files whose form is right, each with what the rules say of it."""
KEY = "k" * 32
FORMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "an unknown service": ("containers", {"zz": {"services": {"kokoroo": {}}}}, 1),
    "no size": ("containers", {"zz": {"memory": "lots"}}, 1),
    "a word as a port": ("containers", {"zz": {"services": {"kokoro": {"port": "x"}}}}, 1),
    "an unknown option and two missing ones": ("containers", {"zz": {"services": {"ollama": {"modles": []}}}}, 3),
    "an unknown key of a model": ("models", {"zz": {"source": "builtin:tiny", "sourec": "x"}}, 1),
    "a source that is none": ("models", {"zz": {"source": "nowhere"}}, 1),
    "a text in the place of a container": ("containers", {"zz": "nothing"}, 1),
}
MODELS: dict[str, tuple[str, Any]] = {
    "missing": ("", None),
    "not in the file": ("model", "zz"),
    "a number": ("model", 5),
    "a list": ("model", ["a"]),
    "a mapping": ("model", {"source": "builtin:tiny"}),
    "a secret": ("model", Secret("x", None)),
    "a number for several": ("models", 5),
    "a text for several": ("models", "a"),
    "a number among several": ("models", ["a", 5]),
    "not in the file, of several": ("models", ["a", "zz"]),
}
"""What may be wrong with the model of a service: the option that is written, and its value."""
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("llama_cpp", {"port": 9000}, ""),
    ("llama_cpp", {"parallel": 0}, ".parallel"),
    ("llama_cpp", {"kv_cache": {"k": "q9"}}, ".kv_cache.k"),
    ("llama_cpp", {"batch": 4, "ubatch": 8}, ".ubatch"),
    ("llama_cpp", {"expose": "lan"}, ".expose"),
    ("llama_cpp", {"extra_arguments": ["--port", "1"]}, ".extra_arguments.0"),
    ("llama_cpp", {"environment": {"LLAMA_ARG_TOOLS": "1"}}, ".environment.LLAMA_ARG_TOOLS"),
    ("ollama", {"kv_cache_type": "q8_0", "flash_attention": "off"}, ".kv_cache_type"),
    ("ollama", {"max_loaded_models": "x"}, ".max_loaded_models"),
    ("ollama", {"environment": {"OLLAMA_HOST": "::"}}, ".environment.OLLAMA_HOST"),
    ("tabbyapi", {"port": 9000}, ""),
    ("tabbyapi", {"cache_mode": "Q9"}, ".cache_mode"),
    ("tabbyapi", {"draft_mode": "model"}, ".draft_mode"),
    ("tabbyapi", {"max_seq_len": 10000}, ".cache_size"),
    ("vllm", {"port": 9000}, ""),
    ("vllm", {"gpu_memory_utilization": 7}, ".gpu_memory_utilization"),
    ("vllm", {"drain": "soon"}, ".drain"),
    ("vllm", {"max_num_seq": 1}, ".max_num_seq"),
    ("vllm", {"environment": {"VLLM_API_KEY": "x"}}, ".environment.VLLM_API_KEY"),
]
"""Services with one mistake, and where it is said."""


def said(written: Mapping[str, Any]) -> list[tuple[str, str]]:
    data, catalog = {"name": "lab", **deepcopy(dict(written))}, load_catalog()
    parsed = parse_spec(data, catalog)
    found = list(parsed.problems)
    left = Remainder(parsed.spec, frozenset()) if parsed.spec else remainder(data, found, catalog)
    if left is not None:
        lab = resolve(left.spec, catalog)
        found += [one for one in (*problems(lab), *model_option_problems(lab)) if not left.is_about(one)]
    return sorted({(".".join(map(str, one.path)), one.message) for one in found})


@pytest.mark.parametrize("key", [{}, {"api_key": 5}])
def test_a_service_without_its_key_hides_none_of_its_other_mistakes(key: dict[str, Any]) -> None:
    service = {"models": ["a"], "kv_cache_type": "q8_0", "flash_attention": "off", **key}
    models = {"a": {"source": "file:a.gguf"}}
    found = said({"models": models, "containers": {"y": {"services": {"ollama": service}}}})
    assert [path.removeprefix("containers.y.services.ollama.") for path, _ in found] == ["api_key", "kv_cache_type"]


@pytest.mark.parametrize("service", [None, {}, {"models": None}])
def test_of_a_service_of_which_nothing_is_said_its_key_is_what_is_missing(service: Any) -> None:
    found = said({"containers": {"y": {"services": {"ollama": service}}}})
    assert "containers.y.services.ollama.api_key" in [path for path, _ in found]


def beside(written: Mapping[str, Any], kind: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**written, kind: {**written.get(kind, {}), **more}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda file: file.stem)
def test_what_the_form_of_one_part_refuses_hides_no_rule_of_another(case: Path, form: str) -> None:
    written, (kind, more, count) = read_case(case)["file"], FORMS[form]
    alone = said({"containers": {"y": {}}, **beside({}, kind, more)})
    assert len(alone) == count
    assert said(beside(written, kind, more)) == sorted({*said(written), *alone})


def of_engine(role: str, service: Mapping[str, Any]) -> list[str]:
    """Return the places of all that is said of a service with the secrets that it needs, beside one with port 9000."""
    options = load_catalog().services[role].options.values()
    needed = {option.name: KEY + option.name for option in options if option.required and option.secret}
    services = {"kokoro": {"port": 9000}, role: {**needed, **service}}
    file = {"models": {"a": {"source": "builtin:tiny"}}, "containers": {"y": {"services": services}}}
    return [path for path, _ in said(file)]


def pairs() -> list[tuple[str, dict[str, Any], str, str]]:
    pages = load_catalog().services
    return [
        (role, mistake, place, model)
        for role, mistake, place in MISTAKES
        for model, (option, _) in MODELS.items()
        if option in {"", *pages[role].references}
    ]


@pytest.mark.parametrize(("role", "mistake", "place", "model"), pairs())
def test_a_model_that_is_missing_or_none_hides_no_other_mistake_of_its_service(
    role: str, mistake: dict[str, Any], place: str, model: str
) -> None:
    option, value = MODELS[model]
    wrong = {option: value} if option else {}
    alone = of_engine(role, wrong)
    assert len(alone) == 1
    assert of_engine(role, {**wrong, **mistake}) == sorted([*alone, f"containers.y.services.{role}{place}"])


@pytest.mark.parametrize("model", [{}, {"model": 5}])
def test_a_gateway_that_offers_a_model_is_not_blamed_for_the_engine_that_lacks_it(model: dict[str, Any]) -> None:
    engine = {"y": {"services": {"vllm": {"api_key": KEY, **model}}}}
    gateway = {"z": {"services": {"litellm": {"master_key": f"sk-{KEY}", "aliases": {"fast": ["a"], "slow": ["b"]}}}}}
    found = said({"models": {"a": {"source": "builtin:tiny"}}, "containers": engine | gateway})
    assert [path for path, _ in found] == [
        "containers.y.services.vllm.model",
        "containers.z.services.litellm.aliases.slow.0",
    ]
