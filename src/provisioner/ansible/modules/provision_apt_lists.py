# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: has apt's lists of packages there and up to date, before packages are installed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_apt_lists
short_description: Have apt's lists of packages
description:
  - Refreshes the lists where there are none, where they are older than an hour, or than a file that names sources.
  - C(cache_valid_time) of M(ansible.builtin.apt) goes by the age of their folder, which is new when it was emptied.
  - In check mode it refreshes nothing. Lists are no state of the machine, so it never says that it changed something.
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: install | Refresh the lists of packages
  provision_apt_lists:
"""
RETURN = r"""
refreshed:
  type: bool
  returned: always
  description: Whether they were fetched.
"""

import os
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

FRESH_S = 3600
UPDATE_S = 600
LOCK_S = 120
"""So long another program may hold the lists."""
NETWORK_S = 30
"""So long it is tried again after any other failure."""
LONGEST_WAIT_S = 12
_LOCKED = "Could not get lock"
_LISTS = "var/lib/apt/lists"
_STAMP = "var/lib/apt/periodic/update-success-stamp"
_SOURCES = ("etc/apt/sources.list", "etc/apt/sources.list.d")


def main() -> None:
    """Refresh the lists where they are old or not there."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    program = module.get_bin_path("apt-get", required=True)
    root = Path("/")
    if module.check_mode or is_fresh(root, time.time()):
        module.exit_json(changed=False, refreshed=False)
    try:
        failure = refreshed(root, [program])
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        module.fail_json(msg=f"Unable to refresh the lists of packages: {failure}")
    module.exit_json(changed=False, refreshed=True)


def is_fresh(root: Path, now: float) -> bool:
    """Return whether the lists below ``root`` are there, younger than an hour and than each file of sources."""
    lists = root / _LISTS
    if not any(lists.glob("*_Packages*")):
        return False
    fetched = max(_changed(lists), _changed(root / _STAMP))
    sources = [root / name for name in _SOURCES]
    sources += (root / _SOURCES[-1]).glob("*")
    return 0 <= now - fetched < FRESH_S and max(map(_changed, sources)) < fetched


def refreshed(root: Path, program: list[str]) -> str:
    """Fetch the lists; return why that failed, empty where it did not. Raises ``subprocess.TimeoutExpired``."""
    began = time.monotonic()
    wait_s = 1
    while True:
        command = [*program, "-q", "-o", "APT::Update::Error-Mode=any", "update"]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            timeout=UPDATE_S,
        )
        if done.returncode == 0:
            os.utime(root / _LISTS)  # where nothing was newer, apt leaves it as it was
            return ""
        patience_s = LOCK_S if _LOCKED in done.stderr else NETWORK_S
        if time.monotonic() - began + wait_s > patience_s:
            return done.stderr.strip() or f"apt-get ended with {done.returncode}"
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _changed(path: Path) -> float:
    """Return the time of a file's or folder's last change; 0 for one that is not there."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    main()
