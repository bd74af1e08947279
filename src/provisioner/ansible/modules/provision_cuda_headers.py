"""Ansible module: makes a CUDA toolkit's math headers and the overlay before glibc's what they should be."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

try:  # noqa: SIM105  # only this form may stand before imports
    import ansible.module_utils.provisioner  # noqa: F401  # in a container: sent along by the role
except ImportError:  # here is the whole package
    pass

from provisioner.cuda.headers import bears_edit
from provisioner.cuda.look import Look, look_at
from provisioner.cuda.overlay import FILE, TEXT, remove_overlay, write_overlay
from provisioner.cuda.toolkit import read_toolkits, write_headers
from provisioner.errors import ProvisionError

DOCUMENTATION = r"""
module: provision_cuda_headers
short_description: A CUDA toolkit's headers edited or as they were, and the overlay there or not
description:
  - The same guarded edit and the same overlay as C(provision cuda fix) and C(provision cuda revert).
  - Refuses headers that were edited by hand, or that look like none that is known, where it would have to change them.
options:
  toolkit: {type: path, required: true, description: [The toolkit's root.]}
  headers:
    type: str
    choices: [kept, original, mended]
    default: kept
    description: ["Byte for byte as they were, with the edit, or left as they are."]
  overlay: {type: path, description: [The overlay's folder.]}
  overlay_state:
    type: str
    choices: [kept, present, absent]
    default: kept
    description: [Whether the overlay's file is there.]
author: [provisioner]
"""
EXAMPLES = r"""
- name: configure | Edit the headers
  provision_cuda_headers:
    toolkit: /usr/local/cuda
    headers: mended
"""
RETURN = r"""
paths: {type: list, returned: always, description: The files that were changed.}
"""


def main() -> None:
    """Do what is asked for and say which files it changed."""
    states = {"headers": ["kept", "original", "mended"], "overlay_state": ["kept", "present", "absent"]}
    module = AnsibleModule(
        argument_spec={
            "toolkit": {"type": "path", "required": True},
            "overlay": {"type": "path"},
            **{name: {"type": "str", "choices": choices, "default": "kept"} for name, choices in states.items()},
        },
        required_if=[("overlay_state", "present", ["overlay"]), ("overlay_state", "absent", ["overlay"])],
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        paths = changed_headers(Path(wanted["toolkit"]), wanted["headers"], write=not module.check_mode)
        if wanted["overlay_state"] != "kept":
            is_present = wanted["overlay_state"] == "present"
            paths += changed_overlay(Path(wanted["overlay"]), present=is_present, write=not module.check_mode)
    except ProvisionError as error:
        module.fail_json(msg=str(error))
    after = [f"{path}: {wanted['headers']}, overlay {wanted['overlay_state']}" for path in paths]
    module.exit_json(changed=bool(paths), paths=paths, diff={"before": "", "after": "\n".join(after)})


def changed_headers(root: Path, state: str, *, write: bool) -> list[str]:
    """The headers that differ from ``state``; with ``write`` they are replaced. Raises where others edited them."""
    if state == "kept" or (state == "original" and not any(bears_edit(one.headers) for one in read_toolkits(root))):
        return []
    looks = [look for look in look_at(root) if state == "mended" or look.headers.is_ours]
    for look in looks:
        look.refuse_edited("edit" if state == "mended" else "revert")
    return [path for look in looks if not look.headers.edits for path in _changed(look, state, write=write)]


def _changed(look: Look, state: str, *, write: bool) -> list[str]:
    target = look.headers.mended if state == "mended" else look.headers.original
    if write:
        return [str(path) for path in write_headers(look.toolkit, target)]
    there = look.toolkit.headers
    pairs = (
        (look.toolkit.declarations, there.declarations, target.declarations),
        (look.toolkit.definitions, there.definitions, target.definitions),
    )
    return [str(path) for path, now, then in pairs if now != then]


def changed_overlay(folder: Path, *, present: bool, write: bool) -> list[str]:
    """The overlay's file when it is not as it should be; with ``write`` it is written or removed."""
    file = folder / FILE
    if not write:
        is_there = file.is_file() and file.read_text(encoding="utf-8") == TEXT
        return [str(file)] if (is_there if not present else not is_there) else []
    is_changed = write_overlay(folder) if present else remove_overlay(folder)
    return [str(file)] if is_changed else []


if __name__ == "__main__":
    main()
