"""The JSON schema: what an editor is told agrees with what the loader accepts and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.labfile.document import parse_document
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.schema import file_schema
from provisioner.labfile.spec import Spec
from provisioner.labfile.starter import STARTER
from provisioner.values.state import Secret
from tests.case_files import read_cases

TABLES = read_cases("schema")

CASES = Path(__file__).parents[2] / "cases" / "loader"


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    schema = file_schema(load_catalog(Path(__file__).parent.parent / "fixtures" / "catalog"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def read(text: str) -> Any:
    """The file as an editor's YAML 1.2 reads it: a secret is its name."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shown(one) for key, one in value.items()}
        if isinstance(value, list):
            return [shown(one) for one in value]
        return value.name if isinstance(value, Secret) else value

    return shown(parse_document(text.encode()).data)


@pytest.mark.parametrize(
    "name", ["design-page", "minimal", "gpu-forms", "sizes", "engine", "merge-key-and-alias", "upstreams"]
)
def test_what_the_loader_reads_is_valid(name: str, validator: jsonschema.Draft7Validator) -> None:
    case = yaml.safe_load((CASES / f"{name}.yml").read_text())
    assert [error.message for error in validator.iter_errors(read(case["file"]))] == []


REFUSED = TABLES["refused"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_loader_refuses_is_marked(name: str, validator: jsonschema.Draft7Validator) -> None:
    case = yaml.safe_load((CASES / f"{name}.yml").read_text())
    assert list(validator.iter_errors(read(case["file"])))


def test_the_starter_is_valid(validator: jsonschema.Draft7Validator) -> None:
    validator.validate(read(STARTER.format(file="homelab.yml")))


def test_an_editor_learns_an_option(validator: jsonschema.Draft7Validator) -> None:
    services = validator.schema["$defs"]["Container"]["properties"]["services"]["properties"]
    options = services["llama_cpp"]["properties"]
    port = {"type": "integer", "minimum": 1, "maximum": 65535, "default": 8080, "description": "TCP port."}
    assert options["port"] == port
    assert (options["temperature"]["maximum"], "minimum" in options["temperature"]) == (2, False)
    assert options["extra_arguments"]["items"] == {"type": "string", "pattern": "^(-.+)$"}
    assert options["kv_cache"]["properties"]["k"]["enum"] == ["f16", "q8_0", "q4_0"]
    assert options["api_key"]["description"].endswith("write `!secret NAME`.")
    assert "listen" not in options
    assert options["expose"]["enum"] == ["host", "lan"]
    assert services["llama_cpp"]["required"] == ["model"]


@pytest.mark.parametrize(("options", "is_valid"), TABLES["an engine gets one model or a list"])
def test_an_engine_gets_one_model_or_a_list(options: dict[str, Any], is_valid: bool) -> None:
    containers = {"a": {"services": {"llama_cpp": options}}}
    models = {name: {"source": "builtin:tiny"} for name in ("m", "n")}
    file = {"name": "lab", "models": models, "containers": containers}
    real = jsonschema.Draft7Validator(file_schema(load_catalog()))
    assert [error.message for error in real.iter_errors(file)] == [] or not is_valid
    assert real.is_valid(file) == is_valid
    parsed = parse_spec(file, load_catalog())
    found = [*parsed.problems, *(problems(resolve(parsed.spec, load_catalog())) if parsed.spec else ())]
    assert (not found) == is_valid, found


def test_it_has_every_key_of_the_file(validator: jsonschema.Draft7Validator) -> None:
    assert validator.schema["properties"].keys() == Spec.model_fields.keys()
    assert "ServiceSpec" not in validator.schema["$defs"]


def test_what_comes_by_itself_is_in_no_schema_and_in_no_file() -> None:
    catalog = load_catalog()
    implied = {role for role, service in catalog.services.items() if service.implied}
    assert "gpu_userspace" in implied
    offered = file_schema(catalog)["$defs"]["Container"]["properties"]["services"]["properties"]
    assert implied.isdisjoint(offered)
    parsed = parse_spec({"name": "lab", "containers": {"a": {"services": {"gpu_userspace": {}}}}}, catalog)
    assert [(one.path, one.message) for one in parsed.problems] == [
        (("containers", "a", "services", "gpu_userspace"), "unknown service")
    ]
    assert "gpu_userspace" not in parsed.problems[0].hint
