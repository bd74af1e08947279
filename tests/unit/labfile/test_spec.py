"""``parse_spec`` where no file is needed: frozen values, paths as text, options (its errors are in ``test_loader``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pydantic
import pytest

from provisioner.catalog import Catalog, Option, ServiceType, load_catalog
from provisioner.labfile.options import options_model
from provisioner.labfile.parsing import parse_spec
from provisioner.values.refusals import did_you_mean, path_text
from provisioner.values.state import Problem, Secret
from tests.lab_files import spec_of


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(Path(__file__).parent.parent / "fixtures" / "catalog")


def lab(**options: Any) -> dict[str, Any]:
    services = {"llama_cpp": {"model": "tiny", **options}}
    return {"name": "lab", "hosts": {"box": {"incus": "local"}}, "containers": {"llama": {"services": services}}}


def test_a_spec_is_frozen(catalog: Catalog) -> None:
    spec = spec_of(lab(), catalog)
    with pytest.raises(pydantic.ValidationError):
        spec.name = "other"
    with pytest.raises(pydantic.ValidationError):
        spec.containers["llama"].cpu = 2


def test_options_are_exactly_what_was_written(catalog: Catalog) -> None:
    written = {"kv_cache": {"k": "q8_0"}, "extra_arguments": ["--verbose"], "temperature": 1}
    service = spec_of(lab(**written, expose="lan"), catalog).containers["llama"].services["llama_cpp"]
    assert service.options == {"model": "tiny", **written}
    assert (service.role, service.expose) == ("llama_cpp", "lan")


def test_the_data_is_not_changed(catalog: Catalog) -> None:
    data = lab(api_key="canary", expose="lan")
    parse_spec(data, catalog)
    assert data == lab(api_key="canary", expose="lan")


def test_a_secret_in_clear_is_hidden_and_warned_of(catalog: Catalog) -> None:
    parsed = parse_spec(lab(api_key="canary"), catalog)
    assert parsed.spec is not None
    path = ("containers", "llama", "services", "llama_cpp", "api_key")
    assert [warning.path for warning in parsed.warnings] == [path]
    secret = parsed.spec.containers["llama"].services["llama_cpp"].options["api_key"]
    assert secret == Secret("containers.llama.services.llama_cpp.api_key", "canary")
    assert "canary" not in f"{parsed}{parsed.spec.model_dump()}"


def test_a_refused_part_is_reported_once(catalog: Catalog) -> None:
    parsed = parse_spec(lab() | {"hosts": {"box": {"incus": "lokal"}}}, catalog)
    assert parsed.spec is None
    assert [problem.path for problem in parsed.problems] == [("hosts", "box", "incus")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("containers", "a", "cpu"), "containers.a.cpu"),
        (("aliases", "fast", 0), "aliases.fast[0]"),
        (("a.b", "c d", ""), '"a.b"."c d".""'),
        (("\x1b[31m", "é"), '"\\u001b[31m"."\\u00e9"'),
        (("x" * 100,), '"' + "x" * 63 + '"'),
    ],
)
def test_a_path_prints_in_one_plain_line(path: tuple[str | int, ...], text: str) -> None:
    assert path_text(path) == text


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("contxt", ["context", "port"], 'did you mean "context"?'),
        ("zzz", ["context", "port"], "known: context, port"),
        ("zzz", [f"option{number}" for number in range(13)], ""),
        ("zzz", [], ""),
        ("x" * 1000, ["x" * 999], "known: " + "x" * 999),
    ],
)
def test_a_suggestion_is_close_or_a_short_list(word: str, known: list[str], hint: str) -> None:
    assert did_you_mean(word, known) == hint


def service_with(catalog: Catalog, *options: Option) -> ServiceType:
    fields = {name: getattr(catalog.services["desktop"], name) for name in ServiceType.__slots__}
    return ServiceType(**{**fields, "options": {one.name: one for one in options}, "references": {}})


ACCEPTED: list[tuple[Option, Any]] = [
    (Option("x", "str"), ""),
    (Option("x", "path"), "/srv"),
    (Option("x", "int"), -1),
    (Option("x", "float"), 1),
    (Option("x", "float"), 0.5),
    (Option("x", "bool"), False),
    (Option("x", "raw"), {"a": [1, None]}),
    (Option("x", "dict"), {"a": [1]}),
    (Option("x", "list"), [1, "a"]),
    (Option("x", "list", elements="int"), [1, 2]),
    (Option("x", "list", elements="str", choices=("a", "b")), ["b"]),
    (Option("x", "list", elements="list"), [[1]]),
    (Option("x", "int", choices=(4, 8)), 8),
    (Option("x", "dict", options={"y": Option("y", "int", required=True)}), {"y": 1}),
    (Option("x", "list", elements="dict", options={"y": Option("y")}), [{"y": "a"}, {}]),
    (Option("x", secret=True), Secret("a", None)),
    (Option("x", "list", elements="str", secret=True), [Secret("a", "b")]),
    (Option("model_dump"), "named like a method of pydantic"),
    (Option("copy"), "this one, too"),
]
REFUSED: list[tuple[Option, Any]] = [
    (Option("x", "str"), 1),
    (Option("x", "str"), None),
    (Option("x", "int"), "1"),
    (Option("x", "int"), True),
    (Option("x", "int"), 1.0),
    (Option("x", "float"), float("nan")),
    (Option("x", "bool"), 1),
    (Option("x", "dict"), []),
    (Option("x", "list"), "a"),
    (Option("x", "list", elements="int"), ["1"]),
    (Option("x", "list", elements="str", choices=("a", "b")), ["c"]),
    (Option("x", "int", choices=(4, 8)), 5),
    (Option("x", "dict", options={"y": Option("y", "int", required=True)}), {}),
    (Option("x", "list", elements="dict", options={"y": Option("y")}), [{"z": "a"}]),
    (Option("x", secret=True), "a plain string that nobody hid"),
    (Option("x"), Secret("a", "b")),
]


@pytest.mark.parametrize(("option", "value"), ACCEPTED)
def test_an_option_takes_what_its_role_takes(option: Option, value: Any, catalog: Catalog) -> None:
    service = service_with(catalog, option)
    for model in (options_model(service), options_model(service, [option.name])):
        model.model_validate({option.name: value})


@pytest.mark.parametrize(("option", "value"), REFUSED)
def test_an_option_refuses_what_its_role_refuses(option: Option, value: Any, catalog: Catalog) -> None:
    service = service_with(catalog, option)
    for model in (options_model(service), options_model(service, [option.name])):
        with pytest.raises(pydantic.ValidationError):
            model.model_validate({option.name: value})


def test_a_model_of_what_was_written_knows_what_is_required_and_nothing_else(catalog: Catalog) -> None:
    model = options_model(catalog.services["llama_cpp"], ["port"])
    model.model_validate({"model": "m", "port": 1})
    for wrong in ({"port": 1}, {"model": "m", "port": 1, "context": 1}):
        with pytest.raises(pydantic.ValidationError):
            model.model_validate(wrong)


def test_an_option_that_is_not_finite_says_so(catalog: Catalog) -> None:
    parsed = parse_spec(lab(temperature=float("inf")), catalog)
    path = ("containers", "llama", "services", "llama_cpp", "temperature")
    assert parsed.problems == (Problem(path, "expected a finite number"),)
