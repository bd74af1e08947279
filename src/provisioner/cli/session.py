"""The session of one command line: its console, and its way to the world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.cli.console import Console

if TYPE_CHECKING:  # the world is imported when a verb touches it
    from provisioner.hosts.base import Provider
    from provisioner.lab.opening import Lab
    from provisioner.labfile.loader import Needs
    from provisioner.reconcile.artifacts import RunPlaybook
    from provisioner.reconcile.effects import Effects
    from provisioner.reconcile.runner import PlaybookResult
    from provisioner.values.plan import Plan


@dataclass
class Session:
    """The object that click hands to every verb; tests give one whose providers and playbooks are their own."""

    console: Console = field(default_factory=Console)
    open_providers: Callable[[Lab], Mapping[str, Provider]] | None = None
    run_playbook: Callable[..., PlaybookResult] | None = None

    def open_lab(
        self, file: Path, *, with_secrets: bool = False, needs: Needs = "all", content: bytes | None = None
    ) -> Lab:
        """The lab of ``file``, its warnings said; ``with_secrets`` runs the command for values that it ``needs``.

        ``content``: what the file is to hold, where that is asked before it is written.
        """
        from provisioner.lab.opening import open_lab

        lab = open_lab(file, run_secret_command=with_secrets, needs=needs, content=content)
        self.console.hide(lab.loaded.secrets.values())
        for warning in lab.loaded.warnings:
            from provisioner.values.events import Diagnostic  # nothing that a file without warnings needs

            self.console.emit(Diagnostic("warning", lab.loaded.rendered(warning)))
        return lab

    def effects(self, lab: Lab, confirm: Callable[[Plan], bool] = lambda _plan: False) -> Effects:
        """The world as verbs may touch it for ``lab``; without ``confirm`` nothing may be changed."""
        from provisioner.cli.effects import providers_of
        from provisioner.reconcile.effects import Effects
        from provisioner.values.events import ApplyProgress

        providers = (self.open_providers or providers_of)(lab)
        for provider in providers.values():
            provider.on_progress = lambda name, message: self.console.emit(ApplyProgress(name, message))
        return Effects(providers, self.playbooks(lab.folder), self.console.emit, confirm)

    def playbooks(self, folder: Path) -> RunPlaybook:
        """How playbooks are run, their logs kept in ``folder``."""
        from functools import partial

        return partial(self.run_playbook or _run_playbook, folder=folder)


def _run_playbook(*arguments: Any, **options: Any) -> PlaybookResult:
    """``runner.run_playbook``, imported when something is run."""
    from provisioner.reconcile.runner import run_playbook

    return run_playbook(*arguments, **options)
