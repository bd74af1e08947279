"""Every error a user can meet: what failed, what the other side said, what to do now.

::

    ProvisionError              exit 1   something failed after work had begun
    ├── InputError              exit 64  the file or the command line is wrong
    ├── PreflightError          exit 4   refused before anything was touched
    │   └── UnavailableError    exit 4   a host, socket or server cannot be reached
    ├── VerificationError       exit 3   the work was done and the proof failed
    ├── LockedError             exit 5   another run holds the lock
    ├── ProviderError           exit 1   a host refused or failed a request
    │   └── ReadyTimeoutError   exit 1   a container did not come up in time
    └── PlaybookError           exit 1   an Ansible run failed

Only ``cli`` catches ``ProvisionError``; every other layer raises it or lets it pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit codes that the command promises."""

    DONE = 0
    FAILED = 1
    CHANGES_PENDING = 2
    VERIFICATION_FAILED = 3
    REFUSED = 4
    LOCKED = 5
    USAGE = 64
    INTERRUPTED = 130


def with_hint(message: str, hint: str) -> str:
    """What is wrong and what to do in one line: a hint that is a sentence of its own begins as one."""
    if not hint:
        return message
    return f"{message}. {hint}" if hint[0].isupper() else f"{message}; {hint}"


class ProvisionError(Exception):
    """A failure in the user's words: ``message`` ("Unable to …"), ``details`` (the other side's), ``resolution``."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, message: str, *, details: str = "", resolution: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.resolution = resolution

    def __str__(self) -> str:
        return "\n".join(part for part in (self.message, self.details, self.resolution) if part)


class InputError(ProvisionError):
    """The file or the command line is wrong; nothing was touched."""

    exit_code = ExitCode.USAGE


class PreflightError(ProvisionError):
    """The plan cannot be carried out; nothing was touched."""

    exit_code = ExitCode.REFUSED


class UnavailableError(PreflightError):
    """A host, socket or server cannot be reached; nothing was touched."""


def joined(reasons: Sequence[PreflightError]) -> PreflightError:
    """One refusal for all reasons there are: one that is alone is told as it is."""
    if len(reasons) == 1:
        return reasons[0]
    resolutions = dict.fromkeys(line for one in reasons for line in one.resolution.splitlines())
    return PreflightError(
        f"Unable to carry out the plan: {len(reasons)} things are in its way",
        details="\n".join("\n".join(filter(None, (one.message, one.details))) for one in reasons),
        resolution="\n".join(resolutions),
    )


class VerificationError(ProvisionError):
    """The work was done and the proof that it works failed."""

    exit_code = ExitCode.VERIFICATION_FAILED


class LockedError(ProvisionError):
    """Another run holds the lab's lock."""

    exit_code = ExitCode.LOCKED


class ProviderError(ProvisionError):
    """A host refused or failed a request after work had begun."""


class ReadyTimeoutError(ProviderError):
    """A container did not come up in time; ``details`` hold its console log."""


class PlaybookError(ProvisionError):
    """An Ansible run failed; ``details`` hold the failed tasks."""
