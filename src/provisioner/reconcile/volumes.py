"""Artifact volumes, which all labs of a host share: one run at a time makes or deletes a volume.

A run holds the lock of a volume while it makes or deletes it: ``provisioner-build-<digest>-<n>``, by the rules of the
run lock. Before a run relies on volumes it claims them, on an object ``provisioner-uses-<lab>``, until containers have
mounted them; a claimed volume is not deleted. Who claims takes each lock afterwards and looks whether the volume is
there, who deletes takes the lock and reads the claims: one of both sees the other. The claim of a run that failed or
was killed counts until the next run of its lab.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from provisioner.hosts.base import Provider
from provisioner.reconcile.lock import Lease, Terms, take, this_process
from provisioner.values.errors import LockedError
from provisioner.values.state import Artifact

LOCKS = "provisioner-build-"
CLAIMS = "provisioner-uses-"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeTerms(Terms):
    """What one run asks for when it wants to make or to delete one volume."""

    store: str
    volume: str

    @property
    def prefix(self) -> str:
        """The beginning of the names of the volume's locks; a host allows no name as long as a volume's may be."""
        digest = sha256(f"{self.store}/{self.volume}".encode()).hexdigest()
        return f"{LOCKS}{digest[:16]}-"

    @property
    def written(self) -> Mapping[str, str]:
        """What stands on the lock beside its holder."""
        return {"lab": self.lab, "work": self.verb, "store": self.store, "volume": self.volume}

    def refusal(self, why: str, details: str, resolution: str) -> LockedError:
        """The error that another run has the lock, or may have it."""
        message = f"Unable to {self.verb} volume {self.volume}: {why}"
        return LockedError(message, details=details, resolution=resolution)


def locked(provider: Provider, lab: str, verb: str, volume: str, say: Callable[[str], None]) -> Lease:
    """Return the lock of a volume, to be released; ``LockedError`` while a run that lives has it."""
    store = provider.volumes.store
    terms = VolumeTerms(lab, verb, this_process(verb), say, store=store, volume=volume)
    lease = Lease(terms)
    try:
        take(provider, terms, lease)
    except BaseException:  # an interrupted run, too, leaves no lock that it has half taken
        lease.release()
        raise
    return lease


def maker(written: Mapping[str, str]) -> str:
    """Say from what stands on a volume's lock who is at it, and since when by this machine's clock."""
    words = f"lab {written.get('lab', 'unknown')} {written.get('work', 'build')}s it"
    try:
        since = datetime.fromisoformat(written.get("since", "")).astimezone()
    except ValueError:  # somebody has written on the lock
        return words
    return f"{words} since {since:%H:%M}"


def claim(artifacts: Sequence[Artifact], lab: str, providers: Mapping[str, Provider]) -> None:
    """Keep other labs from deleting the volumes of these artifacts, until ``release``."""
    volumes = " ".join(sorted({artifact.volume for artifact in artifacts}))
    written = {"lab": lab, "volumes": volumes, "nonce": secrets.token_hex(8)}
    for host in sorted({artifact.host for artifact in artifacts}):
        locks = providers[host].locks
        locks.delete(f"{CLAIMS}{lab}")  # of a run that did not come to its end, or of another node of the same cluster
        locks.create(f"{CLAIMS}{lab}", written)


def release(lab: str, providers: Iterable[Provider]) -> None:
    """Give up what the lab has claimed: containers have it, or nobody wants it any more."""
    for provider in providers:
        provider.locks.delete(f"{CLAIMS}{lab}")


def delete_unused(volumes: Collection[str], lab: str, provider: Provider) -> None:
    """Delete volumes, but for those that a container, a snapshot or a run at work needs."""
    for volume in sorted(volumes):
        try:
            lease = locked(provider, lab, "delete", volume, say=lambda _text: None)
        except LockedError:
            continue  # a run makes the volume, for containers that it will mount it in
        try:
            claims = provider.locks.read(CLAIMS).values()
            if not any(volume in claim.get("volumes", "").split() for claim in claims):
                provider.volumes.delete(volume)
        finally:
            lease.release()


def delete_begun(lab: str, providers: Iterable[Provider]) -> None:
    """Delete what killed runs of the lab have begun to make, as their locks tell, and these locks."""
    for provider in providers:
        begun = set[str]()
        for written in provider.locks.read(LOCKS).values():
            if written.get("lab") == lab and written.get("store") == provider.volumes.store:
                begun.add(written.get("volume", ""))
        delete_unused(begun, lab, provider)
