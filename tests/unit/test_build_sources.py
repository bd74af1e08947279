"""A build uses nothing that its artifact's digest does not depend on, so that a stale artifact is never taken."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from provisioner import paths
from provisioner.catalog.pages import read_pages

ROLES = sorted(page.parents[1] for page in paths.roles().glob("*/vars/build.yml"))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_build_with_variables_of_its_own_uses_no_others(role: Path) -> None:
    texts = [page.read_text(encoding="utf-8") for page in sorted(role.glob("tasks/build*.yml"))]
    texts.append((role / "vars/build.yml").read_text(encoding="utf-8"))
    used = {name for text in texts for name in re.findall(rf"\b__{role.name}_\w+", text)}
    registered = {name for text in texts for name in re.findall(r"register: (\w+)", text)}
    assert used <= set(yaml.safe_load(texts[-1])) | registered
    assert "ansible.builtin.template" not in "".join(texts)


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("tasks/build.yml", True),
        ("vars/build.yml", True),
        ("files/less_optimised.cmake", True),
        ("vars/main.yml", False),
        ("templates/llama-server.service.j2", False),
        ("tasks/configure.yml", False),
    ],
)
def test_what_a_build_uses_changes_its_digest_and_nothing_else_does(tmp_path: Path, file: str, counts: bool) -> None:
    role = tmp_path / "llama_cpp"
    shutil.copytree(paths.roles() / "llama_cpp", role)
    before = read_pages(role)["source_digest"]
    with (role / file).open("a", encoding="utf-8") as page:
        page.write("# changed\n")
    assert (read_pages(role)["source_digest"] != before) is counts
