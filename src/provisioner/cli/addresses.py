"""How clients reach a container of the lab: by its own address, or by its host's where that shows it to the LAN."""

from __future__ import annotations

from provisioner.cli.session import Session
from provisioner.lab.opening import Lab
from provisioner.values.errors import PreflightError


def address_of(session: Session, lab: Lab, name: str, *, is_on_lan: bool) -> str:
    """The address of a service in that container; ``PreflightError`` where it does not run."""
    from provisioner.reconcile.addresses import lan_address

    return (lan_address(lab, name) if is_on_lan else None) or _observed_address(session, lab, name)


def _observed_address(session: Session, lab: Lab, name: str) -> str:
    from provisioner.reconcile import observe

    there = observe.observe(lab.name, session.effects(lab).providers).instance(name)
    if there is None or there.address is None:
        raise PreflightError(
            f"Unable to tell the address of container {name}: it does not run",
            resolution=f"Run: provision up {lab.loaded.path}",
        )
    return there.address
