# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: sets single keys of a file of sections; a parser reads it before it takes the old one's place."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_ini
short_description: Set single keys of a file of sections
description:
  - Leaves every other line, its comments and its order as they are; a key that is there more than once stays once.
  - What comes out is read by a parser, and every key must be what was asked for, before the file is replaced.
  - Owner and mode of the file stay. A key that is only there as a comment takes that comment's place.
options:
  path: {type: path, required: true, description: [The file; it must be there.]}
  sections: {type: dict, required: true, description: [Section to keys to values, as text, numbers and booleans.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: configure | Set what differs from the package's own
  provision_ini:
    path: /etc/xrdp/xrdp.ini
    sections: {Globals: {security_layer: tls}}
"""
RETURN = r"""
set: {type: list, returned: always, description: "The keys whose values changed, as section and key."}
"""

import configparser
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

Sections = Mapping[str, Mapping[str, Any]]
HEAD = re.compile(r"^\s*\[(?P<name>[^]]+)\]\s*$")


def main() -> None:
    """Set the keys."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}, "sections": {"type": "dict", "required": True}},
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    try:
        before = path.read_text(encoding="utf-8")
        wanted = as_texts(module.params["sections"])
        after = edited(before, wanted)
        changed = differing(before, wanted)
        wrong = differing(after, wanted)
    except (OSError, ValueError, configparser.Error) as error:
        module.fail_json(msg=f"Unable to edit {path}: {error}")
    if wrong:
        module.fail_json(msg=f"Unable to edit {path}: a parser does not find what was set: {', '.join(wrong)}")
    if before != after and not module.check_mode:
        with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, delete=False, encoding="utf-8") as partial:
            partial.write(after)
        keep = path.stat()
        Path(partial.name).chmod(keep.st_mode & 0o7777)
        os.chown(partial.name, keep.st_uid, keep.st_gid)
        module.atomic_move(partial.name, str(path))
    diff = {"before": before, "after": after, "before_header": str(path), "after_header": str(path)}
    module.exit_json(changed=before != after, set=changed, diff=diff)


def as_texts(sections: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The values as they stand in the file. Raises ``ValueError`` for one that cannot."""
    texts = {}
    for section, keys in sections.items():
        texts[section] = {key: as_text(key, value) for key, value in keys.items()}
    return texts


def as_text(key: str, value: Any) -> str:
    """Booleans in the words of such files."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "\n" in text or text != text.strip():
        raise ValueError(f"the value of {key} has a line end, or blanks around it")
    return text


def edited(text: str, sections: Sections) -> str:
    """The text with these keys."""
    lines = text.splitlines()
    for name, keys in sections.items():
        for key, value in keys.items():
            lines = with_key(lines, name, key, value)
    return "\n".join(lines) + "\n"


def with_key(lines: list[str], section: str, key: str, value: str) -> list[str]:
    """The lines with that key once, in its section. Raises ``ValueError`` where the section is missing."""
    first, last = span_of(lines, section)
    line = f"{key}={value}"
    places = places_of(lines, first, last, rf"^\s*{re.escape(key)}\s*=")
    if places:
        place, *repeated = places
        lines = [kept for at, kept in enumerate(lines) if at not in repeated]
        has_value = lines[place].partition("=")[2].strip() == value
        return lines if has_value else _replaced(lines, place, line)
    comments = places_of(lines, first, last, rf"^\s*[#;]+\s*{re.escape(key)}\s*=")
    if comments:
        return _replaced(lines, comments[0], line)
    while last > first and not lines[last - 1].strip():
        last -= 1
    return [*lines[:last], line, *lines[last:]]


def places_of(lines: list[str], first: int, last: int, pattern: str) -> list[int]:
    """The numbers of the lines between the two that begin like the pattern, in any case."""
    return [at for at in range(first, last) if re.match(pattern, lines[at], re.IGNORECASE)]


def _replaced(lines: list[str], at: int, line: str) -> list[str]:
    return [*lines[:at], line, *lines[at + 1 :]]


def span_of(lines: list[str], section: str) -> tuple[int, int]:
    """The lines between the section's head and the next one's."""
    first = None
    for at, line in enumerate(lines):
        head = HEAD.match(line)
        if head is None:
            continue
        if first is not None:
            return first, at
        if head["name"].lower() == section.lower():
            first = at + 1
    if first is None:
        raise ValueError(f"it has no section [{section}]")
    return first, len(lines)


def differing(text: str, sections: Sections) -> list[str]:
    """The keys that a parser reads with another value, or not at all."""
    parser = configparser.RawConfigParser(
        strict=False, allow_no_value=True, comment_prefixes=(";", "#"), inline_comment_prefixes=None
    )
    parser.read_string(text)
    names = {name.lower(): name for name in parser.sections()}
    different = []
    for section, keys in sections.items():
        name = names.get(section.lower(), section)
        for key, value in keys.items():
            if parser.get(name, key, fallback=None) != value:
                different.append(f"{section}/{key}")
    return different


if __name__ == "__main__":
    main()
