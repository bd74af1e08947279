"""The stacks that we know: whole, judged by the rule, and refused where a page is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from provisioner.values.errors import InputError, ProvisionError
from provisioner.wheels.builds import IMAGES, machine_with
from provisioner.wheels.known import COLUMNS, UNVERIFIED, Stack, known_stack, known_stacks
from provisioner.wheels.rule import DRIVERS, Fit, Part, judge, worst
from tests.case_files import read_cases

CASES = read_cases("wheels/known")

STACKS = known_stacks()
WITH_CARD = {name: stack for name, stack in STACKS.items() if stack.cuda}
FOR_TABBYAPI = {name: stack for name, stack in STACKS.items() if stack.tabbyapi}
UNFIT = {"stack-d"}
"""The row of the post that puts a wheel for torch 2.11 beside torch 2.12: it is there to be refused."""


def test_the_posts_rows_tabbyapi_s_pairs_one_for_exllamav2_and_two_of_vllm_are_known() -> None:
    rows = {f"stack-{one}" for one in "abcd"}
    assert rows | {"tabbyapi-cu12", "tabbyapi-cu13", "exllamav2-cu12", "vllm-cu13", "vllm-cpu"} <= set(STACKS)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_a_stack_is_judged_on_each_of_its_pythons(stack: Stack) -> None:
    found = worst(judge(stack.parts, python, machine_with(python), stack.driver) for python in stack.python)
    assert found is (Fit.UNFIT if stack.id in UNFIT else Fit.FITS)


@pytest.mark.parametrize("stack", WITH_CARD.values(), ids=WITH_CARD)
def test_its_driver_is_the_one_that_its_cuda_needs(stack: Stack) -> None:
    assert stack.driver == DRIVERS[int(stack.cuda.partition(".")[0])]
    (torch,) = [part for part in stack.parts if part.package == "torch"]
    major, minor = stack.cuda.split(".")
    assert {build.cuda for build in torch.builds} == {(int(major), int(minor))}


def test_one_for_the_processor_names_no_driver_and_has_nothing_for_a_card() -> None:
    stack = STACKS["vllm-cpu"]
    assert (stack.cuda, stack.driver) == ("", "")
    assert {build.backend for part in stack.parts for build in part.builds} == {"cpu"}


@pytest.mark.parametrize("name", ["vllm-cu13", "vllm-cpu"])
def test_what_was_read_in_a_wheel_says_what_its_name_does_not(name: str) -> None:
    (vllm,) = STACKS[name].packages["vllm"].builds
    (torch, *_) = STACKS[name].packages["torch"].builds
    assert vllm.torch == torch.version.release[:2]
    by_name = [part for part in STACKS[name].parts if part.package == "torch"]
    by_name += [Part("vllm", tuple(wheel.build for wheel in STACKS[name].packages["vllm"].wheels))]
    assert judge(by_name, "3.13", machine_with("3.13")).fit is Fit.UNKNOWN


@pytest.mark.parametrize("stack", FOR_TABBYAPI.values(), ids=FOR_TABBYAPI)
def test_every_column_is_there_or_has_a_reason(stack: Stack) -> None:
    assert all((column in stack.packages) != bool(stack.missing.get(column)) for column in COLUMNS)


def test_one_hash_belongs_to_one_file() -> None:
    wheels = {wheel for stack in STACKS.values() for one in stack.packages.values() for wheel in one.wheels}
    known = [wheel for wheel in wheels if wheel.sha256 != UNVERIFIED]
    assert len({wheel.sha256 for wheel in known}) == len({wheel.url for wheel in known}) == len(known)


def test_the_unverified_ones_are_named() -> None:
    assert "exllamav3-1.4.2+cu128.torch2.9.0-cp312-cp312-linux_x86_64.whl" in STACKS["tabbyapi-cu12"].unverified
    assert not any("torch-2" in file for file in STACKS["tabbyapi-cu12"].unverified)


def test_another_name_lists_what_there_is() -> None:
    with pytest.raises(InputError, match="tabbyapi-cu11") as caught:
        known_stack("tabbyapi-cu11")
    assert "tabbyapi-cu12" in caught.value.details


@pytest.mark.parametrize("distribution", IMAGES)
def test_a_python_is_on_the_machine_of_its_image(distribution: str) -> None:
    python, machine = IMAGES[distribution]
    assert machine_with(python) == machine
    assert machine_with("3.14") == IMAGES["debian/12"][1]


@pytest.mark.parametrize(
    ("removed", "fault"),
    [
        (("tabbyapi", "missing"), "exllamav2, flash-attn is to be in packages or"),
        (("tabbyapi", "missing", "exllamav3"), ""),
        (("tabbyapi", "missing", "exllamav3", "torch"), ""),
        (("missing", "exllamav3"), "exllamav2, exllamav3, flash-attn is to be in packages or"),
    ],
)
def test_only_one_that_is_for_tabbyapi_or_has_what_that_needs_owes_reasons(
    tmp_path: Path, removed: tuple[str, ...], fault: str
) -> None:
    page = yaml.safe_load((paths.data() / "stacks/tabbyapi-cu12.yml").read_text(encoding="utf-8"))
    for key in removed:
        page.pop(key, None)
        page["packages"].pop(key, None)
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(page))
    if not fault:
        assert set(known_stacks(tmp_path)) == {"mine"}
        return
    with pytest.raises(ProvisionError) as caught:
        known_stacks(tmp_path)
    assert fault in caught.value.details


def changed(page: dict[str, Any], way: str) -> None:
    """Make the page wrong in that way."""
    first = page["packages"]["torch"]["wheels"][0]
    ways: dict[str, Any] = {
        "a word that is no key": lambda: page.update(pyhton=["3.12"]),
        "no reason for a column": lambda: page["missing"].pop("flash-attn"),
        "a column that is also missing": lambda: page["missing"].update(torch="gone"),
        "a column that there is not": lambda: page["missing"].update(xformers="gone"),
        "another version than the file's": lambda: page["packages"]["torch"].update(version="2.9.1+cu128"),
        "a hash that is none": lambda: first.update(sha256="abc"),
        "an address without a wheel": lambda: first.update(url="https://example.org/torch.tar.gz"),
        "an address anybody can change": lambda: first.update(url=first["url"].replace("https", "http")),
        "no wheel": lambda: page["packages"]["torch"].update(wheels=[]),
        "a Python that is none": lambda: page.update(python=["three"]),
        "a commit that is none": lambda: page["tabbyapi"].update(commit="main"),
        "no torch": lambda: page["packages"].pop("torch"),
        "a CUDA without a driver": lambda: page.pop("driver"),
        "a driver without a CUDA": lambda: page.pop("cuda"),
        "a wheel for CUDA without a card": lambda: (page.pop("cuda"), page.pop("driver")),
        "what the name says": lambda: page["packages"]["torch"].update(built_for={"cuda": "12.8"}),
        "what nobody has read": lambda: page["packages"]["exllamav3"].update(built_for={"torch": "2.9"}),
        "a torch that is none": lambda: page["packages"]["triton"].update(built_for={"torch": "new"}),
    }
    ways[way]()


@pytest.mark.parametrize("way", CASES["a page that is wrong is refused by its name"])
def test_a_page_that_is_wrong_is_refused_by_its_name(tmp_path: Path, way: str) -> None:
    page = yaml.safe_load((paths.data() / "stacks/tabbyapi-cu12.yml").read_text(encoding="utf-8"))
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(page))
    assert set(known_stacks(tmp_path)) == {"mine"}
    changed(page, way)
    (tmp_path / "mine.yml").write_text(yaml.safe_dump(page))
    with pytest.raises(ProvisionError, match="stack mine") as caught:
        known_stacks(tmp_path)
    assert caught.value.details


@pytest.mark.parametrize("text", ["just words", "- a list", "a: [", ""])
def test_a_page_that_is_no_page_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yml").write_text(text)
    with pytest.raises(ProvisionError, match="stack mine"):
        known_stacks(tmp_path)
