"""The verb ``host prepare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from provisioner import paths
from provisioner.runner import PlaybookResult


def prepare_host(variables: Mapping[str, object], run_playbook: Callable[..., PlaybookResult]) -> PlaybookResult:
    """Make this machine able to hold containers: ``playbooks/host.yml`` on localhost with the role's ``variables``."""
    inventory = (paths.inventory_templates() / "localhost.yml").read_text(encoding="utf-8")
    return run_playbook("host.yml", inventory, variables=variables)
