# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible lookup ``provision_secret``: gives a secret's value from the run's 0600 file, by name."""

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_secret
author: [provisioner (!UNKNOWN)]
short_description: Gives a secret of the lab by its name
description:
  - Reads the file named by the environment variable E(PROVISION_SECRETS_FILE), which the runner writes to memory
    before a run and removes after it. Values never pass through variables files, inventories or arguments.
  - In playbooks of your own nobody has written that file. Then I(lab_file) says whose secrets they are, and the
    package C(provisioner) has to be installed beside ansible-core on the controller.
options:
  _terms:
    description: Names of secrets.
    required: true
  lab_file:
    description: A lab's file, whose secrets are looked up where C(provision) looks for them.
    type: path
"""
EXAMPLES = r"""
- name: Show how long the key is
  ansible.builtin.debug:
    msg: "{{ lookup('provision_secret', 'engine_key', lab_file='homelab.yml') | length }}"
"""
RETURN = r"""
_raw:
  description: The values.
  type: list
  elements: str
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):  # type: ignore[misc]  # ansible-core ships no types
    """Looks secrets up in the run's own file, or for a lab's; a missing one fails the task that asked."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """The values of ``terms``, in their order."""
        self.set_options(var_options=variables, direct=kwargs)
        written, lab_file = os.environ.get("PROVISION_SECRETS_FILE", ""), self.get_option("lab_file")
        if not written and lab_file:
            return _of_lab(Path(lab_file), terms)
        secrets = _read(written)
        missing = [term for term in terms if term not in secrets]
        if missing:
            raise AnsibleError(f"Unable to find secret {', '.join(missing)}: this run was not given it.")
        return [secrets[term] for term in terms]


def _of_lab(file: Path, terms: list[str]) -> list[str]:
    from provisioner.values.one_version import refusal

    refused = refusal("provision_secret")
    if refused:
        raise AnsibleError(refused)
    try:
        from provisioner.lab.opening import open_lab
        from provisioner.labfile.loader import named_secret
        from provisioner.values.errors import ProvisionError
    except ImportError as error:
        raise AnsibleError(
            f"Unable to read secrets of {file}: the Python package provisioner is not installed beside ansible-core "
            f"({error}). Install it into the same virtual environment."
        ) from None
    try:
        loaded = open_lab(file, needs="none").loaded
        return [named_secret(loaded, unquote(term)).reveal() for term in terms]
    except ProvisionError as error:
        raise AnsibleError(str(error)) from None


def _read(file: str) -> dict[str, str]:
    if not file:
        raise AnsibleError("Unable to read secrets: PROVISION_SECRETS_FILE is not set; run this through provision.")
    try:
        values: dict[str, str] = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise AnsibleError(f"Unable to read secrets: {error}") from error
    return values
