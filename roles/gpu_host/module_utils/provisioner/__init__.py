"""What our module for graphics cards needs of this package: links to its files, which Ansible sends along."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

sys.modules["provisioner"] = sys.modules[__name__]  # the name by which they know each other

if TYPE_CHECKING:  # never imported: Ansible reads these lines to know what to send
    from ansible.module_utils.provisioner.gpus import cards, health, look  # noqa: F401
