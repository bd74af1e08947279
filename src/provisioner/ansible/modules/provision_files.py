# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: has several small files and folders in place with one call, where a call for each takes its time."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_files
short_description: Have several small files and folders in place
description:
  - Goes through them in their order; one without I(content) is a folder. What differs is replaced as a whole.
  - What a program that I(validate) names does not accept is never put in place; in check mode nobody is asked.
  - A way that goes through a link is refused, as the account that a folder belongs to could have laid it to elsewhere.
options:
  files:
    type: list
    elements: dict
    required: true
    description: [What should be there.]
    suboptions:
      path: {type: str, required: true, description: [An absolute path; the folder that it is in comes before it.]}
      content: {type: str, description: [The text of a file.]}
      owner: {type: str, default: root, description: [Its owner.]}
      group: {type: str, default: root, description: [Its group.]}
      mode: {type: str, description: [Its mode, in octal digits; what is to be there needs one.]}
      state:
        {type: str, default: present, choices: [present, absent], description: [C(absent) removes files only.]}
      validate:
        {type: list, elements: str, description: [A program with arguments; the path of the new text is the last.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: configure | Write the account's files
  provision_files:
    files:
      - {path: /home/penny/Desktop, owner: penny, group: penny, mode: "0755"}
      - {path: /home/penny/.xsession, content: "exec mate-session\n", owner: penny, group: penny, mode: "0644"}
"""
RETURN = r"""
paths: {type: list, returned: always, description: What was changed.}
"""

import grp
import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

VALIDATE_S = 120
LAST_WORDS = 4000
"""So much of what a program says of a text is told, in bytes."""

Entry = Mapping[str, Any]


def main() -> None:
    """Have them."""
    text = {"type": "str"}
    options = {
        "path": {"type": "str", "required": True},
        "content": text,
        "owner": {**text, "default": "root"},
        "group": {**text, "default": "root"},
        "mode": text,
        "state": {**text, "default": "present", "choices": ["present", "absent"]},
        "validate": {"type": "list", "elements": "str"},
    }
    needed = [("state", "present", ["mode"])]
    files = {"type": "list", "elements": "dict", "required": True, "options": options, "required_if": needed}
    module = AnsibleModule(argument_spec={"files": files}, supports_check_mode=True)
    try:
        changed = ensured(module.params["files"], check_mode=module.check_mode)
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        module.fail_json(msg=f"Unable to have these files: {error}")
    wanted = {file["path"]: file for file in module.params["files"]}
    diff = [difference(wanted[path], before) for path, before in changed.items()]
    module.exit_json(changed=bool(changed), paths=list(changed), diff=diff)


def difference(file: Entry, before: str) -> dict[str, str]:
    """What ``--diff`` shows of a file; no text of one that is removed: nobody says then that it is a secret."""
    texts = {"before": before, "after": file["content"] or ""}
    if file["state"] == "absent":
        texts = {"before": "state: present\n", "after": "state: absent\n"}
    return {**texts, "before_header": file["path"], "after_header": file["path"]}


def ensured(files: Sequence[Entry], *, check_mode: bool) -> dict[str, str]:
    """The paths of what differed, each with the text that was there.

    Raises ``ValueError`` for a way that goes through a link, and for what could not be made as it should be.
    """
    changed = {}
    for file in files:
        path = checked_path(file)
        if not differs(path, file):
            continue
        changed[file["path"]] = text_of(path)
        if not check_mode:
            place(path, file)
            if differs(path, file):
                raise ValueError(f"{path} was put in place, and is not as it should be")
    return changed


def checked_path(wanted: Entry) -> Path:
    """Where it should be. Raises ``ValueError`` for a way that goes through a link."""
    path = Path(wanted["path"])
    if not path.is_absolute() or path.parent.resolve() != path.parent:
        raise ValueError(f"{path} is not an absolute path without links")
    if is_folder(wanted) and path.is_symlink():
        raise ValueError(f"{path} is a link and should be a folder")
    return path


def is_folder(wanted: Entry) -> bool:
    """Whether a folder should be there."""
    return wanted["content"] is None and wanted["state"] == "present"


def differs(path: Path, wanted: Entry) -> bool:
    """Whether it is there and should not be, or whether kind, owner, group, mode or content are others."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return bool(wanted["state"] == "present")
    if wanted["state"] == "absent":
        return True
    is_kind = stat.S_ISDIR(seen.st_mode) if is_folder(wanted) else stat.S_ISREG(seen.st_mode)
    names = (name_of(seen.st_uid, pwd.getpwuid), name_of(seen.st_gid, grp.getgrgid))
    is_owned = (*names, stat.S_IMODE(seen.st_mode)) == (wanted["owner"], wanted["group"], int(wanted["mode"], 8))
    return not (is_kind and is_owned and (is_folder(wanted) or text_of(path) == wanted["content"]))


def name_of(number: int, look: Any) -> str:
    """The name of an account or a group, the number where it has none."""
    try:
        return str(look(number)[0])
    except KeyError:
        return str(number)


def text_of(path: Path) -> str:
    """The text of a file, empty for anything else."""
    if path.is_symlink() or not path.is_file():
        return ""
    return path.read_bytes().decode(errors="replace")


def place(path: Path, wanted: Entry) -> None:
    """Make it, replace it as a whole, or remove it.

    Raises ``KeyError`` for an unknown owner or group, ``ValueError`` for a text that is not accepted.
    """
    if wanted["state"] == "absent":
        path.unlink()
        return
    mode, ids = int(wanted["mode"], 8), (pwd.getpwnam(wanted["owner"])[2], grp.getgrnam(wanted["group"])[2])
    if is_folder(wanted):
        path.mkdir(exist_ok=True)
        os.chown(path, *ids)
        path.chmod(mode)
        return
    number, partial = tempfile.mkstemp(dir=path.parent, prefix=".provision-")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(wanted["content"].encode())
            os.fchown(number, *ids)
            os.fchmod(number, mode)
        if wanted["validate"]:
            validate(path, [*wanted["validate"], partial])
        Path(partial).replace(path)
    except (OSError, ValueError):
        Path(partial).unlink(missing_ok=True)
        raise


def validate(path: Path, command: Sequence[str]) -> None:
    """Ask a program whether it accepts the text that shall be at ``path``. Raises ``ValueError`` with its words."""
    asked = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=VALIDATE_S,
        check=False,
    )
    if asked.returncode:
        said = asked.stdout[-LAST_WORDS:].decode(errors="replace").strip()
        raise ValueError(f"{command[0]} does not accept what shall be {path} ({asked.returncode}): {said}")


if __name__ == "__main__":
    main()
