# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: sets single keys of a file of sections; a parser reads it before it takes the old one's place."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_ini
short_description: Set single keys of a file of sections
description:
  - Every other line, owner and mode are those of the copy at I(original), which is made where there is none yet.
  - A key that is there more than once stays once. A key that is only there as a comment takes that comment's place.
  - What comes out is read by a parser, and every key must be what was asked for, before the file is replaced.
options:
  path: {type: path, required: true, description: [The file; it must be there.]}
  original: {type: path, required: true, description: [Where the file as its package had it is kept.]}
  sections: {type: dict, required: true, description: [Section to keys to values, as text, numbers and booleans.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: configure | Set what differs from the package's own
  provision_ini:
    path: /etc/xrdp/xrdp.ini
    original: /usr/local/lib/desktop/xrdp.ini.original
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
        argument_spec={
            "path": {"type": "path", "required": True},
            "original": {"type": "path", "required": True},
            "sections": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    path, original = Path(module.params["path"]), Path(module.params["original"])
    try:
        before = path.read_text(encoding="utf-8")
        wanted = as_texts(module.params["sections"])
        source = original if original.exists() else path
        after = edited(source.read_text(encoding="utf-8"), wanted)
        changed = differing(before, wanted)
        wrong = differing(after, wanted)
        is_other = (before, *protection(path)) != (after, *protection(source))
    except (OSError, ValueError, configparser.Error) as error:
        module.fail_json(msg=f"Unable to edit {path}: {error}")
    if wrong:
        module.fail_json(msg=f"Unable to edit {path}: a parser does not find what was set: {', '.join(wrong)}")
    if not module.check_mode:
        if source is path:
            place(module, path, original, before)
        if is_other:
            place(module, original, path, after)
    diff = {"before": before, "after": after, "before_header": str(path), "after_header": str(path)}
    module.exit_json(changed=is_other, set=changed, diff=diff)


def place(module: AnsibleModule, like: Path, path: Path, text: str) -> None:
    """Put a file with the text in place as a whole, with owner, group and mode of the file ``like``."""
    with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, delete=False, encoding="utf-8") as partial:
        partial.write(text)
    mode, owner, group = protection(like)
    module.atomic_move(partial.name, str(path))
    path.chmod(mode)  # atomic_move keeps those of what was there
    os.chown(path, owner, group)


def protection(path: Path) -> tuple[int, int, int]:
    """Return mode, owner and group of a file."""
    seen = path.stat()
    return seen.st_mode & 0o7777, seen.st_uid, seen.st_gid


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
