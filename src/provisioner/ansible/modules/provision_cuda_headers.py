# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: makes a CUDA toolkit's math headers and the overlay before glibc's what they should be."""

from __future__ import annotations

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
author: [provisioner (!UNKNOWN)]
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
from provisioner.values.errors import ProvisionError


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
    if state == "kept":
        return []
    if state == "mended":
        looks, verb = list(look_at(root)), "edit"
    else:
        looks, verb = _edited_by_us(root), "revert"
    for look in looks:
        look.refuse_edited(verb)
    paths: list[str] = []
    for look in looks:
        if not look.headers.edits:
            paths += _changed(look, state, write=write)
    return paths


def _edited_by_us(root: Path) -> list[Look]:
    """The folders of headers that can be reverted; whatever no edit of ours is in is not even judged."""
    if not any(bears_edit(toolkit.headers) for toolkit in read_toolkits(root)):
        return []
    return [look for look in look_at(root) if look.headers.is_ours]


def _changed(look: Look, state: str, *, write: bool) -> list[str]:
    toolkit = look.toolkit
    target = look.headers.mended if state == "mended" else look.headers.original
    if write:
        return [str(path) for path in write_headers(toolkit, target)]
    paths = []
    if toolkit.headers.declarations != target.declarations:
        paths.append(str(toolkit.declarations))
    if toolkit.headers.definitions != target.definitions:
        paths.append(str(toolkit.definitions))
    return paths


def changed_overlay(folder: Path, *, present: bool, write: bool) -> list[str]:
    """The overlay's file when it is not as it should be; with ``write`` it is written or removed."""
    file = folder / FILE
    if not write:
        is_present = file.is_file() and file.read_text(encoding="utf-8") == TEXT
        is_changed = is_present != present
    elif present:
        is_changed = write_overlay(folder)
    else:
        is_changed = remove_overlay(folder)
    return [str(file)] if is_changed else []


if __name__ == "__main__":
    main()
