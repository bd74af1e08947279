"""What a service wrote last: its own words, few, without control characters and without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from provisioner.hosts.fake import Container, FakeProvider
from provisioner.reconcile.evidence import MOST_CHARACTERS, explained, last_words
from provisioner.values.address import Address
from provisioner.values.errors import ProviderError
from provisioner.values.facts import UnitState
from provisioner.values.state import Execution, Finding, Instance, Secret, Service, Status

KEY = 'canary-"key"-5d1c'
SERVICE = Service("kokoro", "voice", "engine", {"kokoro_key": Secret("key", KEY)}, unit="kokoro.service")
VOICE = Instance("voice", "box", "lab", "debian/12", services=(SERVICE,))
HEAD = "voice/kokoro does not run. The last lines of its journal, in its own words:"


def box(journal: bytes, state: str = "failed", code: int = 0) -> FakeProvider:
    """A host whose container's journal is this."""
    made = FakeProvider("box")
    made.create(VOICE)
    made.start(VOICE)

    def program(
        _container: Container, command: Sequence[str], _stdin: bytes, _environment: Mapping[str, str]
    ) -> Execution:
        assert command[-1] == "kokoro.service"
        return Execution(code, f"{state}\n".encode() + journal, b"")

    made.programs["sh"] = program
    return made


def test_the_last_lines_are_told_as_the_services_own() -> None:
    said = last_words(SERVICE, box(b"loading\nthe supplied chat template is not supported\n"))
    assert said.splitlines() == [HEAD, "  | loading", "  | the supplied chat template is not supported"]


def test_they_hold_no_control_characters_and_no_secret() -> None:
    said = last_words(SERVICE, box(f"\x1b[31mbad key\x1b[0m {KEY}\x07\r\nend \x9b2J\u202e\n".encode()))
    assert said.splitlines()[1:] == ["  | bad key ********", "  | end 2J"]


def test_they_are_bounded() -> None:
    said = last_words(SERVICE, box(b"\n".join(b"x" * 5000 + str(number).encode() for number in range(500))))
    assert len(said) < MOST_CHARACTERS + 200
    assert len(said.splitlines()) < 40


def test_the_first_line_of_what_was_cut_is_left_out_for_it_may_begin_within_a_secret() -> None:
    cut = f"{KEY[4:]} is wrong\n".encode() + b"ok\n" * 4000
    assert "key" not in last_words(SERVICE, box(cut[-MOST_CHARACTERS:] if len(cut) < MOST_CHARACTERS else cut))


@pytest.mark.parametrize("journal", [b"", b"\n \n"])
def test_nothing_is_told_of_a_journal_without_words(journal: bytes) -> None:
    assert last_words(SERVICE, box(journal)) == ""


def test_nothing_is_told_of_one_that_runs_unless_it_was_asked_for() -> None:
    assert last_words(SERVICE, box(b"loading\n", "active")) == ""
    assert "loading" in last_words(SERVICE, box(b"loading\n", "active"), although_it_runs=True)


def test_what_cannot_be_read_hides_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    host = box(b"x")
    assert last_words(SERVICE, box(b"x", code=1)) == ""

    def refuse(*_: object, **__: object) -> Execution:
        raise ProviderError("Unable to run sh")

    monkeypatch.setattr(host, "execute", refuse)
    assert last_words(SERVICE, host) == ""


def test_a_finding_of_a_unit_that_does_not_run_says_why() -> None:
    kokoro = Address("voice/kokoro")
    down, other = Finding(kokoro, "unit kokoro.service is failed"), Finding(Address("voice"), "is stopped")
    facts = [UnitState(kokoro, "failed")]
    host = box(b"no such voice\n")
    assert host.containers["voice"].instance.status is Status.RUNNING
    first, second = explained([down, other], [VOICE], {"box": host}, facts)
    assert "  | no such voice" in first.details
    assert second == other
