# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: what an Incus daemon has, read over its unix socket; changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_incus_facts
short_description: What an Incus daemon has
description:
  - Asks the Incus whose state lies in a folder which pools, networks, default devices and images it has.
  - Where nothing answers, C(answers) is false and C(reason) says why.
options:
  dir:
    description: Folder of the daemon's state, with its unix socket.
    type: path
    required: true
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: preflight | Look at the Incus that is there
  provision_incus_facts:
    dir: /var/lib/incus
"""

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

TIMEOUT_S = 30
LARGEST = 16 * 2**20
NOTHING: dict[str, Any] = {
    "owned": False,
    "foreign": False,
    "pools": {},
    "networks": {},
    "devices": {},
    "images": [],
}
OWNED_KEY = "user.provisioner.host"


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("incus", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, url: str) -> Any:
    """What the daemon answers to a GET; ``OSError`` when it does not answer or refuses."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", url)
        response = connection.getresponse()
        answer = json.loads(response.read(LARGEST))
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"{url}: {error}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise OSError(f"{url}: {answer.get('error', response.status)}")
    return answer["metadata"]


def ask_for_list(path: str, url: str) -> list[dict[str, Any]]:
    """All things of a kind, each with its properties; an empty list comes as null."""
    return ask(path, f"{url}?recursion=1") or []


def incus_facts(folder: Path) -> dict[str, Any]:
    """Everything that the role decides by; ``OSError`` when nothing answers. ``foreign``: somebody else set it up."""
    path = str(folder / "unix.socket")
    server = ask(path, "/1.0")
    pools = ask_for_list(path, "/1.0/storage-pools")
    networks = ask_for_list(path, "/1.0/networks")
    aliases = ask_for_list(path, "/1.0/images/aliases")
    devices = ask(path, "/1.0/profiles/default")["devices"] or {}
    owned = OWNED_KEY in server["config"]
    return {
        "version": server["environment"]["server_version"],
        "owned": owned,
        "foreign": not owned and bool(pools or devices),
        "pools": {pool["name"]: pool["driver"] for pool in pools},
        "networks": {network["name"]: network["config"] for network in networks if network["managed"]},
        "devices": devices,
        "images": sorted(alias["name"] for alias in aliases),
    }


def main() -> None:
    """Answer the role's question; a daemon that is not there is an answer, not an error."""
    module = AnsibleModule(argument_spec={"dir": {"type": "path", "required": True}}, supports_check_mode=True)
    folder = Path(module.params["dir"])
    try:
        facts = {"answers": True, "reason": "", **incus_facts(folder)}
    except OSError as error:
        facts = {"answers": False, "reason": str(error), **NOTHING}
    module.exit_json(changed=False, **facts)


if __name__ == "__main__":
    main()
