"""The schema's ``$id`` and version: the same in every place, and a change of either is noticed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from provisioner.catalog import load_catalog
from provisioner.cli.app import run
from provisioner.labfile import SCHEMA_ID, SCHEMA_VERSION
from provisioner.labfile.schema import file_schema
from provisioner.labfile.starter import STARTER, STARTER_OF_A_MODEL, write_schema
from tests import documented

PUBLISHED = "https://json.schemastore.org/provision-homelab-1.json"
"""Others may have written it down: who changes it here has changed the version of the format for a reason."""
MODELINE = "# yaml-language-server: $schema=.provision/homelab.schema.json\n"
FIXTURE = Path(__file__).parent.parent / "fixtures" / "catalog"


def test_the_name_is_the_published_one_and_ends_with_the_version() -> None:
    assert SCHEMA_ID == PUBLISHED
    assert SCHEMA_ID.endswith(f"-{SCHEMA_VERSION}.json")


def test_the_services_that_are_known_do_not_change_it() -> None:
    few, all_of_them = file_schema(load_catalog(FIXTURE)), file_schema(load_catalog())
    assert few != all_of_them
    assert few["$id"] == all_of_them["$id"] == PUBLISHED


def test_it_is_equal_wherever_the_schema_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert run(["schema", "--json"]) == 0
    (streamed,) = [
        line["schema"] for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["type"] == "result"
    ]
    written = json.loads(write_schema(tmp_path / "homelab.yml", load_catalog()).read_text(encoding="utf-8"))
    assert printed["$id"] == PUBLISHED
    assert printed == streamed == written


def test_the_pages_name_no_other() -> None:
    named = [
        (page.name, name)
        for page in documented.PAGES
        for name in re.findall(r"https://json\.schemastore\.org/[\w.-]+", page.read_text(encoding="utf-8"))
    ]
    assert {page for page, _ in named} == {"tour.md", "in-an-editor.md"}
    assert {name for _, name in named} == {PUBLISHED}


def test_the_modeline_of_the_page_is_the_one_that_init_writes() -> None:
    (page,) = [one for one in documented.PAGES if one.name == "in-an-editor.md"]
    assert MODELINE in page.read_text(encoding="utf-8")
    assert STARTER.startswith(MODELINE)
    assert STARTER_OF_A_MODEL.startswith(MODELINE)


def references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [one for inner in value.values() for one in references(inner)]
    return [one for inner in value for one in references(inner)] if isinstance(value, list) else []


def test_nothing_is_fetched_by_that_name() -> None:
    schema = file_schema(load_catalog())
    assert references(schema)
    assert [one for one in references(schema) if not one.startswith("#/$defs/")] == []
    file = {"name": "lab", "containers": {"a": {"gpu": {"nonsense": 1}}}}
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(file))
    assert len(errors) == 1
