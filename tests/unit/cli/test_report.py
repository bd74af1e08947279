"""``report`` by the command line, on a host in memory: the page, what it tells, and that nothing is changed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from provisioner.hosts.fake import FakeProvider
from provisioner.measuring import history
from provisioner.measuring.history import Result, Series, Setting, Trial
from provisioner.measuring.probe import Tried, file_of, keep
from provisioner.reconcile.runner import TaskEvent
from provisioner.report.style import markup_text
from provisioner.values.address import Address
from provisioner.values.errors import ProviderError, UnavailableError
from tests.raising import raising
from tests.snapshots import case_name
from tests.unit.cli.conftest import ENGINE_KEY, GATEWAY_KEY, World

ENGINE = Address("llama/llama_cpp")
SETTING = Setting("box", "EPYC", "", "", "b" * 64, "e" * 64, {})


def page_of(world: World, *words: str) -> str:
    """The page that was written, which has no key in it."""
    world.done("report", "lab.html", *words)
    return Path("lab.html").read_text(encoding="utf-8")


def test_the_page_is_for_the_owner_alone_and_takes_the_place_of_an_older_one(up: World) -> None:
    Path("lab.html").write_text("older")
    Path("lab.html").chmod(0o644)
    answer = up.command("report", "lab.html")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "Wrote lab.html.")
    assert stat.S_IMODE(Path("lab.html").stat().st_mode) == 0o600
    assert "<h1>Lab homelab</h1>" in Path("lab.html").read_text(encoding="utf-8")
    assert not list(Path().glob(".lab.html*")), "it was written beside it, and renamed"


def test_it_changes_nothing_and_runs_nothing(up: World) -> None:
    before, played = repr(up.host.containers), len(up.played)
    page_of(up)
    assert (repr(up.host.containers), len(up.played)) == (before, played)


@pytest.mark.parametrize(
    "line",
    ["report", "report a.html b.html", "report lab.htm", "report no/lab.html", "status --html no/lab.html"],
    ids=case_name,
)
def test_what_is_no_page_is_refused_before_a_host_is_asked(world: World, line: str) -> None:
    world.host.observe = lambda *_, **__: pytest.fail("it was asked")  # type: ignore[method-assign]
    assert world.command(*line.split()).ended(64) == world.snapshot


def test_a_page_that_cannot_be_written_leaves_the_older_one(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("lab.html").write_text("older")
    monkeypatch.setattr("provisioner.labfile.whole_files.os.fsync", raising(OSError(28, "No space left on device")))
    answer = up.command("report", "lab.html")
    assert (answer.code, "No space left on device" in answer.err) == (64, True)
    assert Path("lab.html").read_text() == "older"


@pytest.mark.usefixtures("lab")
def test_a_lab_of_which_nothing_was_made_has_a_page(world: World) -> None:
    page = page_of(world)
    assert "llama is missing on host box" in page
    assert "never proved from this machine" in page
    assert "No run from this machine is known." in page
    assert "which clients ask, has no address" in page


def test_keys_are_not_in_it(up: World) -> None:
    up.failures["verify.yml"] = (TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Ask", ENGINE_KEY),)
    up.command("verify")
    page = page_of(up)
    assert ENGINE_KEY not in page
    assert GATEWAY_KEY not in page
    assert "{env:" in page


def test_what_was_proved_stands_in_it_with_what_was_asked(up: World) -> None:
    up.command("verify")
    page = page_of(up)
    assert page.count("1 of 1 step as they should be") == 2
    assert "<code>provision verify</code>" in page
    assert "systemd: how is" in page
    assert "HTTP 200" in page


def test_a_proof_that_failed_is_a_warning_with_its_reason(up: World) -> None:
    event = TaskEvent("failed", "llama", "llama_cpp", "llama_cpp : verify | Ask", "it said <b>no</b>")
    up.failures["verify.yml"] = (event,)
    assert up.command("verify").code == 3
    page = page_of(up)
    warnings = page.partition('id="topology"')[0]
    assert "llama/llama_cpp: its last proof failed (verify)" in warnings
    assert "it said &lt;b&gt;no&lt;/b&gt;" in warnings


def test_what_was_measured_stands_in_it_and_what_cannot_be_read_is_a_warning(up: World) -> None:
    keep(file_of("homelab", ENGINE), "now", Tried(8192, "answered"))
    result = Result("2026-11-28T01:00:00+00:00", "engine", ENGINE, SETTING, (Series("pp512", "t/s", (Trial(7.0),)),))
    history.keep(history.file_of("homelab", ENGINE), result)
    history.accept(history.accepted_file_of("homelab", ENGINE), [result])
    history.file_of("homelab", Address("other/one")).write_text("damaged\n")
    page = page_of(up)
    assert "8,192 tokens at most were answered" in page
    assert "pp512: 7.00 t/s, measured once" in page
    assert page.count("bench --kind engine") == 1
    assert "Unable to read the benchmarks in " in page.partition('id="topology"')[0]


def test_drift_and_what_up_would_do_stand_in_it(up: World) -> None:
    up.drift["llama/llama_cpp"] = [["path", "/etc/x", "changed"]]
    Path("homelab.yml").write_text(Path("homelab.yml").read_text().replace("llama:\n", "llama:\n    memory: 3GiB\n"))
    page = page_of(up)
    assert "llama has drifted from the file" in page
    assert "<td>update</td><td>llama</td>" in page


def test_a_host_that_is_away_is_told_on_the_page_and_by_the_exit_code(
    up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    up.command("verify")
    monkeypatch.setattr(
        FakeProvider, "observe", raising(UnavailableError("Unable to reach host box", details="connection <refused>"))
    )
    answer = up.command("report", "lab.html")
    assert (answer.code, "Unable to reach host box" in answer.err) == (4, True)
    page = Path("lab.html").read_text(encoding="utf-8")
    assert "Unable to reach host box" in page
    assert "connection &lt;refused&gt;" in page
    assert "not seen: its host does not answer" in page
    assert "not known: nobody could be asked" in page
    assert "1 of 1 step as they should be" in page, "what is known here stands in it all the same"


def test_of_two_hosts_the_one_that_answers_is_told(up: World, monkeypatch: pytest.MonkeyPatch) -> None:
    far = up.add_host("far")
    text = (
        Path("homelab.yml")
        .read_text()
        .replace("  box: { incus: local }", "  box: { incus: local }\n  far: { incus: local }")
    )
    text = text.replace("  llama:\n", "  web: { host: far }\n  llama:\n    host: box\n").replace(
        "  gateway:\n", "  gateway:\n    host: box\n"
    )
    Path("homelab.yml").write_text(text)
    del up.host.containers["gateway"]
    up.host.elsewhere["gateway"] = "on node pve2, as CT 105"
    monkeypatch.setattr(far, "observe", raising(UnavailableError("Unable to reach host far")))
    answer = up.command("report", "lab.html")
    assert answer.code == 4, answer.err
    page = Path("lab.html").read_text(encoding="utf-8")
    assert "web: not seen: its host does not answer" in page
    assert '<h3>llama</h3><p><span class="state good"' in page
    assert "gateway: on node pve2, as CT 105" in page


def test_a_container_that_does_not_answer_is_a_warning(up: World) -> None:
    up.host.programs["python3"] = raising(ProviderError("Unable to look into container llama", details="timed out"))
    page = page_of(up)
    assert "Unable to look into container llama" in page.partition('id="topology"')[0]


def test_the_stream_says_where_it_is(up: World) -> None:
    (result,) = up.command("report", "lab.html", "--json").of("result")
    assert (result["file"], result["lab"]) == ("lab.html", "homelab")


def test_status_html_is_the_same_page_and_says_so(up: World) -> None:
    assert up.command("status", "--html", "lab.html").ended(0) == up.snapshot
    assert markup_text("Services and their proofs") in Path("lab.html").read_text(encoding="utf-8")
