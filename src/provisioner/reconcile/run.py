"""A plan is carried out: change, prove, stamp; and go back where a proof failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from provisioner.lab.opening import Lab
from provisioner.reconcile import journal, snapshots, volumes
from provisioner.reconcile.apply import apply_instances, last_step, undone, with_former_mounts
from provisioner.reconcile.artifacts import ensure_artifacts
from provisioner.reconcile.configure import Configured, configure
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.evidence import explained, gather
from provisioner.reconcile.gather import has_same_wishes, reasons_to_run, write_stamps
from provisioner.reconcile.judge import judge
from provisioner.reconcile.lock import Lease
from provisioner.reconcile.observe import Survey, observe, settled
from provisioner.reconcile.prove import announce_checks, keep_proofs
from provisioner.reconcile.stop import delete, drop_volumes
from provisioner.serving.engine_memory import kept_program
from provisioner.serving.fit import check_fit, remember_use, unasked_programs
from provisioner.values.address import Address
from provisioner.values.errors import ProvisionError, VerificationError
from provisioner.values.events import Diagnostic
from provisioner.values.facts import ContainerFact, RoleStamp, Unmended, Unstamped, by_address
from provisioner.values.plan import Change, Plan
from provisioner.values.state import Artifact, Finding, Fleet, Instance

SEE = "Its kernel has to follow connections on bridges (nf_conntrack_bridge): see docs/security.md."


@dataclass
class Run:
    """One plan being carried out."""

    lab: Lab
    effects: Effects
    lease: Lease
    seen: Survey
    made: Plan
    keep: int

    def carry_out(self) -> None:
        """Change what has to change, prove it, stamp it; raise what kept that from being done."""
        effects = self.effects
        self.lease.check()
        artifacts = self._artifacts()
        volumes.claim(artifacts, self.lab.name, effects.providers)
        delete(self.made, self.lab.name, effects)
        built = [one.after for one in self.made.of("build") if isinstance(one.after, Artifact)]
        unasked = unasked_programs(self.lab, self.seen.models.files, self.seen.cards) if built else ()
        labs = (effects.providers, self.lab.name)
        ensure_artifacts(artifacts, *labs, run_playbook=effects.run_playbook, emit=effects.emit)
        if any(map(kept_program, unasked)):  # and no container was made or changed yet
            wanted = {one.name for one in self.seen.wanted}
            check_fit(self.lab, self.seen.models.files, self.seen.cards, effects.emit, wanted)
        apply_instances(self.made.of("adopt"), effects.providers, effects.emit)
        there, facts = self._touched(), self.seen.facts
        try:
            kept = snapshots.keep_before(self.made, self.seen, effects, self.keep)
            outcome = self._change_and_prove(kept)
        finally:
            closed = [one for one in there if self.keep or snapshots.is_left_closed(one, facts)]
            snapshots.open_again(closed, facts, effects)
        touched = self._touched()
        remember_use(self.lab, self.seen.models.files, self.seen.cards, outcome.facts, effects.emit)
        announce_checks(self.seen.wanted, (), effects)
        journal.forget(touched, effects)
        volumes.release(self.lab.name, effects.providers.values())
        snapshots.drop_surplus(self.lab, touched, effects, self.keep)
        changed = self.made.of("replace", "update")
        drop_volumes([one.before for one in changed if isinstance(one.before, Instance)], effects)

    def _artifacts(self) -> list[Artifact]:
        """The artifacts that are built or mounted: one that was there when it was planned may be gone."""
        artifacts = [change.after for change in self.made.of("build") if isinstance(change.after, Artifact)]
        mounted = set[tuple[str, str]]()
        for change in self.made.of("create", "replace", "update"):
            if isinstance(change.after, Instance):
                mounted.update((change.after.host, volume) for volume in journal.volumes_of(change.after))
        for artifact in self.seen.desired.artifacts:
            if artifact not in artifacts and (artifact.host, artifact.volume) in mounted:
                artifacts.append(artifact)
        return artifacts

    def _change_and_prove(self, kept: snapshots.Kept) -> Configured:
        """Change what has to change, and stamp what has proved itself; what has not goes back."""
        effects = self.effects
        self._make()
        _wait_until_ready(self._touched(), effects)
        unsure = self.seen.unsure(self.made)
        self.seen = self.seen.readdressed(self.lab, effects)
        self._confine()
        touched = self._touched()
        self.lease.check()
        run = self._to_configure(touched, unsure)
        new = self._new()
        outcome = configure(run, effects.providers, run_playbook=effects.run_playbook, emit=effects.emit, new=new)
        keep_proofs(self.lab, "up", outcome.facts, effects.emit, outcome.failed)
        # Before anything goes back: they show what was wrong.
        gather(run, effects.providers, self.lab.folder, effects.emit)
        self._let_go(outcome)
        facts = _settled([one for one in touched if one.name not in outcome.failed], effects)
        findings = self._findings(touched, outcome, facts)
        self.lease.check()
        self._stamp(run, outcome, findings)
        if outcome.error or findings:
            self._give_up(kept, outcome, findings)
        return outcome

    def _make(self) -> None:
        """Make and change containers; what their services use until they are configured stays mounted."""
        changes = [with_former_mounts(one) for one in self.made.of("create", "replace", "update", "start")]
        apply_instances([one for one in changes if _is_needed(one)], self.effects.providers, self.effects.emit)

    def _confine(self) -> None:
        """Have hosts hold containers that run others' code to what they reach, by the addresses that these have now."""
        for one in self.seen.wanted:
            refusal = self.effects.providers[one.host].network.confine(one)
            if refusal:
                message = f"Host {one.host} cannot hold container {one.name} to what it reaches: rules in it alone do"
                self.effects.emit(Diagnostic("warning", message, details=refusal, resolution=SEE))

    def _touched(self) -> tuple[Instance, ...]:
        names = {one.container for one in self.made.of("create", "replace", "update", "start", "configure", "adopt")}
        return tuple(one for one in self.seen.wanted if one.name in names)

    def _new(self) -> set[str]:
        return {one.container for one in self.made.of("create", "replace")}

    def _to_configure(self, touched: Sequence[Instance], unsure: Collection[Address]) -> tuple[Instance, ...]:
        """The containers that Ansible has to work in, each with only the services that need it.

        ``unsure``: those that need it only where an address has become another one.
        """
        new = self._new()
        known = {one.target for one in self.made.of("configure")}.difference(unsure)
        started = {one.container for one in self.made.of("start", "update", "adopt")}
        started |= {address.container for address in unsure} - new
        looked = [one for one in touched if one.name in started]
        facts = _settled(looked, self.effects)
        found = {address for one in looked for address in reasons_to_run(one, facts)}
        addresses = known | found | {role.address for one in touched if one.name in new for role in one.roles}
        pruned = [replace(one, services=tuple(s for s in one.services if s.address in addresses)) for one in touched]
        return tuple(one for one in pruned if any(role.address in addresses for role in one.roles))

    def _let_go(self, outcome: Configured) -> None:
        """Unmount what the services of containers used before; one that failed may use it still."""
        updates = [one for one in self.made.of("update") if one.container not in outcome.failed]
        steps = [step for one in updates if (step := last_step(one)) is not None]
        apply_instances(steps, self.effects.providers, self.effects.emit)

    def _findings(
        self, touched: Sequence[Instance], outcome: Configured, facts: Sequence[ContainerFact]
    ) -> tuple[Finding, ...]:
        """What the containers say of themselves afterwards; of those whose roles failed that is known already."""
        good = [one for one in touched if one.name not in outcome.failed]
        there = observe(self.lab.name, self.effects.providers, detailed=False)
        judged = judge(Fleet(self.lab.name, tuple(good)), there, facts)
        return explained(judged, good, self.effects.providers, facts)

    def _stamp(self, run: Sequence[Instance], outcome: Configured, findings: Iterable[Finding]) -> None:
        bad = outcome.failed.union(finding.subject.container for finding in findings)
        proved = [one for one in run if one.name not in bad]
        roles = [role for one in proved for role in one.roles if has_same_wishes(role, self.seen.facts)]
        stamps = by_address(self.seen.facts, RoleStamp)
        same = {role.address: stamps[role.address].changed for role in roles}
        for fact in write_stamps(proved, self.effects.providers, compare=same):
            self.effects.emit(_warning(fact))

    def _give_up(self, kept: snapshots.Kept, outcome: Configured, findings: Sequence[Finding]) -> None:
        failed = outcome.failed.union(finding.subject.container for finding in findings)
        unharmed = outcome.failed - outcome.changed
        unharmed -= {one.container for one in self.made.of("update") if undone(one) is None}
        told = [*self._unmount(unharmed), *snapshots.go_back(kept, self.seen, failed, unharmed, self.effects)]
        error = outcome.error or VerificationError(
            "Unable to prove that the lab works",
            details="\n".join(_told(finding) for finding in findings),
            resolution="Look at the container's journal: provision logs NAME",
        )
        raise type(error)(
            error.message, details="\n".join([error.details, *told]), resolution=error.resolution
        ) from outcome.error

    def _unmount(self, unharmed: Collection[str]) -> list[str]:
        """Take away what was mounted for services that did not take it up; what cannot be taken away, in words."""
        updates = [one for one in self.made.of("update") if one.container in unharmed]
        told = []
        for step in filter(None, map(undone, updates)):
            try:
                apply_instances([step], self.effects.providers, self.effects.emit)
            except ProvisionError as error:  # the failure that led here must not be lost
                told.append(f"{step.container}: what was mounted for it is mounted still: {error}")
        return told


