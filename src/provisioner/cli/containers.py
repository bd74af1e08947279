"""The lab's containers as they are now, by name, for verbs that work inside of them."""

from __future__ import annotations

from provisioner.cli.session import Session
from provisioner.hosts import kind_of
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.reconcile.observe import observe
from provisioner.values.errors import InputError, PreflightError
from provisioner.values.state import Instance, InstanceKind, Status


class Containers:
    """What is in the file and what bears the lab's mark; its hosts are asked once, when it is made."""

    def __init__(self, session: Session, lab: Lab) -> None:
        self._lab = lab
        self._providers = session.effects(lab).providers
        self._actual = observe(lab.name, self._providers)

    def running(self, name: str) -> Provider:
        """What reaches the container; raises ``PreflightError`` when it does not run, ``InputError`` for no name."""
        reason = self.reason(name)
        there = self._actual.instance(name)
        if reason is not None or there is None:
            raise reason or self._unknown(name)
        return self._providers[there.host]

    def instance(self, name: str) -> Instance:
        """The container as it is there; raises as ``running``."""
        reason, there = self.reason(name), self._actual.instance(name)
        if reason is not None or there is None:
            raise reason or self._unknown(name)
        return there

    def reason(self, name: str) -> PreflightError | None:
        """Why nothing can be done in the container now, None when it runs; ``InputError`` for an unknown name."""
        there = self._actual.instance(name)
        in_file = name in self._lab.spec.containers
        if there is None and not in_file:
            raise self._unknown(name)
        what = f"Unable to look into container {name}"
        if there is None:
            state, hint = self._actual.absence(name, self._lab.loaded.path)
            return PreflightError(f"{what}: {state}", resolution=hint)
        if there.status is Status.RUNNING:
            return None
        hint = f"Run: provision up {self._lab.loaded.path} {name}"
        if not in_file:
            start = kind_of(self._providers[there.host].kind).start_command.format(**{**there.settings, "name": name})
            up = "It is no longer in the file: write it there and run provision up"
            hint = f"{up}, or run on host {there.host}: {start}"
        return PreflightError(f"{what}: it is {there.status}", resolution=hint)

    def _unknown(self, name: str) -> InputError:
        orphans = {one.name for one in self._actual.instances if one.kind is InstanceKind.SERVING}
        return InputError(
            f"Unable to find container {name} in lab {self._lab.name}",
            resolution=f"Containers of this lab: {', '.join(sorted(orphans | set(self._lab.spec.containers)))}",
        )
