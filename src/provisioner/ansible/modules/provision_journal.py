# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: looks through a unit's journal for secrets, which should not be there, and for phrases."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_journal
short_description: Look through a unit's journal
description:
  - Counts the lines since the machine's boot that hold one of I(secrets), which are in no command's arguments.
  - Says which of I(phrases) the unit has said since it was started last.
  - Changes nothing, so it does the same in check mode.
options:
  unit: {type: str, required: true, description: [The unit, with its suffix.]}
  secrets: {type: list, elements: str, default: [], description: [What should be in no line.]}
  phrases: {type: list, elements: str, default: [], description: [What is looked for.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Look through the journal
  provision_journal:
    unit: tabbyapi.service
    secrets: ["{{ tabbyapi_api_key }}"]
    phrases: [Insufficient VRAM]
"""
RETURN = r"""
leaks: {type: int, returned: always, description: How many lines hold a secret.}
said: {type: list, returned: always, description: The phrases that were found.}
"""

import subprocess
from collections.abc import Iterable, Iterator, Sequence

from ansible.module_utils.basic import AnsibleModule

JOURNAL = ("journalctl", "--quiet", "--no-pager", "--all", "--output=cat")
"""--all: a line with colours in it would else be shown by its size alone."""


def main() -> None:
    """Answer with what was found."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
            "phrases": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    unit, wanted = module.params["unit"], module.params
    try:
        leaks = leaking(lines_of("--boot", f"--unit={unit}"), wanted["secrets"])
        start = invocation(unit)
        lines = lines_of(f"_SYSTEMD_INVOCATION_ID={start}") if start else ()
        found = said(lines, wanted["phrases"])
    except (OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"Unable to read the journal of {unit}: {error}. It needs root and journald.")
    module.exit_json(changed=False, leaks=leaks, said=found)


def leaking(lines: Iterable[str], secrets: Sequence[str]) -> int:
    """How many of the lines hold a secret; an empty one is none."""
    known = list(filter(None, secrets))
    count = 0
    for line in lines:
        if any(secret in line for secret in known):
            count += 1
    return count


def said(lines: Iterable[str], phrases: Sequence[str]) -> list[str]:
    """Those of the phrases that a line holds, in their own order."""
    held: set[str] = set()
    for line in lines:
        held.update(phrase for phrase in phrases if phrase in line)
    return [phrase for phrase in phrases if phrase in held]


def lines_of(*matches: str) -> Iterator[str]:
    """The lines of the journal that match. Raises ``CalledProcessError`` when they cannot be read."""
    with subprocess.Popen(
        [*JOURNAL, *matches], stdout=subprocess.PIPE, text=True, encoding="utf-8", errors="replace"
    ) as journal:
        yield from journal.stdout or ()
    if journal.returncode:
        raise subprocess.CalledProcessError(journal.returncode, JOURNAL[0])


def invocation(unit: str) -> str:
    """The identity of the unit's last start, or an empty text when there was none."""
    command = ["systemctl", "show", "--property=InvocationID", "--value", "--", unit]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
