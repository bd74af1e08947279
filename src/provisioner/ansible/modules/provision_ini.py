"""Ansible module: sets single keys of a file of sections; a parser reads it before it takes the old one's place."""

from __future__ import annotations

import configparser
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

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
author: [provisioner]
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
    return {name: {key: as_text(key, value) for key, value in keys.items()} for name, keys in sections.items()}


def as_text(key: str, value: Any) -> str:
    """Booleans in the words of such files."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
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
    active = re.compile(rf"^\s*{re.escape(key)}\s*=", re.IGNORECASE)
    quoted = re.compile(rf"^\s*[#;]+\s*{re.escape(key)}\s*=", re.IGNORECASE)
    places = [at for at in range(first, last) if active.match(lines[at])]
    line = f"{key}={value}"
    if places:
        rest = [one for at, one in enumerate(lines) if at not in places[1:]]
        is_same = lines[places[0]].partition("=")[2].strip() == value
        return rest if is_same else [*rest[: places[0]], line, *rest[places[0] + 1 :]]
    comment = next((at for at in range(first, last) if quoted.match(lines[at])), None)
    if comment is not None:
        return [*lines[:comment], line, *lines[comment + 1 :]]
    while last > first and not lines[last - 1].strip():
        last -= 1
    return [*lines[:last], line, *lines[last:]]


def span_of(lines: list[str], section: str) -> tuple[int, int]:
    """The lines between the section's head and the next one's."""
    heads = [(at, found["name"]) for at, line in enumerate(lines) if (found := HEAD.match(line))]
    begin = next((at for at, name in heads if name.lower() == section.lower()), None)
    if begin is None:
        raise ValueError(f"it has no section [{section}]")
    return begin + 1, next((at for at, _ in heads if at > begin), len(lines))


def differing(text: str, sections: Sections) -> list[str]:
    """The keys that a parser reads with another value, or not at all."""
    parser = configparser.RawConfigParser(
        strict=False, allow_no_value=True, comment_prefixes=(";", "#"), inline_comment_prefixes=None
    )
    parser.read_string(text)
    names = {name.lower(): name for name in parser.sections()}
    return [
        f"{section}/{key}"
        for section, keys in sections.items()
        for key, value in keys.items()
        if parser.get(names.get(section.lower(), section), key, fallback=None) != value
    ]


if __name__ == "__main__":
    main()
