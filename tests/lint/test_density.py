"""Code stays loose enough to be read: density has a ceiling, and the list of modules above it only shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.density import LARGE, Density, densities_below, density_of, together

PRODUCT = Path(__file__).resolve().parents[2] / "src/provisioner"
MOST_BRANCHES = 30.7
"""Per 100 lines of functions, over the whole product; lower it when the product is looser than that."""
MOST_COMPREHENSIONS = 4.8
"""Per 100 statements that are no imports, over the whole product; ditto."""
DENSE = 50.0
"""Branches per 100 lines; no module with ``LARGE`` lines of functions or more may have more, but for these."""
DENSE_MODULES: frozenset[str] = frozenset()
"""None is left: add none."""


@pytest.fixture(scope="module")
def densities() -> dict[str, Density]:
    return densities_below(PRODUCT)


@pytest.mark.lint
def test_the_product_as_a_whole_is_not_denser_than_its_ceiling(densities: dict[str, Density]) -> None:
    whole = together(densities.values())
    assert whole.function_lines > 10_000
    assert round(whole.branches_per_100_lines, 1) <= MOST_BRANCHES
    assert round(whole.comprehensions_per_100_statements, 1) <= MOST_COMPREHENSIONS


@pytest.mark.lint
def test_no_module_is_dense_but_those_that_were(densities: dict[str, Density]) -> None:
    large = {name: density for name, density in densities.items() if density.function_lines >= LARGE}
    dense = {name for name, density in large.items() if density.branches_per_100_lines > DENSE}
    assert sorted(dense - DENSE_MODULES) == [], "give intermediate values names, write loops out, split functions"
    assert sorted(DENSE_MODULES - dense) == [], "they are loose now, or gone: strike them from DENSE_MODULES"


def test_every_kind_of_branch_counts_once() -> None:
    source = """\
def all_kinds(numbers, names):
    if numbers and names or not numbers:
        pass
    elif names:
        pass
    for number in numbers:
        while number:
            break
    with open("x"):
        try:
            pass
        except OSError:
            pass
    match numbers:
        case []:
            pass
        case _:
            pass
    return [number if number else 1 for row in numbers for number in row if number if number > 1]
"""
    density = density_of(source)
    assert density.function_lines == 19
    # 2 ifs with 2 further parts, for, while, with, except, 2 cases, a conditional expression, 2 loops, 2 conditions.
    assert density.branches == 15
    assert (density.statements, density.comprehensions) == (16, 1)


def test_methods_count_and_what_is_outside_of_functions_does_not() -> None:
    source = "names = [name for name in () if name]\nclass A:\n    def b(self):\n        return 1 if self else 2\n"
    assert density_of(source) == Density(function_lines=2, branches=1, statements=4, comprehensions=1)
    assert density_of(source).branches_per_100_lines == 50
    assert density_of("") == Density()
    assert together([density_of(source), density_of(source)]).comprehensions_per_100_statements == 25
