"""The verb ``host prepare``: what this machine has to have for containers, and for their graphics cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provisioner import paths
from provisioner.runner import PlaybookResult


def prepare_cards(run_playbook: Callable[..., PlaybookResult]) -> PlaybookResult:
    """Have this machine's graphics cards ready for containers after every start: ``playbooks/gpu_host.yml`` on it."""
    return run_playbook("gpu_host.yml", _localhost())


def prepare_host(variables: Mapping[str, object], run_playbook: Callable[..., PlaybookResult]) -> PlaybookResult:
    """Make this machine able to hold containers: ``playbooks/host.yml`` on localhost with the role's ``variables``."""
    return run_playbook("host.yml", _localhost(), variables=variables)


def _localhost() -> str:
    return (paths.inventory_templates() / "localhost.yml").read_text(encoding="utf-8")
