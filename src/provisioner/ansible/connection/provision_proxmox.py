# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible connection plugin: tasks run in a Proxmox container, as by ``pct exec``, over Ansible's own ssh plugin.

What is run, and its input, go over stdin, so that neither stands among the arguments of a process on the node. Imports
of ours stand inside functions: an ejected lab brings its own copies (``provisioner.eject.eject``).
"""

from __future__ import annotations

DOCUMENTATION = r"""
    name: provision_proxmox
    short_description: Run tasks in a Proxmox container through pct exec on its node
    description:
      - Runs commands as root in a container of Proxmox VE, by C(pct exec) over ssh to its node. What is run, and its
        input, are no arguments of a process on the node.
      - Every option of C(ansible.builtin.ssh) counts for the way to the node.
      - The package C(provisioner) has to be installed beside ansible-core on the controller.
    author: [provisioner (!UNKNOWN)]
    extends_documentation_fragment:
      - connection_pipelining
    options:
      instance:
          description: Name of the container, for messages.
          default: inventory_hostname
          vars:
              - name: inventory_hostname
              - name: provision_instance
      vmid:
          description: Number of the container.
          type: integer
          vars:
              - name: provision_vmid
      node_ssh:
          description: Where its node is reached, C([USER@]HOST[:PORT]); root, or a user who may run pct.
          vars:
              - name: provision_ssh
      node_ssh_config:
          description: File that ssh reads instead of the user's own configuration.
          vars:
              - name: provision_ssh_config
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.connection import ssh
from ansible.release import __version__

if TYPE_CHECKING:
    from provisioner.hosts.proxmox.ssh import Shell

# The options of ssh count here, too: those of the ansible-core that runs. Who only reads this page has ours alone.
DOCUMENTATION += ssh.DOCUMENTATION.partition("\n    options:\n")[2]


class Connection(ssh.Connection):  # type: ignore[misc]  # ansible-core has no type information
    """One container, as root."""

    transport = "provision_proxmox"
    default_user = "root"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._node: Shell | None = None
        self._refuse_another_version()

    def _refuse_another_version(self) -> None:
        from provisioner.values.one_version import refusal

        refused = refusal(self.transport)
        if refused:
            raise AnsibleError(refused)

    def _connect(self) -> Connection:
        if self._node is None:
            self._node = self._opened()
            self._connected = True
        # Said again for every command: between two items of a loop Ansible sets all of it anew.
        # The name is the one that it compares with become_user when it decides who must own a copied file.
        self._play_context.remote_user = self.default_user
        self._lead_to(self._node)
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run ``cmd`` by a shell; a container or node that cannot be reached is unreachable, not failed.

        A module is run by the container's module server where that is possible.
        """
        from provisioner.inside.module_server.handing import ModuleServer, Notes, hand_over, notes_folder

        del sudoable  # we are root already: nobody asks for a password
        text = to_text(cmd, errors="surrogate_or_strict")
        notes = Notes(notes_folder(constants.DEFAULT_LOCAL_TMP), str(self.get_option("instance")))
        given = hand_over(text, in_data, version=__version__, server=ModuleServer(self._execute, notes))
        return given if given is not None else self._execute(["/bin/sh", "-c", text], in_data or b"")

    def _execute(self, command: Sequence[str], stdin: bytes) -> tuple[int, bytes, bytes]:
        from provisioner.hosts.proxmox.execute import PctCall, not_begun_error
        from provisioner.hosts.proxmox.ssh import Frame, bounded_call
        from provisioner.values import limits
        from provisioner.values.errors import ProvisionError

        shell = self._ours()
        call, frame = PctCall(self._vmid(), command), Frame()
        try:
            shell.open()
            # Ansible's own ssh keeps all that comes: the node takes care that it is not without end.
            argv = bounded_call(call.argv, limits.LONGEST_S, limits.TASK_OUTPUT_BYTES)
            _, out, err = super().exec_command(frame.command(argv), call.head + stdin, sudoable=False)
            outcome = frame.outcome(err)
            code = shell.code(call.argv, outcome)
        except ProvisionError as error:
            raise AnsibleConnectionFailure(str(error)) from error
        if max(len(out), len(outcome.stderr)) >= limits.TASK_OUTPUT_BYTES:
            said = limits.cut_at(limits.TASK_OUTPUT_BYTES)
            raise AnsibleConnectionFailure(f"Unable to run a task in container {self.get_option('instance')}\n{said}")
        own = call.own_stderr(outcome.stderr)
        if own is None:
            what = f"Unable to reach container {self.get_option('instance')}"
            raise AnsibleConnectionFailure(str(not_begun_error(what, outcome.stderr)))
        return code, out, own

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file into the container, streamed; one that did not arrive whole is an error."""
        from provisioner.hosts.proxmox import execute
        from provisioner.values.errors import ProvisionError

        source, name = Path(to_text(in_path)), str(self.get_option("instance"))
        try:
            execute.push_file(self._ours(), self._vmid(), source, to_text(out_path), name=name)
        except (ProvisionError, OSError) as error:
            raise AnsibleError(str(error)) from error

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file out of the container, streamed; one that is missing is an error."""
        from provisioner.hosts.proxmox import execute
        from provisioner.values.errors import ProvisionError

        target, name = Path(to_text(out_path)), str(self.get_option("instance"))
        try:
            execute.pull_file(self._ours(), self._vmid(), to_text(in_path), target, name=name)
        except (ProvisionError, OSError) as error:
            raise AnsibleError(str(error)) from error

    def reset(self) -> None:
        """Forget nothing: each command begins anew, and the connection to the node is no container's own."""

    def close(self) -> None:
        """Forget the node; its connection ends by itself when nobody has used it for a minute."""
        self._node = None
        super().close()

    def _opened(self) -> Shell:
        from provisioner.hosts.proxmox.access import Access
        from provisioner.hosts.proxmox.ssh import Shell

        config = self.get_option("node_ssh_config")
        return Shell(Access("", "", ssh=self.get_option("node_ssh"), ssh_config=Path(config) if config else None))

    def _lead_to(self, shell: Shell) -> None:
        """Give Ansible's own options such values that it uses the connection that we share."""
        import shlex

        from provisioner.values.errors import ProvisionError

        try:
            chosen = {"host": shell.destination.login, "ssh_args": shlex.join(shell.options())}
        except ProvisionError as error:
            raise AnsibleConnectionFailure(str(error)) from error
        for option, value in {**chosen, "port": None, "remote_user": None, "host_key_checking": True}.items():
            self.set_option(option, value)

    def _ours(self) -> Shell:
        self._connect()
        if self._node is None:
            raise AnsibleError("the connection was closed while it was used")
        return self._node

    def _vmid(self) -> int:
        vmid = self.get_option("vmid")
        if vmid is None:
            name = self.get_option("instance")
            raise AnsibleConnectionFailure(
                f"Unable to reach container {name}\nNobody has said its number (provision_vmid)."
            )
        return int(vmid)
