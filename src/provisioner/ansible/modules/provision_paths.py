# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: looks at several files, folders and packages with one call, where a call for each takes its time."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_paths
short_description: Look at several files, folders and packages
description:
  - Says of each whether it is there, whose it is, its mode, and of a file its checksum. Links are followed.
  - Changes nothing, so it does the same in check mode. For what is small, and no secret where its checksum is told.
options:
  paths: {type: list, elements: path, default: [], description: [Absolute paths.]}
  checksums: {type: bool, default: true, description: [Whether the checksums of files are told.]}
  packages: {type: list, elements: str, default: [], description: [Packages of Debian.]}
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
missing:
  type: list
  returned: always
  description: Those of the packages that are not installed, or not to their end.
"""

import grp
import hashlib
import pwd
import stat
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DPKG_S = 60


def main() -> None:
    """Say what is there."""
    options = {
        "paths": {"type": "list", "elements": "path", "default": []},
        "checksums": {"type": "bool", "default": True},
        "packages": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    wanted = module.params
    try:
        found = looked_at(wanted["paths"], checksums=wanted["checksums"])
        missing = missing_packages(wanted["packages"])
    except (OSError, subprocess.TimeoutExpired) as error:
        module.fail_json(msg=f"Unable to look at these paths and packages: {error}")
    module.exit_json(changed=False, paths=found, missing=missing)


def looked_at(paths: Sequence[str], *, checksums: bool = True) -> dict[str, dict[str, Any]]:
    """Return what is to be said of each path. Raises ``OSError`` for what is there and cannot be read."""
    return {path: _about(Path(path), checksums=checksums) for path in paths}


def missing_packages(names: Sequence[str]) -> list[str]:
    """Return those that dpkg does not call installed; one whose installation was cut off is not."""
    if not names:
        return []
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\\n", "--", *names]
    asked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DPKG_S)
    installed = [line.split()[0] for line in asked.stdout.splitlines() if line.endswith(" installed")]
    return [name for name in names if name not in installed]


def _about(path: Path, *, checksums: bool) -> dict[str, Any]:
    try:
        seen = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "owner": "", "group": "", "mode": "", "sha256": ""}
    return {
        "exists": True,
        "owner": _name(seen.st_uid, pwd.getpwuid),
        "group": _name(seen.st_gid, grp.getgrgid),
        "mode": f"{stat.S_IMODE(seen.st_mode):04o}",
        "sha256": _sha256(path) if checksums and stat.S_ISREG(seen.st_mode) else "",
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
