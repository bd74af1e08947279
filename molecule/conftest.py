"""testinfra's ``host`` by our provider: 30 ms a command, where testinfra's own Ansible backend needs a second."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from provisioner.hosts import provider_for


class ContainerBackend(BaseBackend):  # type: ignore[misc]  # testinfra has no type information
    """Runs testinfra's commands as root in one container."""

    NAME = "provision"

    def __init__(self, container: str) -> None:
        super().__init__(container)
        self._container = container
        self._provider = provider_for("localhost", "incus")

    def run(self, command: str, *args: str, **_options: Any) -> CommandResult:
        """Run ``command`` by a shell."""
        text = self.get_command(command, *args)
        found = self._provider.execute(self._container, ["/bin/sh", "-c", text])
        return self.result(found.returncode, self.encode(text), found.stdout, found.stderr)


@pytest.fixture(scope="session", autouse=True)
def changes() -> Iterator[Path]:
    """What Molecule's own runs have changed (see callback `provision_changes`); those of tests are not added."""
    with pytest.MonkeyPatch.context() as patch:
        file = Path(os.environ["PROVISION_CHANGES_FILE"])
        patch.delenv("PROVISION_CHANGES_FILE")
        yield file


@pytest.fixture(scope="module")
def host(_testinfra_host: Host) -> Host:
    """The container that testinfra took from Molecule's inventory."""
    return Host(ContainerBackend(_testinfra_host.backend.host))


@pytest.fixture(scope="session")
def container() -> Callable[[str], Host]:
    """Another container of the scenario, by its name."""
    return lambda name: Host(ContainerBackend(name))
