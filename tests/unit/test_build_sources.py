"""A build uses nothing that its artifact's digest does not depend on, so that a stale artifact is never taken."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog.pages import read_pages
from provisioner.values import paths
from provisioner.values.errors import ProvisionError

ROLES = sorted(page.parents[1] for page in paths.roles().glob("*/vars/build.yml"))


def pages_of(role: Path) -> dict[str, Any]:
    """The pages of a role that is a service."""
    pages = read_pages(role)
    assert pages is not None
    return pages


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_build_with_variables_of_its_own_uses_no_others(role: Path) -> None:
    texts = [page.read_text(encoding="utf-8") for page in sorted(role.glob("tasks/build*.yml"))]
    texts.append((role / "vars/build.yml").read_text(encoding="utf-8"))
    used = {name for text in texts for name in re.findall(rf"\b__{role.name}_\w+", text)}
    made = {name for text in texts for name in re.findall(r"(?:register|loop_var): (\w+)", text)}
    assert used <= set(yaml.safe_load(texts[-1])) | made
    assert "ansible.builtin.template" not in "".join(texts)


def copied(folder: Path) -> Path:
    """A copy of the role beside those of the roles that it includes."""
    for name in ("cuda_toolkit", "llama_cpp", "switch"):
        shutil.copytree(paths.roles() / name, folder / name)
    return folder / "llama_cpp"


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
    role = copied(tmp_path)
    before = pages_of(role)["source_digest"]
    with (role / file).open("a", encoding="utf-8") as page:
        page.write("# changed\n")
    assert (pages_of(role)["source_digest"] != before) is counts


@pytest.mark.parametrize(("backend", "counts"), [("cpu", False), ("vulkan", False), ("cuda", True)])
def test_a_role_that_the_build_includes_counts_where_it_is_included(tmp_path: Path, backend: str, counts: bool) -> None:
    role = copied(tmp_path)

    def included() -> str | None:
        pages = pages_of(role)
        name = pages["service"]["artifact"]["includes"]["backend"].get(backend)
        digest: str | None = pages["included_digests"].get(name)
        return digest

    before = included()
    with (tmp_path / "cuda_toolkit/vars/wheels.yml").open("a", encoding="utf-8") as page:
        page.write("# changed\n")
    assert (included() != before) is counts


def test_an_included_role_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    role = copied(tmp_path)
    shutil.rmtree(tmp_path / "cuda_toolkit")
    with pytest.raises(ProvisionError, match="includes role cuda_toolkit"):
        read_pages(role)


def test_what_stands_before_a_service_changes_its_stamp_and_not_what_is_built(tmp_path: Path) -> None:
    role = copied(tmp_path)
    before = pages_of(role)
    with (tmp_path / "switch/templates/haproxy.cfg.j2").open("a", encoding="utf-8") as page:
        page.write("# changed\n")
    after = pages_of(role)
    assert after["upkeep"]["digest"] != before["upkeep"]["digest"]
    assert after["source_digest"] == before["source_digest"]
    shutil.rmtree(tmp_path / "switch")
    with pytest.raises(ProvisionError, match="behind: switch, and there is no such role"):
        read_pages(role)
