# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: looks at several files and folders with one call, where a call for each takes its time."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_paths
short_description: Look at several files and folders
description:
  - Says of each whether it is there, whose it is, its mode, and of a file its checksum. Links are followed.
  - Changes nothing, so it does the same in check mode. For what is small and no secret, as its checksum is told.
options:
  paths: {type: list, elements: path, required: true, description: [Absolute paths.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: preflight | See which program is mounted, and whose the server's folder is
  provision_paths:
    paths: [/opt/llama_cpp/MANIFEST.sha256, /var/lib/llama-server]
"""
RETURN = r"""
paths:
  type: dict
  returned: always
  description: "By path: C(exists), C(owner), C(group), C(mode) in four octal digits, C(sha256), where there are such."
"""

import grp
import hashlib
import pwd
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Say what is there."""
    paths = {"type": "list", "elements": "path", "required": True}
    module = AnsibleModule(argument_spec={"paths": paths}, supports_check_mode=True)
    try:
        found = looked_at(module.params["paths"])
    except OSError as error:
        module.fail_json(msg=f"Unable to look at these paths: {error}")
    module.exit_json(changed=False, paths=found)


def looked_at(paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What is to be said of each path. Raises ``OSError`` for what is there and cannot be read."""
    return {path: _about(Path(path)) for path in paths}


def _about(path: Path) -> dict[str, Any]:
    try:
        seen = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "owner": "", "group": "", "mode": "", "sha256": ""}
    return {
        "exists": True,
        "owner": _name(seen.st_uid, pwd.getpwuid),
        "group": _name(seen.st_gid, grp.getgrgid),
        "mode": f"{stat.S_IMODE(seen.st_mode):04o}",
        "sha256": _sha256(path) if stat.S_ISREG(seen.st_mode) else "",
    }


def _name(number: int, look: Callable[[int], Any]) -> str:
    with suppress(KeyError):
        return str(look(number)[0])
    return str(number)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


if __name__ == "__main__":
    main()
