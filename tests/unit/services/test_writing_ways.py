"""By what results of engines that read folders are told apart: their cache, what else decides, and the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jinja2 import ChainableUndefined, Environment

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.inside.engine_bench import MODEL, noted
from provisioner.lab import Known, resolve
from provisioner.models.folders import header_of
from provisioner.services import knowledge_of
from provisioner.services.base import FolderServing, ResolvedService
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.lab_files import spec_of
from tests.unit.loads.models import QWEN_FOLDER

CATALOG = load_catalog()
CARD = Card("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 3090", memory=24 * 2**30)
KEYS = {"vllm": ("api_key",), "tabbyapi": ("api_key", "admin_key")}
FORMS = {"vllm": "awq", "tabbyapi": "exl3"}
DIGEST = "5a" * 32


def serving(role: str) -> FolderServing:
    """How it would serve a folder."""
    found = knowledge_of(role).folder_serving(FORMS[role], CARD, CARD.memory)
    assert found is not None
    return found


def service_of(role: str, **options: Any) -> ResolvedService:
    """The service of a file with these options."""
    keys = {key: Secret(key, "0123456789abcdef0123456789abcdef") for key in KEYS[role]}
    model = {"source": "dir:/models/qwen", "format": FORMS[role]}
    containers = {"hub": {"gpu": "any", "services": {role: {"model": "qwen", **keys, **options}}}}
    known = Known(headers={"qwen": header_of(json.dumps(QWEN_FOLDER).encode())})
    return resolve(
        spec_of({"name": "lab", "models": {"qwen": model}, "containers": containers}), CATALOG, known
    ).services[Address.of("hub", role)]


@pytest.mark.parametrize("role", sorted(KEYS))
def test_the_cache_is_called_as_it_is_suggested_and_nothing_else_is_told_of_such_a_block(role: str) -> None:
    for cache, options in serving(role).caches:
        assert knowledge_of(role).ways_of_writing(service_of(role, **options)) == {"cache": cache}


@pytest.mark.parametrize(
    ("role", "options", "told"),
    [
        ("vllm", {"stack": "vllm-cpu"}, {"stack": "vllm-cpu"}),
        ("vllm", {"enforce_eager": True}, {"enforce_eager": "True"}),
        ("vllm", {"speculative": "ngram"}, {"speculative": "ngram"}),
        ("vllm", {"cpu_offload": 2}, {"cpu_offload": "2"}),
        ("tabbyapi", {"draft_mode": "ngram"}, {"draft_mode": "ngram"}),
        ("tabbyapi", {"cpu_moe_offload_layers": 4}, {"cpu_moe_offload_layers": "4"}),
    ],
)
def test_what_else_decides_is_told(role: str, options: dict[str, Any], told: dict[str, str]) -> None:
    usual, _ = serving(role).caches[0]
    assert knowledge_of(role).ways_of_writing(service_of(role, **options)) == {"cache": usual, **told}


def test_others_tell_nothing_besides_their_unit() -> None:
    service = service_of("vllm")
    assert knowledge_of("llama_cpp").ways_of_writing(service) == {}


def test_the_unit_that_speaks_names_its_weights() -> None:
    folder = paths.data().parents[2] / "roles/kokoro"
    head, _, _ = (folder / "templates/kokoro.service.j2").read_text(encoding="utf-8").partition("[Service]")
    environment = Environment(undefined=ChainableUndefined)  # noqa: S701  # a unit is no page
    environment.filters |= {"comment": str, "regex_replace": lambda text, *_: text}
    pinned = yaml.safe_load((folder / "defaults/main.yml").read_text(encoding="utf-8"))["kokoro_model_sha256"]
    told: dict[str, Any] = {"kokoro_model_sha256": pinned, "__kokoro_is_beside": True, "__kokoro_patches": []}
    assert noted(environment.from_string(head).render(told), MODEL) == pinned


@pytest.mark.parametrize("role", sorted(KEYS))
def test_the_unit_names_the_model_by_the_list_of_its_files(role: str) -> None:
    folder = paths.data().parents[2] / "roles" / role
    variables = yaml.safe_load((folder / "vars/main.yml").read_text(encoding="utf-8"))
    place = variables[f"__{role}_model_manifest"]
    assert place == f"{{{{ __{role}_folder }}}}/MANIFEST.sha256"
    tasks = yaml.safe_load((folder / "tasks/preflight.yml").read_text(encoding="utf-8"))
    (looked,) = [task for task in tasks if task.get("register") == f"__{role}_mounted"]
    assert looked["provision_paths"]["paths"] == [f"{{{{ __{role}_model_manifest }}}}"]
    (template,) = folder.glob("templates/*.service.j2")
    head, _, _ = template.read_text(encoding="utf-8").partition("[Service]")
    environment = Environment(undefined=ChainableUndefined)  # noqa: S701  # a unit is no page
    for digest, named in ((DIGEST, DIGEST), ("", "")):
        told: dict[str, Any] = {
            f"__{role}_model_manifest": "/m",
            f"__{role}_mounted": {"paths": {"/m": {"sha256": digest}}},
        }
        told |= {f"__{role}_prefix": {"stdout": "/opt/torch_stack"}}
        told |= {f"__{role}_attempts": 3, f"{role}_start_timeout_s": 900}
        unit = environment.from_string(head).render(told)
        assert noted(unit, MODEL) == named
