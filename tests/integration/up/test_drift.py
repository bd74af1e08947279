"""What is changed by hand in a running lab is found, named, and mended; and nothing else is touched.

Each test leaves the lab as it found it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import pytest

from tests.integration.up.drift_lab import ENGINE, FILE, FIXED, GATEWAY, PYTHON, STALE, DriftLab, Mutation
from tests.integration.up.quickstart_lab import ENGINE_KEY, MASTER_KEY
from tests.lab.incus import Lab as Incus
from tests.waiting import wait_until

pytestmark = [pytest.mark.incus]

GIB = 2**30
UNITS = {ENGINE: "llama-server.service", GATEWAY: "litellm.service"}
DNS_CACHE_S = 30.0
"""For how long at most the gateway may go on asking the old address of a name (it keeps one for 5 s)."""
NOTHING_S = 3.0
"""An ``up`` that has nothing to do; Ansible alone takes longer."""


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriftLab]:
    """The lab, up, and nothing to be done in it."""
    lab = DriftLab(tmp_path_factory.mktemp("drift"), incus_lab.environment, "debian/12", "debian/12", name="drift")
    lab.write(FILE)
    with lab.brought_up():
        assert lab.look() == {}
        yield lab


@pytest.fixture
def mended(lab: DriftLab) -> Iterator[DriftLab]:
    """The lab; afterwards all is as it was before, no less, and a further ``up`` has nothing to do."""
    before = lab.seen()
    yield lab
    lab.answers()
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert lab.seen() == before
    needs_no_ansible(lab)


def needs_no_ansible(lab: DriftLab) -> None:
    """Assert that ``up`` finds nothing to do, and quickly: the best of three, since others work on this machine."""
    logs, times = lab.logs(), []
    for _ in range(3):
        started = time.monotonic()
        ran = lab.up()
        times.append(time.monotonic() - started)
        assert ran.code == 0, ran.err
        assert lab.logs() == logs
        if min(times) < NOTHING_S:
            return
    pytest.fail(f"an up without anything to do took {times} s")


def writable(lab: DriftLab) -> list[Mutation]:
    """Every change of a path that a role writes itself: artifacts are mounted."""
    return [one for one in lab.mutations() if one.kind in ("paths", "reloaded") and not one.is_mounted]


def mend(lab: DriftLab, chosen: Sequence[Mutation]) -> None:
    """Make all these changes at once, and have ``up`` mend them."""
    assert chosen
    for one in chosen:
        lab.sh(one.container, one.bare)
    assert set(lab.look()) == {address for one in chosen for address in lab.affected(one)}
    ran = lab.up()
    assert ran.code == 0, ran.out[-3000:] + ran.err[-3000:]


@pytest.mark.guarantee("drift")
def test_every_change_of_every_managed_thing_is_named_and_nothing_else_is(lab: DriftLab) -> None:
    mutations = lab.mutations()
    kinds = {"paths", "reloaded", "watched", "packages", "units", "helpers", "users", "venvs"}
    assert {one.kind for one in mutations} == kinds
    sides = [[one for one in mutations if one.container == name] for name in (ENGINE, GATEWAY)]
    problems: list[str] = []
    for pair in zip_longest(*sides):  # the two containers are looked at together
        chosen = [one for one in pair if one]
        for one in chosen:
            lab.sh(one.container, one.change)
        found = lab.look()
        for one in chosen:
            lab.sh(one.container, one.undo)
        named = {address for one in chosen for address in lab.affected(one)}
        problems += [f"{one}: {found}" for one in chosen if not one.is_told_by(found)]
        problems += [f"{chosen} named {sorted(found)}"] if set(found) != named else []
        left = lab.settled()
        problems += [f"{chosen}, put back: {left}"] if left else []
    assert problems == []


def test_only_what_is_mounted_read_only_has_fewer_changes(lab: DriftLab) -> None:
    paths = {
        (one.container, one.name, one.is_mounted)
        for one in lab.mutations()
        if one.kind in ("paths", "reloaded", "venvs")
    }
    for container, name, is_mounted in sorted(paths):
        options = lab.sh(container, f"findmnt --noheadings --output OPTIONS --target {name}").strip().split(",")
        assert is_mounted == ("ro" in options), f"{container} {name}: {FIXED}"


def test_contents_modes_and_owners_are_mended(mended: DriftLab) -> None:
    mend(mended, [one for one in writable(mended) if one.what in ("edited", "mode", "owner", "group")])


@pytest.mark.slow
def test_deletions_are_mended(mended: DriftLab) -> None:
    mend(mended, [one for one in writable(mended) if one.what == "deleted"])


@pytest.mark.slow
def test_units_are_mended(mended: DriftLab) -> None:
    units = [one for one in mended.mutations() if one.kind == "units"]
    for what in ("disabled", "masked", "older than its files", "stopped"):
        mend(mended, [one for one in units if one.what == what])


@pytest.mark.slow
def test_users_are_mended(mended: DriftLab) -> None:
    users = [one for one in mended.mutations() if one.kind == "users"]
    for what in ("deleted", "another shell", "another home", "in a further group"):
        mend(mended, [one for one in users if one.what == what])


@pytest.mark.slow
@pytest.mark.network
def test_packages_are_put_back(mended: DriftLab) -> None:
    removed = [one for one in mended.mutations() if one.kind == "packages" and one.what == "removed"]
    for name in sorted({one.name for one in removed}):
        mend(mended, [one for one in removed if one.name == name])


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("what", ["deleted", "replaced by a fifo", "replaced by a folder"])
def test_python3_is_put_back(mended: DriftLab, what: str) -> None:
    mend(mended, [one for one in mended.mutations() if one.name == PYTHON and one.what == what])


def test_what_runs_with_files_that_are_no_more_is_restarted_and_nobody_else(mended: DriftLab) -> None:
    """Edited, restarted, put back: the file is right, and the process has read another one."""
    unit, file = "llama-server.service", "/etc/systemd/system/llama-server.service"
    others = mended.main_pid(GATEWAY, "litellm.service")
    mended.sh(ENGINE, f"cp {file} /root/kept; sed -i 's/\\[Service\\]/&\\nNice=5/' {file}; systemctl daemon-reload")
    mended.sh(ENGINE, f"systemctl restart {unit}; cp /root/kept {file}; rm /root/kept; systemctl daemon-reload")
    wrong = mended.main_pid(ENGINE, unit)
    found = mended.look()
    assert set(found) == {f"{ENGINE}/llama_cpp"}
    assert f"unit {unit}: {STALE}" in found[f"{ENGINE}/llama_cpp"]
    logs = mended.logs()
    ran = mended.up()
    assert ran.code == 0, ran.err
    assert mended.main_pid(ENGINE, unit) != wrong
    assert mended.main_pid(GATEWAY, "litellm.service") == others
    (log,) = mended.logs() - logs
    text = (mended.folder / ".provision" / "logs" / log).read_text(encoding="utf-8")
    assert ENGINE in text
    assert GATEWAY not in text


def test_a_change_that_was_taken_back_is_none(lab: DriftLab) -> None:
    file = "/etc/litellm/config.yaml"
    lab.sh(GATEWAY, f"cp -a {file} /root/kept; echo '# by hand' >> {file}")
    assert set(lab.look()) == {f"{GATEWAY}/litellm"}
    lab.sh(GATEWAY, f"cp -a /root/kept {file}; rm /root/kept")
    needs_no_ansible(lab)


@pytest.fixture
def broken(lab: DriftLab) -> Iterator[DriftLab]:
    """The lab, its file asking for an engine that does not start; afterwards the file is as it was."""
    lab.write(
        FILE.replace("model: tiny,", "model: tiny, beside: false, extra_arguments: [--chat-template-file, /none],")
    )
    yield lab
    lab.write(FILE)
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    needs_no_ansible(lab)
    lab.answers()


def snapshots(lab: DriftLab) -> list[str]:
    """What is kept of the engine, the oldest first."""
    listed = json.loads(lab.incus("query", f"/1.0/instances/{ENGINE}/snapshots?recursion=1"))
    return [one["name"].rpartition("/")[2] for one in sorted(listed, key=lambda one: str(one["created_at"]))]


@pytest.mark.guarantee("rollback")
def test_what_fails_its_proof_is_rolled_back_and_the_old_one_answers(broken: DriftLab) -> None:
    before = snapshots(broken)
    ran = broken.up()
    assert ran.code == 3, ran.out[-3000:] + ran.err[-3000:]
    assert f"{ENGINE}: rolled back to its last verified state" in ran.err
    assert "works again" in ran.err
    broken.answers()
    kept = [one for one in snapshots(broken) if one not in before]
    assert [one.rpartition("-")[2] for one in kept if one.endswith("-failed")] == ["failed"]
    assert kept[-1] in ran.err
    planned = broken.provision("plan", "--detailed-exitcode")
    assert planned.code == 2
    assert "extra_arguments changed in the file" in planned.out


@pytest.mark.slow
def test_without_a_rollback_it_stays_broken_until_it_is_brought_back_by_hand(broken: DriftLab) -> None:
    assert broken.provision("snapshot", ENGINE, "--name", "good").code == 0
    ran = broken.up("--no-rollback")
    assert ran.code == 3, ran.out[-3000:] + ran.err[-3000:]
    assert "left as it is" in ran.err
    with pytest.raises(OSError, match=r"[Rr]efused"):
        broken.ask(ENGINE, 8080, "tiny", ENGINE_KEY)
    broken.succeeded("rollback", ENGINE, "--yes")
    asked = {f"{ENGINE}/llama_cpp": ("extra_arguments changed in the file",)}
    wait_until(lambda: broken.look() == asked)
    wait_until(lambda: broken.incus("list", "--format", "csv", "--columns", "4", f"^{ENGINE}$").strip() != "")
    broken.answers()


@pytest.mark.slow
def test_another_model_takes_the_place_of_the_old_one(lab: DriftLab) -> None:
    lab.write(FILE.replace("tiny", "small").replace("builtin:small", "builtin:tiny"))
    ran = lab.up()
    assert ran.code == 0, ran.out[-3000:] + ran.err[-3000:]
    assert lab.ask(ENGINE, 8080, "small", ENGINE_KEY).status == 200
    assert lab.ask(GATEWAY, 4000, "fast", MASTER_KEY).text
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    lab.write(FILE)
    assert lab.up().code == 0
    lab.answers()


def test_an_engine_with_another_address_is_reached_by_its_name(lab: DriftLab, incus_lab: Incus) -> None:
    leases = json.loads(lab.incus("query", f"/1.0/networks/{incus_lab.bridge}/leases"))
    network = lab.address(ENGINE).rpartition(".")[0]
    candidates = (f"{network}.{number}" for number in range(251, 1, -1))
    new = next(one for one in candidates if one not in {lease["address"] for lease in leases})
    lab.incus("config", "device", "override", ENGINE, "eth0", f"ipv4.address={new}")
    lab.incus("restart", "--force", ENGINE)
    assert lab.settled() == {}
    wait_until(lambda: lab.address(ENGINE) == new)
    wait_until(lambda: lab.ask(GATEWAY, 4000, "fast", MASTER_KEY).status == 200, DNS_CACHE_S)
    lab.answers()
    needs_no_ansible(lab)


def test_a_container_grows_while_it_works(lab: DriftLab) -> None:
    """The last test: a disk cannot become smaller again."""
    before = {name: lab.main_pid(name, unit) for name, unit in UNITS.items()}
    logs = lab.logs()
    for cpu, memory, disk in ((1, 3, 11), (2, 4, 12)):
        limits = f"cpu: {cpu}, memory: {memory}GiB, disk: {disk}GiB"
        lab.write(FILE.replace(f"{ENGINE}: {{", f"{ENGINE}: {{ {limits},"))
        ran = lab.up()
        assert ran.code == 0, ran.out + ran.err
        config = json.loads(lab.incus("query", f"/1.0/instances/{ENGINE}"))
        assert config["config"]["limits.cpu"] == str(cpu)
        assert config["config"]["limits.memory"] == str(memory * GIB)
        assert config["devices"]["root"]["size"] == str(disk * GIB)
        # Incus spreads the containers over the processors a moment later.
        wait_until(lambda cpu=cpu: lab.sh(ENGINE, "nproc").strip() == str(cpu), 30)  # type: ignore[misc]
        assert int(lab.sh(ENGINE, "awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024 == memory * GIB
        assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert {name: lab.main_pid(name, unit) for name, unit in UNITS.items()} == before
    assert lab.logs() == logs
