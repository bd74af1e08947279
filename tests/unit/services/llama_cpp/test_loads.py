"""What the sums take for granted of the role stands in the role as well."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from provisioner.catalog import load_catalog
from provisioner.lab import resolve
from provisioner.labfile.parsing import parse_spec
from provisioner.loads.engines import SMALL_CARD
from provisioner.loads.terms import MIB
from provisioner.services.llama_cpp.loads import BATCH, SMALL_BATCH, SMALL_UBATCH, UBATCH, loads_of
from provisioner.values import paths
from provisioner.values.address import Address

VARIABLES: dict[str, Any] = yaml.safe_load((paths.roles() / "llama_cpp" / "vars" / "main.yml").read_text("utf-8"))


def of_role(name: str, **variables: object) -> object:
    """What the expression ``name`` of the role's ``vars/main.yml`` comes to with these variables."""
    return NativeEnvironment().from_string(VARIABLES[name]).render(variables)


@pytest.mark.parametrize(
    ("is_tight", "batch", "ubatch"), [(False, BATCH, UBATCH), (True, SMALL_BATCH, SMALL_UBATCH)], ids=["usual", "tight"]
)
def test_defaults_of_batches_are_those_of_the_role(*, is_tight: bool, batch: int, ubatch: int) -> None:
    variables = {"__llama_cpp_is_tight": is_tight, "llama_cpp_batch": 0, "llama_cpp_ubatch": 0}
    assert of_role("__llama_cpp_batch", **variables) == batch
    assert of_role("__llama_cpp_ubatch", **variables, __llama_cpp_batch=batch) == ubatch


@pytest.mark.parametrize("is_tight", [False, True], ids=["usual", "tight"])
@pytest.mark.parametrize(
    "written", [{}, {"ubatch": 32}, {"ubatch": 1024}, {"batch": 256}, {"batch": 16}, {"batch": 4096, "ubatch": 4096}]
)
def test_what_is_computed_at_once_is_what_the_role_writes(written: dict[str, int], *, is_tight: bool) -> None:
    role = {f"llama_cpp_{name}": written.get(name, 0) for name in ("batch", "ubatch")}
    variables: dict[str, object] = {**role, "__llama_cpp_is_tight": is_tight}
    variables["__llama_cpp_batch"] = of_role("__llama_cpp_batch", **variables)
    assert ubatch_of(written, is_tight=is_tight) == of_role("__llama_cpp_ubatch", **variables)


def test_small_cards_are_those_of_the_role() -> None:
    assert VARIABLES["__llama_cpp_small_card_mib"] * MIB == SMALL_CARD


def ubatch_of(written: dict[str, int], *, is_tight: bool) -> int:
    """Tokens that the sums take for computed at once."""
    projector = {"mmproj": "eyes"} if is_tight else {}
    services = {"llama_cpp": {"model": "m", **projector, **written}}
    models = {"m": {"source": "builtin:tiny"}, "eyes": {"source": "file:/srv/eyes.gguf"}}
    parsed = parse_spec({"name": "lab", "models": models, "containers": {"a": {"services": services}}}, load_catalog())
    assert parsed.spec is not None, parsed.problems
    service = resolve(parsed.spec, load_catalog()).services[Address.of("a", "llama_cpp")]
    return loads_of(service, {}, SMALL_CARD).loads[0].ubatch
