"""What a download has received stays for the next run: in its builder, stopped, with the volume that is not ready.

The builder and not the volume alone, because there are hosts where the content grows in the builder. It bears the
lab's mark and is named after the content: a plan that no longer wants that content deletes both, as ``destroy`` does.
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.providers.base import Provider
from provisioner.values.errors import ProviderError
from provisioner.values.state import Artifact, Instance, InstanceKind

WORTH_KEEPING = "+64k"
"""Of a folder without a file of this size (GNU find's words) nothing is lost."""

Say = Callable[[str], None]


def reopened(artifact: Artifact, builder: Instance, provider: Provider, say: Say) -> bool:
    """Whether the builder of an earlier run is ready again, with what it has received.

    One that is of no use any more is deleted with its volume; one of another lab is refused.
    """
    there = provider.read(builder.name)
    if there is None:
        return False
    if there.lab != builder.lab or there.kind is not InstanceKind.BUILDER:
        raise ProviderError(
            f"Unable to build {artifact.name}: container {builder.name} on host {artifact.host} is at it already",
            details=f"It is of lab {there.lab or 'nobody'}, and holds what has come of the same content.",
            resolution="Let that lab finish (provision up), or give it up (provision destroy), and run this up again.",
        )
    try:
        provider.stop(builder)  # what a killed run has left going in it must not write beside the new one
        provider.start(builder)
        provider.wait_until_ready(builder)
        if _holds_something(artifact, builder, provider):
            say("go on where the download stopped")
            return True
    except ProviderError as error:
        say(f"begin anew: what an earlier run left is of no use ({error.message})")
    provider.delete(builder)
    provider.delete_volume(artifact.volume)
    return False


def kept(artifact: Artifact, builder: Instance, provider: Provider, say: Say) -> bool:
    """Whether what has come was left for the next run; else builder and volume are there as before, if they are."""
    try:
        if not _holds_something(artifact, builder, provider):
            return False
        provider.stop(builder)
    except ProviderError as error:
        say(f"What has come of {artifact.name} cannot be kept: {error.message}")
        return False
    say(f"What has come of {artifact.name} stays on host {artifact.host}: the next up goes on there")
    return True


def _holds_something(artifact: Artifact, builder: Instance, provider: Provider) -> bool:
    command = ["find", artifact.path, "-type", "f", "-size", WORTH_KEEPING, "-print", "-quit"]
    done = provider.execute(builder.name, command, timeout_s=60)
    return done.returncode == 0 and bool(done.stdout.strip())
