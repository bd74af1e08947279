# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: gives an account its password where it has another one; what is stored is a salted hash."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_password
short_description: Give an account its password
description:
  - Compares the password with the hash in the shadow file, by the system's crypt(3); where it fits nothing is changed.
  - Else chpasswd(8) hashes it as the system is set up to, with a salt of its own. The password goes through a pipe.
options:
  name: {type: str, required: true, description: [The account; it must be there.]}
  password: {type: str, required: true, description: [The password in clear.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: install | Give the account its password
  provision_password:
    name: penny
    password: "{{ desktop_password }}"
  no_log: true
"""
RETURN = "# nothing but whether something changed"

import ctypes
import ctypes.util
import hmac
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

SHADOW = Path("/etc/shadow")
FORBIDDEN = "\n\r\0"


def main() -> None:
    """Compare, and set."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "password": {"type": "str", "required": True, "no_log": True},
        },
        supports_check_mode=True,
    )
    name, password = module.params["name"], module.params["password"]
    if not password or set(password) & set(FORBIDDEN):
        module.fail_json(msg=f"Unable to give {name} its password: it is empty, or more than one line.")
    try:
        stored = stored_hash(SHADOW.read_text(encoding="utf-8"), name)
        if stored is None and not module.check_mode:
            module.fail_json(msg=f"Unable to give {name} its password: there is no such account.")
        changed = stored is None or not fits(password, stored)
        if changed and not module.check_mode:
            subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or ""
        module.fail_json(msg=f"Unable to give {name} its password: {error} {said.strip()}")
    module.exit_json(changed=changed)


def stored_hash(shadow: str, name: str) -> str | None:
    """The account's hash, None where there is no account."""
    for line in shadow.splitlines():
        account, _, rest = line.partition(":")
        if account == name:
            return rest.partition(":")[0]
    return None


def fits(password: str, stored: str) -> bool:
    """Whether the hash is that password's; one that is locked or empty is nobody's."""
    if not stored.startswith("$"):
        return False
    library = ctypes.CDLL(ctypes.util.find_library("crypt") or "libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    computed = library.crypt(password.encode(), stored.encode())
    return computed is not None and hmac.compare_digest(computed, stored.encode())


if __name__ == "__main__":
    main()
