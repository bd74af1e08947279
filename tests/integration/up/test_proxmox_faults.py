"""What goes wrong on a node in the middle of ``up``: whatever became of the first, the second one ends right.

The faults are the double's, of the kinds that real nodes have; its containers, ssh and Ansible's work are real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.doubles.proxmox.fixture import PveHost, real_host
from tests.doubles.proxmox.guest import Guest
from tests.doubles.proxmox.ssh_host import NoServerError
from tests.integration.up.quickstart_lab import Lab, Ran
from tests.lab.incus import Lab as Incus

pytestmark = [pytest.mark.incus, pytest.mark.proxmox]

NAME, BOX = "faulty", "faulty-one"
PATIENCE_S = 300.0
FILE = """
name: faulty
hosts:
  pve1: {page}
containers:
  faulty-one: {{ image: debian/12, cpu: 1, memory: 512MiB, disk: 2GiB }}
"""


@pytest.fixture(scope="module")
def host(incus_lab: Incus) -> Iterator[PveHost]:
    """A node of this module's own: nobody else shall meet its faults."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(real_host(incus_lab))
        except NoServerError as error:
            pytest.skip(str(error))


@pytest.fixture
def lab(host: PveHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of one container, of which nothing is there."""
    access = host.access
    assert access.token_secret is not None
    environment = {
        "PROVISION_SECRET_PVE_TOKEN": access.token_secret.reveal(),
        "PROVISION_SSH_CONFIG": str(access.ssh_config),
    }
    lab = Lab(tmp_path_factory.mktemp(NAME), environment, "", "", name=NAME)
    lab.write(FILE.format(page=host.page))
    yield lab
    lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME)
    assert boxes(host) == []


def boxes(host: PveHost) -> list[Guest]:
    """The double's containers of that name."""
    return [one for one in list(host.double.world.guests.values()) if one.config.get("hostname") == BOX]


def wait_for(is_true: Callable[[], object]) -> None:
    """Until it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def up_meets(host: PveHost, lab: Lab, fault: Callable[[], None], mend: Callable[[], None]) -> Ran:
    """``up`` with ``fault`` switched on as soon as the container is being made; ``mend`` follows when it is over."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lab.provision, "up", "--yes")
        wait_for(lambda: boxes(host) or running.done())
        fault()
        try:
            return running.result(PATIENCE_S)
        finally:
            mend()


def ends_right(host: PveHost, lab: Lab) -> None:
    """The next ``up`` has one container as the file says, and then there is nothing to do."""
    lab.succeeded("up", "--yes")
    (box,) = boxes(host)
    assert "lock" not in box.config
    assert host.containers.running_s(box.vmid) is not None
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_answers_that_are_lost_after_the_work_was_done(host: PveHost, lab: Lab) -> None:
    faults = host.double.world.faults

    def lose() -> None:
        for verb, path in (("POST", ".*/status/start"), ("GET", ".*/status/current"), ("GET", ".*/interfaces")):
            faults.drop(verb, path, times=2, done=True)

    up_meets(host, lab, lose, lambda: None)
    ends_right(host, lab)


@pytest.mark.slow
def test_a_node_that_goes_down_and_comes_back(host: PveHost, lab: Lab) -> None:
    first = up_meets(host, lab, lambda: host.double.take_down("pve1"), lambda: host.double.bring_up("pve1"))
    assert first.code == 1, first.out + first.err
    assert "no connection" in first.err or "closed the connection" in first.err
    ends_right(host, lab)


@pytest.mark.slow
def test_a_configuration_that_somebody_holds_the_lock_of(host: PveHost, lab: Lab) -> None:
    with ExitStack() as held:

        def hold() -> None:
            wait_for(lambda: boxes(host)[0].config.get("lock") is None)
            held.enter_context(host.double.world.faults.hold_lock(boxes(host)[0].vmid))

        first = up_meets(host, lab, hold, held.close)
    assert first.code in (0, 1), "what it needed may have been done by then"
    assert first.code == 0 or "lock" in first.err
    ends_right(host, lab)


@pytest.mark.slow
def test_a_start_that_takes_its_time_is_waited_for(host: PveHost, lab: Lab) -> None:
    slow = host.double.world.tasks.slow
    first = up_meets(host, lab, lambda: slow.update(vzstart=20.0), slow.clear)
    assert first.code == 0, first.out + first.err
    ends_right(host, lab)
