# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible lookup ``provision_authority``: the root of a lab's own authority, or a certificate that it signs."""

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_authority
author: [provisioner (!UNKNOWN)]
short_description: Gives the root of a lab's own authority, or signs a certificate with it
description:
  - It works on the controller. The secret never reaches a container; what is returned is public.
options:
  _terms:
    description: C(root), or requests for certificates, as PEM.
    required: true
  secret:
    description: The secret that the authority is made of.
    type: str
    required: true
  names:
    description: The names of hosts that a certificate is for.
    type: list
    elements: str
    default: []
"""
EXAMPLES = r"""
- name: Show the root
  ansible.builtin.debug:
    msg: "{{ lookup('provision_authority', 'root', secret=door_authority) }}"
"""
RETURN = r"""
_raw:
  description: Certificates, as PEM.
  type: list
  elements: str
"""

from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from provisioner.tls.authority import Authority, AuthorityError

ROOT = "root"


class LookupModule(LookupBase):  # type: ignore[misc]  # ansible-core ships no types
    """Makes certificates; fails the task that asked, in words without the secret, where it cannot."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """The root or a certificate for each of ``terms``, in their order."""
        self.set_options(var_options=variables, direct=kwargs)
        secret, names = str(self.get_option("secret")), [str(name) for name in self.get_option("names")]
        try:
            authority = Authority(secret)
            return [authority.root if term == ROOT else authority.signed(str(term), names) for term in terms]
        except AuthorityError as error:
            raise AnsibleError(f"Unable to make a certificate: {error}.") from None
