"""What our modules for CUDA need of this package: links to its files, which Ansible sends along to the container."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

sys.modules["provisioner"] = sys.modules[__name__]  # the name by which they know each other

if TYPE_CHECKING:  # never imported: Ansible reads these lines to know what to send
    from ansible.module_utils.provisioner.cuda import (  # noqa: F401
        driver,
        glibc,
        headers,
        look,
        overlay,
        places,
        probe,
        toolkit,
    )
    from ansible.module_utils.provisioner.values import errors, regular_files  # noqa: F401
