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
options:
  _terms:
    description: Names of secrets.
    required: true
"""

import json
import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):  # type: ignore[misc]  # ansible-core ships no types
    """Looks secrets up in the run's own file; a missing name fails the task that asked."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:  # noqa: ARG002  # Ansible's signature
        """The values of ``terms``, in their order."""
        secrets = _read(os.environ.get("PROVISION_SECRETS_FILE", ""))
        missing = [term for term in terms if term not in secrets]
        if missing:
            raise AnsibleError(f"Unable to find secret {', '.join(missing)}: this run was not given it.")
        return [secrets[term] for term in terms]


def _read(file: str) -> dict[str, str]:
    if not file:
        raise AnsibleError("Unable to read secrets: PROVISION_SECRETS_FILE is not set; run this through provision.")
    try:
        values: dict[str, str] = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise AnsibleError(f"Unable to read secrets: {error}") from error
    return values
