"""Lines that people read: no sentence glued to a fragment, nothing said twice, and what makes a missing secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.catalog import load_catalog
from provisioner.labfile.loader import load, problem_line
from provisioner.reconcile.text import plan_text
from provisioner.values.errors import InputError, with_hint
from provisioner.values.plan import Change, Plan
from provisioner.values.state import Instance

HOST = '{ proxmox: "https://192.168.1.10:8006", user: root@pam, token: { id: provision, secret: !secret pve1_token } }'


@pytest.mark.parametrize(
    ("hint", "line"),
    [
        ("", "lab.yml:3:5: a.b: no model"),
        ("did you mean m?", "lab.yml:3:5: a.b: no model; did you mean m?"),
        ("Known: m, n", "lab.yml:3:5: a.b: no model. Known: m, n"),
    ],
)
def test_a_hint_that_is_a_sentence_begins_as_one(hint: str, line: str) -> None:
    assert problem_line(Path("lab.yml"), (3, 5), "a.b", "no model", hint) == line
    assert with_hint("no model", hint) == line.partition("a.b: ")[2]


def test_a_container_of_proxmox_has_nesting_among_its_features_and_nowhere_else() -> None:
    one = Instance("desk", "pve1", "lab", "debian/13", settings={"features": ("nesting",)})
    text = plan_text(Plan((Change("create", "desk", None, one, "it is missing"),)))
    assert "features" in text
    assert text.count("nesting") == 1
    elsewhere = Instance("desk", "box", "lab", "debian/13")
    assert "nesting" in plan_text(Plan((Change("create", "desk", None, elsewhere, "it is missing"),)))


def test_a_missing_token_says_what_makes_it(tmp_path: Path) -> None:
    file = tmp_path / "homelab.yml"
    text = (
        f"name: lab\nhosts: {{ pve1: {HOST} }}\nupstreams: {{ x: {{ model: openrouter/a/b, api_key: !secret key }} }}\n"
    )
    file.write_text(f"{text}containers: {{}}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(file, load_catalog(), run_secret_command=False)
    token, key = caught.value.details.splitlines()
    assert token.endswith(
        f"set PROVISION_SECRET_PVE1_TOKEN, or have the token made: provision host prepare {file} pve1"
    )
    assert key.endswith("set PROVISION_SECRET_KEY")