def _is_needed(change: Change) -> bool:
    """Whether a change is more than to let go of what is mounted, which comes last."""
    return change.action != "update" or bool(change.attributes())


def _told(finding: Finding) -> str:
    return "\n".join(filter(None, (f"{finding.subject}: {finding.message}", finding.details)))


def _warning(fact: Unstamped | Unmended) -> Diagnostic:
    if isinstance(fact, Unstamped):
        return Diagnostic(
            "warning",
            f"Unable to note in container {fact.address} that it works: the next up runs Ansible there again",
            details=fact.why,
            resolution=f"See why with: provision exec {fact.address}",
        )
    return Diagnostic(
        "warning",
        f"{fact.address} has proved itself, but its role left something as somebody else made it",
        details="\n".join(fact.changes),
        resolution="It counts as right from now on. Undo it by hand, or have the container made anew (up --replace).",
    )


def _settled(instances: Sequence[Instance], effects: Effects) -> tuple[ContainerFact, ...]:
    """What they say once they have come up; that people are kept out is this run's own doing."""
    return snapshots.without_closed(settled(instances, effects))


def _wait_until_ready(wanted: Sequence[Instance], effects: Effects) -> None:
    """Also those that ran before: their host may have started them a moment ago."""
    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        list(pool.map(lambda one: effects.providers[one.host].wait_until_ready(one), wanted))
