# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: compiles two small files with a CUDA toolkit and says which known failure stops them, if any."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_cuda_probe
short_description: Compile two small files with a CUDA toolkit
description:
  - Compiles an empty file and one with mathematics, and links the latter; runs neither. In check mode it does the same.
  - Fails when there is no toolkit or no compiler; that something does not compile is an answer.
options:
  toolkit: {type: path, required: true, description: [The toolkit's root.]}
  environment: {type: dict, default: {}, description: ["Variables for nvcc, such as NVCC_PREPEND_FLAGS."]}
  environment_file: {type: path, description: [A file of such variables; its CUDA_HOME has to be I(toolkit).]}
  libraries:
    type: list
    elements: str
    choices: [cublas, driver]
    default: []
    description: ["Libraries of which a program each is linked, too: cuBLAS, and the stub of the driver's."]
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Compile as a build would
  provision_cuda_probe:
    toolkit: /opt/cuda-13.0
    environment_file: /opt/cuda-13.0/provision.env
"""
RETURN = r"""
problem: {type: str, returned: always, description: "Empty, compiler, conflict, edited, library or other."}
said: {type: str, returned: always, description: What the compilers said.}
version: {type: str, returned: always, description: The toolkit's version.}
gcc_limit: {type: int, returned: always, description: The newest GCC that the toolkit takes.}
compilers: {type: list, returned: always, description: "Packages that would do where GCC is too new, the best first."}
"""

import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

try:  # noqa: SIM105  # only this form may stand before imports
    import ansible.module_utils.provisioner  # noqa: F401  # in a container: sent along by the role
except ImportError:  # here is the whole package
    pass

from provisioner.cuda.probe import LIBRARIES, environment_of, probe, supported_compilers
from provisioner.cuda.toolkit import read_toolkit
from provisioner.values.errors import PreflightError, ProvisionError

SAID_LINES = 40


def main() -> None:
    """Compile and answer."""
    module = AnsibleModule(
        argument_spec={
            "toolkit": {"type": "path", "required": True},
            "environment": {"type": "dict", "default": {}},
            "environment_file": {"type": "path"},
            "libraries": {"type": "list", "elements": "str", "choices": [*LIBRARIES], "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        environment = dict(wanted["environment"])
        if wanted["environment_file"]:
            environment |= read_environment(Path(wanted["environment_file"]), wanted["toolkit"])
        module.exit_json(changed=False, **look(Path(wanted["toolkit"]), environment, wanted["libraries"]))
    except ProvisionError as error:
        module.fail_json(msg=str(error))


def look(root: Path, environment: dict[str, str], libraries: list[str]) -> dict[str, Any]:
    """What the module returns."""
    toolkit = read_toolkit(root)
    seen = probe(root, environment, libraries)
    limit = seen.gcc_limit or toolkit.gcc_limit
    is_too_new = seen.problem == "compiler" and limit is not None
    return {
        "problem": seen.problem,
        "said": "\n".join(seen.said.splitlines()[:SAID_LINES]),
        "version": toolkit.version or "",
        "gcc_limit": limit,
        "compilers": list(supported_compilers(packages(), limit)) if is_too_new and limit else [],
    }


def read_environment(file: Path, toolkit: str) -> dict[str, str]:
    """The file's variables; raises when it is not there or is another toolkit's."""
    try:
        environment = environment_of(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PreflightError(f"Unable to read {file}", details=str(error), resolution="Run the role first.") from error
    if environment.get("CUDA_HOME") != toolkit:
        raise PreflightError(
            f"Unable to use {file}: it is for the toolkit {environment.get('CUDA_HOME')}, not for {toolkit}",
            resolution="Run the role again.",
        )
    return environment


def packages() -> list[str]:
    """The packages of this distribution whose names begin with g++-; none where there is no apt."""
    try:
        done = subprocess.run(["apt-cache", "pkgnames", "g++-"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        return []
    return done.stdout.split()


if __name__ == "__main__":
    main()
