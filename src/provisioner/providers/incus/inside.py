"""Commands and files in containers: all that a worker of Ansible needs of one Incus, without pylxd.

An ejected lab takes this module and what it imports along (``provisioner.ejected``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provisioner.providers.incus import execute, files
from provisioner.providers.incus.host import IncusHost
from provisioner.values import limits
from provisioner.values.errors import ProviderError
from provisioner.values.state import Execution


class Inside(IncusHost):
    """The verbs that work inside a container."""

    def execute(
        self,
        name: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: dict[str, str] | None = None,
        timeout_s: float = limits.COMMAND_S,
        limit: int = limits.OUTPUT_BYTES,
    ) -> Execution:
        """Run ``command`` as root in the container; one that is not there gives 127, one that hangs is killed."""
        what = f"Unable to run {command[0]} in container {name}"
        with self._worded(what):
            try:
                return execute.run(
                    self.endpoint,
                    name,
                    command,
                    stdin=stdin,
                    environment=environment,
                    timeout_s=timeout_s,
                    limit=limit,
                )
            except execute.ExecutionTimeoutError as error:
                raise ProviderError(what, details=limits.killed_after(timeout_s)) from error
            except execute.OutputLimitError as error:
                raise ProviderError(what, details=limits.cut_at(limit)) from error

    def push(
        self, name: str, source: Path | bytes, path: str, *, mode: int = 0o600, uid: int = 0, gid: int = 0
    ) -> None:
        """Write a file into the container, streamed, and read back its size."""
        with self._worded(f"Unable to copy a file to {path} in container {name}"):
            files.push(self.endpoint, name, source, path, mode=mode, uid=uid, gid=gid)

    def pull(self, name: str, path: str, target: Path) -> None:
        """Copy a file out of the container, streamed; ``target`` appears when it is whole."""
        with self._worded(f"Unable to copy {path} from container {name}"):
            files.pull(self.endpoint, name, path, target)
