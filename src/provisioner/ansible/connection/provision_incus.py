# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible connection plugin: tasks run in an Incus container through its API; no sshd, no ``incus`` command.

A worker is forked per task, so only what this needs is imported: the provider's websockets, never pylxd. Imports of
ours stand inside functions: an ejected lab brings its own copies (``provisioner.eject.eject``).
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_incus
short_description: Run tasks in an Incus container through the daemon's unix socket, or over https
description:
  - Runs commands as root in a container over websockets, with pipelining, and copies files by the same way.
  - The user of the controller must be in the group that owns the socket (incus-admin), or have a client certificate
    that an Incus elsewhere trusts.
  - The package C(provisioner) has to be installed beside ansible-core on the controller.
author: [provisioner (!UNKNOWN)]
options:
  instance:
    description: Name of the container.
    default: inventory_hostname
    vars:
      - name: inventory_hostname
      - name: provision_instance
  endpoint:
    description: The daemon's unix socket, or the https address of one elsewhere.
    default: ""
    vars:
      - name: provision_endpoint
  cert:
    description: File with the client certificate that is shown over https.
    default: ""
    vars:
      - name: provision_cert
  key:
    description: File with the key of that certificate.
    default: ""
    vars:
      - name: provision_key
  fingerprint:
    description: sha256 of the server's certificate; without it an authority of this machine must have signed that.
    default: ""
    vars:
      - name: provision_fingerprint
extends_documentation_fragment:
  - connection_pipelining
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.connection import ConnectionBase
from ansible.release import __version__

if TYPE_CHECKING:
    from provisioner.hosts.incus.inside import Inside


class Connection(ConnectionBase):  # type: ignore[misc]  # ansible-core has no type information
    """One container, as root."""

    transport = "provision_incus"
    has_pipelining = True
    has_tty = False
    default_user = "root"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._provider: Inside | None = None
        self._refuse_another_version()

    def _refuse_another_version(self) -> None:
        from provisioner.values.one_version import refusal

        refused = refusal(self.transport)
        if refused:
            raise AnsibleError(refused)

    def _connect(self) -> Connection:
        if self._provider is None:
            from provisioner.hosts.incus.api import endpoint_in
            from provisioner.hosts.incus.inside import Inside

            # The name that Ansible compares with become_user when it decides who must own a copied file.
            self._play_context.remote_user = self.default_user
            given = {name: self.get_option(name) for name in ("endpoint", "cert", "key", "fingerprint")}
            self._provider = Inside("localhost", endpoint=endpoint_in(given))
            self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run ``cmd`` by a shell; a container that cannot be reached is unreachable, not failed.

        A module is run by the container's module server where that is possible.
        """
        from provisioner.inside.module_server.handing import ModuleServer, Notes, hand_over, notes_folder

        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        text = to_text(cmd, errors="surrogateescape")
        notes = Notes(notes_folder(constants.DEFAULT_LOCAL_TMP), str(self.get_option("instance")))
        given = hand_over(text, in_data, version=__version__, server=ModuleServer(self._execute, notes))
        if given is not None:
            return given
        return self._execute([self._play_context.executable or "/bin/sh", "-c", text], in_data or b"")

    def _execute(self, command: Sequence[str], stdin: bytes) -> tuple[int, bytes, bytes]:
        from provisioner.values import limits
        from provisioner.values.errors import ProvisionError

        try:
            found = self._ours().execute(
                self._name(),
                command,
                stdin=stdin,
                timeout_s=limits.LONGEST_S,
                limit=limits.TASK_OUTPUT_BYTES,
            )
        except ProvisionError as error:
            raise AnsibleConnectionFailure(str(error)) from error
        return found.returncode, found.stdout, found.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file into the container; one that did not arrive whole is an error."""
        from provisioner.values.errors import ProvisionError

        super().put_file(in_path, out_path)
        try:
            self._ours().push(self._name(), Path(to_text(in_path)), to_text(out_path))
        except ProvisionError as error:
            raise AnsibleError(str(error)) from error

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file out of the container; one that is missing is an error."""
        from provisioner.values.errors import ProvisionError

        super().fetch_file(in_path, out_path)
        try:
            self._ours().pull(self._name(), to_text(in_path), Path(to_text(out_path)))
        except ProvisionError as error:
            raise AnsibleError(str(error)) from error

    def reset(self) -> None:
        """Forget nothing: each command has its own connection."""

    def close(self) -> None:
        """Forget the provider."""
        self._provider = None
        self._connected = False

    def _ours(self) -> Inside:
        self._connect()
        if self._provider is None:
            raise AnsibleError("the connection was closed while it was used")
        return self._provider

    def _name(self) -> str:
        return str(self.get_option("instance"))
