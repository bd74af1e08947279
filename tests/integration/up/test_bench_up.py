"""``provision bench --kind engine`` on a real host: a real llama-server, and what a real llama-bench says of it.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.engine_series import model_in
from provisioner.inside.trial_unit import TRIAL
from tests.integration.up.measured_lab import brought_up
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab, asked_meanwhile
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "speed"
ENGINE = f"{NAME}-engine"
BENCH = ("bench", ENGINE, "--kind", "engine", "--yes", "--json", "--trials", "10", "--tokens", "512", "64")
FILE = lab_text("bench")
LIMITS = 10
SLOWED = "100ms/100ms"
"""Half of the two processors that it has."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up."""
    folder = tmp_path_factory.mktemp(NAME)
    with pytest.MonkeyPatch.context() as patched:
        model_in(folder, patched.setattr)
    with brought_up(incus_lab, folder, NAME, FILE) as lab:
        yield lab


def kept(lab: Lab) -> int:
    """How many results were kept; those of a run of this test before are among them."""
    return len(lab.provision("bench", ENGINE, "--history").out.splitlines())


def test_it_is_measured_while_whoever_asks_is_answered(lab: Lab) -> None:
    with asked_meanwhile(lab, ENGINE, "some", pause_s=5, within_s=1200) as statuses:
        found = lab.provision(*BENCH, "--accept")
    assert found.code == 0, found.out + found.err
    result = found.result
    (measured,) = result["results"]
    assert {one["name"] for one in measured["figures"]} == {"pp512", "tg64"}
    for figure in measured["figures"]:
        assert len(figure["trials"]) == 10
        assert figure["low"] <= figure["median"] <= figure["high"]
    assert measured["options"]["t"] == "2"
    assert measured["options"]["ctk"] == "f16"
    assert statuses
    assert {*statuses} == {200}


def test_nothing_of_it_is_left_and_the_engine_serves(lab: Lab) -> None:
    left = lab.incus("exec", ENGINE, "--", "sh", "-c", "ls /run/systemd/system/ /run | grep provision-trial || true")
    assert left == ""
    assert lab.incus("exec", ENGINE, "--", "systemctl", "is-active", TRIAL, check=False).strip() != "active"
    assert lab.ask(ENGINE, 8080, "some", ENGINE_KEY).status == 200
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_what_is_swept_is_measured_with_other_values(lab: Lab) -> None:
    found = lab.succeeded(*BENCH, "--trials", "2", "--sweep", "threads=1,2", "--sweep", "cache_k=q8_0")
    result = found.result
    assert [(one["options"]["t"], one["options"]["ctk"]) for one in result["results"]] == [("1", "q8_0"), ("2", "q8_0")]
    rates = [figure["median"] for one in result["results"] for figure in one["figures"] if figure["name"] == "pp512"]
    assert rates[0] < rates[1]


def test_what_it_has_no_room_for_is_told(lab: Lab) -> None:
    found = lab.provision(*BENCH, "--trials", "2", "--sweep", "depth=131072", "--refuse")
    assert found.code == 3, found.out + found.err
    assert "no room" in found.err + found.out
    assert lab.ask(ENGINE, 8080, "some", ENGINE_KEY).status == 200


def test_what_clients_of_the_engine_see_is_measured(lab: Lab) -> None:
    asked = ("bench", ENGINE, "--kind", "llm", "--yes", "--json", "--trials", "10", "--tokens", "128", "32")
    found = lab.succeeded(*asked, "--depth", "0,512", "--accept")
    plain, deep = found.result["results"]
    assert [one["name"] for one in plain["figures"]] == ["first token", "pp128", "tg32"]
    assert [one["name"] for one in deep["figures"]] == [f"{name} @ d512" for name in ("first token", "pp128", "tg32")]
    assert {len(figure["trials"]) for one in (plain, deep) for figure in one["figures"]} == {10}
    assert plain["figures"][0]["median"] < deep["figures"][0]["median"], "more has to be read before it"
    assert plain["cold"]["first token"] > 0
    assert lab.provision(*asked, "--depth", "4096").code == 64, "more than its context"
    again = lab.provision(*asked, "--depth", "0,512", "--gate", "--threshold", "60")
    assert again.code in {0, 4}, again.out + again.err  # 4: something else was in the way of one of the two


def test_trials_while_others_ask_the_engine_count_for_nothing(lab: Lab) -> None:
    with asked_meanwhile(lab, ENGINE, "some"):
        found = lab.provision("bench", ENGINE, "--kind", "llm", "--yes", "--trials", "2", "--tokens", "64", "16")
    assert found.code == 4, found.out + found.err
    assert "others ask it meanwhile" in found.err


def test_ten_times_one_whose_processors_are_limited_is_found_slower(lab: Lab) -> None:
    before = kept(lab)
    lab.incus("config", "set", ENGINE, f"limits.cpu.allowance={SLOWED}")
    try:
        runs = [lab.provision(*BENCH, "--gate") for _ in range(LIMITS)]
    finally:
        lab.incus("config", "unset", ENGINE, "limits.cpu.allowance")
    for run in runs:
        result = run.result
        assert any(one["worse"] for one in result["compared"]), "it was measured, and is slower"
    # Where control groups are of the first version a container does not see its own limit: it is taken for other work.
    sees_its_limit = "throttled" in lab.incus("exec", ENGINE, "--", "sh", "-c", "cat /sys/fs/cgroup/cpu.stat || true")
    assert [run.code for run in runs] == [3 if sees_its_limit else 4] * LIMITS
    assert kept(lab) - before == LIMITS


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of(ENGINE_KEY)
