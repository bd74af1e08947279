"""How clients reach a container of the lab: by its own address, or by its host's where that shows it to the LAN."""

from __future__ import annotations

from urllib.parse import urlsplit

from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.labfile.hosts import IncusHost, is_elsewhere
from provisioner.values.errors import PreflightError


def address_of(session: Session, lab: Lab, name: str, *, is_on_lan: bool) -> str:
    """The address of a service in that container; ``PreflightError`` where it does not run."""
    return (_host_address(lab, name) if is_on_lan else None) or _observed_address(session, lab, name)


def _observed_address(session: Session, lab: Lab, name: str) -> str:
    from provisioner.workflow import surveying

    there = surveying.observe(lab.name, session.effects(lab).providers).instance(name)
    if there is None or there.address is None:
        raise PreflightError(
            f"Unable to tell the address of container {name}: it does not run",
            resolution=f"Run: provision up {lab.loaded.path}",
        )
    return there.address


def _host_address(lab: Lab, name: str) -> str | None:
    """The address at which the container's host shows it to the LAN; None where it has one there itself, or none."""
    from provisioner.workflow.addressing import ANYWHERE, own_address

    container = lab.resolved.containers[name]
    host, page = container.host, container.page
    if page is not None and not isinstance(page, IncusHost):
        return None
    if page is not None and page.address:
        return page.address
    if page is not None and is_elsewhere(page):
        return urlsplit(page.incus).hostname
    try:
        return own_address(ANYWHERE, host or "local")
    except PreflightError:  # a machine without a network: what runs here is reached on the bridge
        return None
