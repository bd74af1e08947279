# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: makes the stub of the driver's library that programs are linked with where there is no driver."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_cuda_driver
short_description: A stub of the driver's library in a CUDA toolkit
description:
  - Makes C(lib64/stubs/libcuda.so) and the link C(libcuda.so.1) beside it of what the toolkit's own C(cuda.h) declares.
  - Each of its functions answers 34, C(CUDA_ERROR_STUB_LIBRARY), as those of NVIDIA's own stub do.
options:
  toolkit: {type: path, required: true, description: [The toolkit's root.]}
  compiler: {type: str, default: g++, description: ["The compiler that makes it, by name or path."]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: configure | Make the driver's stub
  provision_cuda_driver:
    toolkit: /opt/cuda-13.0
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

from provisioner.cuda.driver import write_stub
from provisioner.cuda.probe import DEFAULT_COMPILER
from provisioner.values.errors import ProvisionError


def main() -> None:
    """Make it and say which files changed."""
    module = AnsibleModule(
        argument_spec={
            "toolkit": {"type": "path", "required": True},
            "compiler": {"type": "str", "default": DEFAULT_COMPILER},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        changed = write_stub(Path(wanted["toolkit"]), wanted["compiler"], write=not module.check_mode)
    except ProvisionError as error:
        module.fail_json(msg=str(error))
    paths = [str(path) for path in changed]
    module.exit_json(changed=bool(paths), paths=paths, diff={"before": "", "after": "\n".join(paths)})


if __name__ == "__main__":
    main()
