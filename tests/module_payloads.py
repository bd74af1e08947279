"""Payloads as Ansible makes them: a module with its arguments and its library, for a Python to read."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
PYTHON = os.environ.get("PROVISION_TEST_TASK_PYTHON", "/usr/bin/python3")
"""The Python of the tasks: every version that a container may have can be tried."""


def payload(
    module: str | Path, arguments: dict[str, Any] | None = None, python: str = PYTHON, **internal: Any
) -> bytes:
    """What Ansible would feed to ``python``: a module by its name, or a file.

    ``internal`` is what Ansible itself tells a module, such as ``check_mode``.
    """
    from ansible.executor import module_common
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import module_loader
    from ansible.template import Templar

    _prepare_loaders()
    path = module if isinstance(module, Path) else Path(module_loader.find_plugin(module))
    settings = {"check_mode": False, "diff": False, "remote_tmp": "/tmp", "keep_remote_files": False}  # noqa: S108
    own = {f"_ansible_{name}": value for name, value in {**settings, **internal}.items()}
    with mock.patch.object(module_common, "_compile_module_ast", _parse_once()):
        built = module_common.modify_module(
            module_name=path.stem,
            module_path=str(path),
            module_args={**(arguments or {}), **own},
            templar=Templar(DataLoader()),
            task_vars={"ansible_python_interpreter": python},
            module_compression="ZIP_DEFLATED",
        )
    content: bytes = built.b_module_data
    return content


@cache
def _parse_once() -> Callable[[str, bytes], ast.Module]:
    """Return Ansible's parser, which would read its library anew for each module."""
    from ansible.executor import module_common

    return cache(module_common._compile_module_ast)


@cache
def _prepare_loaders() -> None:
    from ansible.plugins.loader import init_plugin_loader, module_loader, module_utils_loader

    init_plugin_loader([])
    module_utils_loader.add_directory(str(ROOT / "roles/cuda_toolkit/module_utils"))
    module_loader.add_directory(str(ROOT / "src/provisioner/ansible/modules"))


def written(folder: Path, name: str, lines: str) -> Path:
    """A module of a few lines; each needs a name of its own, as Ansible keeps what it has built by names."""
    text = "from __future__ import annotations\nfrom ansible.module_utils.basic import AnsibleModule\n" + lines
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path
