"""Which options roles with a table of checks refuse, as Ansible judges them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.case_files import read_cases
from tests.plays import refusals
from tests.signed_pairs import signed

ROOT = Path(__file__).resolve().parents[3]
SITE = {"chat.home.example": "http://127.0.0.1:9001/health"}
PAIR, WILD = signed("own", None, *SITE), signed("wild", None, "*.home.example")
ONE_OF_THREE = "set either `authority` or `certificate` or `acme_email`"
CERTIFIED: dict[str, dict[str, Any]] = {
    "a pair": {"options": {}, "said": ""},
    "remarks around it": {"options": {"certificate": f"subject=\u00e4\n{PAIR.own}\nend"}, "said": ""},
    "a wildcard": {"options": {"certificate": WILD.own, "certificate_key": WILD.key}, "said": ""},
    "another key": {"options": {"certificate_key": WILD.key}, "said": "Unable to use the certificate that is given"},
    "another name": {
        "options": {"sites": {"a.example": "http://a:1/"}},
        "said": "it is not for a.example, but for chat.home.example",
    },
    "no certificate": {"options": {"certificate": "canary"}, "said": "Unable to use the certificate that is given"},
    "an authority as well": {"options": {"authority": "an-authority-of-its-own"}, "said": ONE_OF_THREE},
    "no key": {"options": {"certificate_key": None}, "said": "`certificate` and `certificate_key` belong together"},
    "neither": {"options": {"certificate": None, "certificate_key": None}, "said": ONE_OF_THREE},
}
"""Cases of a door with a certificate that is given; what is None is not set."""
TABLES: dict[str, dict[str, Any]] = {
    role: table for role, table in read_cases("ansible/refused_options").items() if role != "shared"
} | {
    "door with a certificate": {
        "file": "preflight_options",
        "usual": {"sites": SITE, "certificate": PAIR.own, "certificate_key": PAIR.key},
        "secrets": ["canary", PAIR.key.splitlines()[1]],
        "cases": CERTIFIED,
    }
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Return what a role says to each of its cases, nothing where it takes it."""

    @cache
    def of_table(name: str) -> dict[str, str]:
        table, role = TABLES[name], name.partition(" ")[0]
        given = {case: {**table["usual"], **one["options"]} for case, one in table["cases"].items()}
        cases = {
            case: {option: value for option, value in options.items() if value is not None}
            for case, options in given.items()
        }
        return refusals(ROOT, tmp_path_factory.mktemp(role), role, table["file"], cases)

    return of_table


@pytest.mark.parametrize(("table", "case"), [(name, case) for name, table in TABLES.items() for case in table["cases"]])
def test_a_role_refuses_what_it_cannot_work_with_and_nothing_else(
    told: Callable[[str], dict[str, str]], table: str, case: str
) -> None:
    words = TABLES[table]["cases"][case]["said"]
    said = told(table).get(case, "")
    assert words in said
    assert (case in told(table)) == bool(words), said
    assert not any(secret in said for secret in TABLES[table]["secrets"])
