"""Where llama.cpp's sources come from: a commit or an archive, in a real container, and nothing but what was named."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.hosts.incus import IncusProvider
from provisioner.values import paths
from provisioner.values.state import Instance
from tests.integration.role_box import RoleBox
from tests.integration.running_containers import kept_running
from tests.shell_scripts import script

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

MAKE_SOURCES = script("llama_cpp_sources")


@dataclass
class Builder(RoleBox):
    """A container that has sources, and the role's tasks run in it."""

    commit: str = ""
    sums: tuple[str, ...] = ()

    def get(self, kind: str, source: str, sha256: str = "") -> str:
        """Run the tasks that get sources of that kind into an empty folder; what the run says."""
        self.run("rm -rf /var/tmp/llama_cpp && mkdir -p /var/tmp/llama_cpp/source")
        return self.again(kind, source, sha256)

    def again(self, kind: str, source: str, sha256: str = "") -> str:
        """The same, over what is there."""
        variables = {"llama_cpp_source": source, "llama_cpp_source_sha256": sha256}
        tasks: list[Any] = [
            {"name": "Take", "ansible.builtin.include_vars": str(paths.roles() / "llama_cpp/vars/build.yml")},
            {"name": "Check", "ansible.builtin.assert": {"that": f"__llama_cpp_source_kind == '{kind}'"}},
            {"name": "Get", "ansible.builtin.include_role": {"name": "llama_cpp", "tasks_from": f"build_{kind}"}},
        ]
        return self.play({"tasks": tasks}, variables)

    @property
    def got(self) -> str:
        """The file that every tree has."""
        return self.run("cat /var/tmp/llama_cpp/source/CMakeLists.txt").strip()


@pytest.fixture(scope="module")
def builder(provider: IncusProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A running container with a repository of two commits and two archives."""
    with kept_running(
        provider, Instance(f"t{secrets.token_hex(4)}-sources", provider.host, "sources", "debian/12")
    ) as one:
        made = Builder(provider, one.name, tmp_path_factory.mktemp("sources"))
        made.commit, *sums = made.run(MAKE_SOURCES).split()
        made.sums = tuple(sums)
        yield made


def test_the_named_commit_is_taken_and_no_later_one(builder: Builder) -> None:
    source = f"git+file:///srv/tree@{builder.commit}"
    said = builder.get("git", source)
    assert said.endswith("rc=0"), said
    assert builder.got == "first"
    assert "changed=0 " in builder.again("git", source)


def test_a_commit_that_is_not_there_is_refused(builder: Builder) -> None:
    said = builder.get("git", f"git+file:///srv/tree@{'ab' * 20}")
    assert said.endswith("rc=2")
    assert "ab" * 20 in said
    assert builder.run("ls /var/tmp/llama_cpp/source") == ""


@pytest.mark.parametrize(("kind", "index"), [("tar.gz", 0), ("zip", 1)])
def test_an_archive_is_unpacked_without_its_outer_folder(builder: Builder, kind: str, index: int) -> None:
    source = f"file:///srv/tree.{kind}"
    said = builder.get("archive", source, builder.sums[index])
    assert said.endswith("rc=0"), said
    assert builder.got == "packed"
    assert "changed=0 " in builder.again("archive", source, builder.sums[index])


def test_another_archive_than_was_named_is_refused(builder: Builder) -> None:
    said = builder.get("archive", "file:///srv/tree.tar.gz", builder.sums[1])
    assert said.endswith("rc=2")
    assert "checksum" in said
    assert builder.run("ls /var/tmp/llama_cpp/source") == ""
