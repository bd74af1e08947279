"""``provision clone NAME COPY --set …`` on a real host: an engine that serves is copied, and the copy alone is changed.

The tests of this module build on each other, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.up.measured_lab import brought_up
from tests.integration.up.quickstart_lab import ENGINE_KEY, Lab, asked_meanwhile, sh
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.slow]

NAME = "trying"
ENGINE, COPY = f"{NAME}-engine", f"{NAME}-copy"
PORT = 18963
SETTING = "services.llama_cpp.ubatch=128"
FILE = lab_text("clone")
STATE = """
systemctl list-units --type=service --state=running --plain --no-legend | cut -d' ' -f1 | sort > /run/units
xargs -n1 systemctl show -p Id,ActiveEnterTimestampMonotonic,MainPID < /run/units
find /etc /opt /srv /usr/local /var/lib -xdev -type f ! -path '/var/lib/systemd/*' ! -path '/var/lib/dhcp/*' -print0 \
| sort -z | xargs -0 sha256sum
"""
KEY = "/etc/ssh/ssh_host_ed25519_key"


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab, up, with a host key in the engine's container, and something that was written there."""
    with brought_up(incus_lab, tmp_path_factory.mktemp(NAME), NAME, FILE) as lab:
        sh(lab, ENGINE, f"mkdir -p /etc/ssh && echo ours > {KEY} && echo kept > /var/lib/written")
        yield lab


def command_of(lab: Lab, container: str) -> str:
    return sh(lab, container, "tr '\\0' ' ' < /proc/$(systemctl show -p MainPID --value llama-server)/cmdline")


def config_of(lab: Lab) -> str:
    return lab.incus("config", "show", ENGINE)


def test_the_copy_alone_is_changed_while_the_original_answers(lab: Lab) -> None:
    state, config = sh(lab, ENGINE, STATE), config_of(lab)
    assert "llama-server.service" in state
    with asked_meanwhile(lab, ENGINE, "some", port=PORT, pause_s=0.5) as statuses:
        made = lab.provision("clone", ENGINE, COPY, "--set", SETTING, "--yes", "--json")
    assert made.code == 0, made.out[-4000:] + made.err
    assert {*statuses} == {200}
    assert len(statuses) > 10
    assert (sh(lab, ENGINE, STATE), config_of(lab)) == (state, config), "nothing of it is touched"
    result = made.result
    assert (result["container"], result["copy_of"]) == (COPY, ENGINE)
    assert "--ubatch-size 128" in command_of(lab, COPY)
    assert "--ubatch-size 128" not in command_of(lab, ENGINE)
    assert lab.ask(COPY, PORT, "some", ENGINE_KEY).status == 200
    assert lab.provision("plan", "--detailed-exitcode").code == 0


def test_the_copy_has_what_was_written_and_an_identity_of_its_own(lab: Lab) -> None:
    assert sh(lab, COPY, "cat /var/lib/written") == "kept\n"
    assert sh(lab, COPY, f"ls {KEY} || true") == ""
    for told in ("cat /etc/machine-id", "cat /etc/hostname", "cat /sys/class/net/eth0/address"):
        assert sh(lab, COPY, told) != sh(lab, ENGINE, told), told
    assert lab.address(COPY) != lab.address(ENGINE)
    devices = {one["name"]: one["devices"] for one in lab.made()}
    proxies = {name: [one for one in found.values() if one["type"] == "proxy"] for name, found in devices.items()}
    assert (len(proxies[ENGINE]), proxies[COPY]) == (1, []), "the host's port leads to the original alone"


def test_both_are_measured_and_held_against_each_other(lab: Lab) -> None:
    for container in (ENGINE, COPY):
        lab.succeeded("bench", container, "--kind", "llm", "--yes", "--trials", "10", "--tokens", "64", "16")
    compared = lab.succeeded("bench", "--compare", ENGINE, COPY, "--json")
    result = compared.result
    assert [one["name"] for one in result["compared"]] == ["first token", "pp64", "tg16"]
    told = lab.provision("bench", ENGINE, "--compare", "last", COPY).out
    assert f"Not the same: service: {ENGINE}/llama_cpp and {COPY}/llama_cpp" in told


def test_what_is_refused_leaves_everything_as_it_is(lab: Lab) -> None:
    text = (lab.folder / "homelab.yml").read_text()
    names = {one["name"] for one in lab.made()}
    for words, code in (
        ((ENGINE, COPY, "--set", SETTING), 64),
        ((ENGINE, f"{NAME}-more", "--set", "services.llama_cpp.ubatch=none"), 64),
        ((ENGINE, f"{NAME}-more", "--set", SETTING), 4),
    ):
        refused = lab.provision("clone", *words)
        assert refused.code == code, refused.err
    assert (lab.folder / "homelab.yml").read_text() == text
    assert {one["name"] for one in lab.made()} == names


def test_destroying_it_leaves_file_and_lab_as_they_were(lab: Lab) -> None:
    lab.succeeded("destroy", COPY, "--yes", "--lab", NAME)
    assert (lab.folder / "homelab.yml").read_text() == FILE
    assert [one["name"] for one in lab.made()] == [ENGINE]
    assert lab.provision("plan", "--detailed-exitcode").code == 0
    assert lab.ask(ENGINE, PORT, "some", ENGINE_KEY).status == 200


def test_no_secret_was_seen(lab: Lab) -> None:
    lab.shows_none_of(ENGINE_KEY)
