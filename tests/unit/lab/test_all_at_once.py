"""Whatever is wrong with a file is said at once: the form of one part hides nothing of another one."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.lab import problems, resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.remainder import remainder
from tests.case_files import read_case

CASES = sorted((Path(__file__).parents[2] / "cases/resolve/problems").glob("*.yml"))
"""Files whose form is right, each with what the rules say of it."""
FORMS: dict[str, tuple[str, dict[str, Any], int]] = {
    "an unknown service": ("containers", {"zz": {"services": {"kokoroo": {}}}}, 1),
    "no size": ("containers", {"zz": {"memory": "lots"}}, 1),
    "a word as a port": ("containers", {"zz": {"services": {"kokoro": {"port": "x"}}}}, 1),
    "an unknown option and one that is missing": ("containers", {"zz": {"services": {"ollama": {"modles": []}}}}, 2),
    "an unknown key of a model": ("models", {"zz": {"source": "builtin:tiny", "sourec": "x"}}, 1),
    "a source that is none": ("models", {"zz": {"source": "nowhere"}}, 1),
    "a text in the place of a container": ("containers", {"zz": "nothing"}, 1),
}


def said(written: Mapping[str, Any]) -> list[tuple[str, str]]:
    data, catalog = {"name": "lab", **deepcopy(dict(written))}, load_catalog()
    parsed = parse_spec(data, catalog)
    found = list(parsed.problems)
    if parsed.spec is not None:
        found += problems(resolve(parsed.spec, catalog))
    elif left := remainder(data, parsed.problems, catalog):
        found += [one for one in problems(resolve(left.spec, catalog)) if not left.is_about(one)]
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
