# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: has the key of a repository of packages in place, known by its fingerprint."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_apt_key
short_description: Have the key of a repository of packages in place
description:
  - Downloads the key where it is not there, and writes nothing whose fingerprint is another one.
  - The fingerprint is computed here from the key's own packets; no gpg is needed.
options:
  url: {type: str, required: true, description: [Where the key is published.]}
  path: {type: path, required: true, description: [Where it is kept.]}
  fingerprint: {type: str, required: true, description: [All 40 digits.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: install | Have the repository's key
  provision_apt_key:
    url: https://packages.mozilla.org/apt/repo-signing-key.gpg
    path: /etc/apt/keyrings/packages.mozilla.org.asc
    fingerprint: 35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3
"""
RETURN = "# nothing but whether something changed"

import base64
import hashlib
import re
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

MODE = 0o644
TIMEOUT_S = 30
OK = 200
MOST = 2**20
ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]+\n)*?\n(.*?)\n(?:=.{4}\n)?-----END", re.DOTALL)
PUBLIC_KEY = 6
VERSION = 4
TWO_BYTES = 192
FOUR_BYTES = 224
"""From which first byte on a length of the new format has so many."""


def main() -> None:
    """Have it."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "fingerprint": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    path, wanted = Path(module.params["path"]), module.params["fingerprint"].upper()
    if path.is_file() and fingerprints(path.read_bytes()) == [wanted]:
        module.exit_json(changed=False)
    response, told = fetch_url(module, module.params["url"], timeout=TIMEOUT_S)
    if told["status"] != OK:
        module.fail_json(msg=f"Unable to fetch {module.params['url']}: {told['msg']}")
    content = response.read(MOST)
    found = fingerprints(content)
    if found != [wanted]:
        module.fail_json(
            msg=f"Unable to trust {module.params['url']}: it holds {', '.join(found) or 'no key'} and not {wanted}."
        )
    if not module.check_mode:
        with tempfile.NamedTemporaryFile(dir=module.tmpdir, delete=False) as partial:
            partial.write(content)
        Path(partial.name).chmod(MODE)
        module.atomic_move(partial.name, str(path))
    module.exit_json(changed=True)


def fingerprints(content: bytes) -> list[str]:
    """Those of the primary keys (version 4) in a keyring, armoured or not."""
    armoured = ARMOUR.findall(content.replace(b"\r", b""))
    keyrings = [base64.b64decode(block) for block in armoured] or [content]
    found: list[str] = []
    for keyring in keyrings:
        found += _of_packets(keyring)
    return found


def _of_packets(data: bytes) -> list[str]:
    """The fingerprints of the public keys among a keyring's packets."""
    found, place = [], 0
    while place < len(data) and data[place] & 0x80:
        kind, begin, length = _head(data, place)
        body = data[begin : begin + length]
        if kind == PUBLIC_KEY and body[:1] == bytes([VERSION]):
            whole = b"\x99" + len(body).to_bytes(2, "big") + body
            found.append(hashlib.sha1(whole, usedforsecurity=False).hexdigest().upper())
        place = begin + length
    return found


def _head(data: bytes, place: int) -> tuple[int, int, int]:
    """A packet's kind, where its body begins, and how long that is (RFC 4880, 4.2)."""
    first = data[place]
    if not first & 0x40:  # the old format
        size = (1, 2, 4, 0)[first & 3]
        length = int.from_bytes(data[place + 1 : place + 1 + size], "big") if size else len(data) - place - 1
        return first >> 2 & 15, place + 1 + size, length
    one = data[place + 1]
    if one < TWO_BYTES:
        return first & 63, place + 2, one
    if one < FOUR_BYTES:
        return first & 63, place + 3, (one - TWO_BYTES << 8) + data[place + 2] + TWO_BYTES
    return first & 63, place + 6, int.from_bytes(data[place + 2 : place + 6], "big")


if __name__ == "__main__":
    main()
