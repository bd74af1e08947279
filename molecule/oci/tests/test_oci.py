"""An image as its users meet it, from a registry of one's own; and the role's proof, which fails where it must."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testinfra.host import Host

from tests.molecule.playbooks import Scenario
from tests.molecule.switched import listeners

FOLDER = Path(__file__).resolve().parents[1]
TEXT = (FOLDER / "vars.yml").read_text(encoding="utf-8").replace("!unsafe ", "")
VARS: dict[str, Any] = yaml.safe_load(TEXT)
KEY = VARS["oci_api_key"]
TOKEN = VARS["oci_secrets"][0]["value"]
UNIT, PORT, BEHIND = "oci.service", 8300, 18300
SCENARIO = Scenario(FOLDER, KEY, PORT)
PODMAN = "PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman"


def digest(name: str) -> str:
    """The digest of one of the images that the registry serves."""
    made = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "made"
    return (made / f"digest-{name}").read_text(encoding="utf-8").strip()


def image(name: str) -> str:
    """What the file says for that image."""
    return f"localhost:5443/test/web@{digest(name)}"


def inside(host: Host, *words: str) -> str:
    """What busybox prints in the image."""
    return str(host.check_output(f"{PODMAN} exec oci /bin/busybox {' '.join(words)}"))


def variable(host: Host, name: str) -> str:
    """A variable of the environment in the image."""
    said = dict(line.partition("=")[::2] for line in inside(host, "env").splitlines())
    return said.get(name, "")


def process(host: Host) -> str:
    """The unit's main process."""
    return str(host.check_output(f"systemctl show --property=MainPID --value {UNIT}"))


@pytest.fixture
def mended() -> Iterator[None]:
    """The scenario's own state when the test is over; without it the next tests would mean nothing."""
    yield
    SCENARIO.passes("converge.yml")


# What is there.


def test_it_answers_on_its_paths_alone_and_with_the_key(host: Host) -> None:
    assert listeners(host, PORT, BEHIND) == {f"0.0.0.0:{PORT}": "haproxy", f"127.0.0.1:{BEHIND}": "conmon"}
    assert SCENARIO.http(host, "/health") == (200, "first\n")
    assert SCENARIO.http(host, "/")[0] == 401
    assert SCENARIO.http(host, "/", key=KEY)[0] == 200
    assert SCENARIO.http(host, "/cgi-bin/answer", {"a": 1})[0] == 401
    assert SCENARIO.http(host, "/cgi-bin/answer", {"a": 1}, key=KEY) == (200, {"a": 1})
    assert SCENARIO.http(host, "/hidden", key=KEY)[0] == 404


def test_it_may_nothing_and_has_what_was_asked_for(host: Host) -> None:
    state = json.loads(host.check_output(f"{PODMAN} container inspect oci"))[0]
    status = host.check_output(f"cat /proc/{state['State']['Pid']}/status")
    words = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (words["CapEff"], words["CapBnd"], words["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    assert variable(host, "NOTE") == VARS["oci_environment"]["NOTE"]
    assert variable(host, "TOKEN") == TOKEN
    assert inside(host, "id", "-u") == "1000"
    assert inside(host, "sh", "-c", "'/bin/busybox touch /etc/x 2>&1 || /bin/busybox echo no'").endswith("no")


def test_its_root_is_nobody_and_its_volume_outlives_it(host: Host) -> None:
    inside(host, "touch", "/data/kept")
    host.check_output(f"systemctl restart {UNIT}")
    assert host.file("/var/lib/oci/volumes/data/kept").uid == 1_000_000 + 1000
    assert inside(host, "ls", "/data") == "kept"


def test_secrets_are_in_no_journal_argument_unit_or_other_file(host: Host) -> None:
    store = host.file("/var/lib/containers/storage/secrets/filedriver/secretsdata.json")
    assert (store.mode, store.user) == (0o600, "root")
    found = host.check_output(
        f"journalctl --no-pager --all --quiet --boot; ps -efww; systemctl cat {UNIT}; {PODMAN} container inspect oci;"
        f" {PODMAN} image inspect {image('first')}; cat /etc/oci/* /etc/containers/systemd/* /etc/switch-oci.cfg;"
        " find /run -name '*.json' -size -100k -not -path '*/crun/*' -exec cat {} +"
    )
    assert "oci" in found
    for secret in (KEY, TOKEN, VARS["oci_registry_password"]):
        assert secret not in found


def test_podman_takes_no_orders(host: Host) -> None:
    assert host.check_output("systemctl is-enabled podman.socket || true") == "masked"
    assert not host.file("/run/podman/podman.sock").exists


def test_who_routes_a_packet_past_the_port_gets_no_answer(host: Host) -> None:
    """From a network of its own beside the container's, as a neighbour on the bridge could send it."""
    at = host.check_output(f"{PODMAN} container inspect oci --format '{{{{.NetworkSettings.IPAddress}}}}'")
    host.check_output(
        "ip netns add beside && ip link add beside0 type veth peer name beside1 netns beside"
        " && ip addr add 10.99.0.1/24 dev beside0 && ip link set beside0 up"
        " && ip -n beside addr add 10.99.0.2/24 dev beside1 && ip -n beside link set beside1 up"
        " && ip -n beside route add default via 10.99.0.1"
    )
    ask = f"ip netns exec beside busybox wget -q -T 3 -O /dev/null http://{at}:80/health"
    try:
        assert host.run(ask).rc != 0
        host.check_output("nft flush chain inet oci forward")
        assert host.run(ask).rc == 0
        SCENARIO.refuses("verify_alone.yml", "Unable to trust the network of Podman")
    finally:
        host.check_output(f"ip link del beside0; ip netns del beside; systemctl restart {UNIT}")
    SCENARIO.passes("verify_alone.yml")


def test_a_second_run_changes_nothing_and_a_check_shows_what_would_be(host: Host) -> None:
    before = process(host)
    assert "changed=0" in SCENARIO.passes("converge.yml")
    assert "changed=0" in SCENARIO.passes("converge.yml", "--check", "--diff")
    assert "RunInit" in SCENARIO.passes("converge.yml", "--check", "--diff", oci_init=False)
    assert process(host) == before


# Another image.


@pytest.mark.usefixtures("mended")
def test_another_digest_is_an_exchange_and_the_old_image_is_there_for_a_rollback(host: Host) -> None:
    SCENARIO.passes("converge.yml", oci_image=image("second"))
    assert SCENARIO.http(host, "/health") == (200, "second\n")
    assert json.loads(host.check_output("cat /etc/oci/images.json")) == [image("second"), image("first")]
    host.check_output("systemctl stop test-registry.service")
    SCENARIO.passes("converge.yml")  # back, and nobody is asked
    assert SCENARIO.http(host, "/health") == (200, "first\n")
    host.check_output("systemctl start test-registry.service")
    SCENARIO.passes("converge.yml", oci_image=image("third"))
    there = host.check_output(f"{PODMAN} images --digests --format '{{{{.Digest}}}}'").split()
    assert set(there) == {digest("third"), digest("first")}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("foreign", "it is made for linux/arm64"),
        ("", "The registry has no image of that name with that digest"),
    ],
)
def test_an_image_for_another_machine_or_of_no_such_digest_is_refused(host: Host, name: str, words: str) -> None:
    before = process(host)
    other = image(name) if name else f"localhost:5443/test/web@sha256:{'a' * 64}"
    SCENARIO.refuses("converge.yml", words, oci_image=other)
    assert process(host) == before


def test_a_wrong_password_is_refused_without_showing_it() -> None:
    done = SCENARIO.run("converge.yml", oci_image=image("second"), oci_registry_password="CANARY9-wrong-password")
    assert done.returncode != 0
    assert "Write `registry_user` and `registry_password`" in done.stdout
    assert "CANARY9" not in done.stdout


@pytest.mark.usefixtures("mended")
def test_another_secret_is_another_start_and_one_that_is_not_named_is_forgotten(host: Host) -> None:
    SCENARIO.passes("converge.yml", oci_secrets=[{"name": "OTHER", "value": "canary-other"}])
    assert variable(host, "OTHER") == "canary-other"
    assert host.check_output(f"{PODMAN} secret ls --format '{{{{.Name}}}}'") == "oci-OTHER"


# The proof, where something is wrong.


@pytest.mark.usefixtures("mended")
def test_another_image_under_its_name_is_no_proof(host: Host) -> None:
    host.check_output(f"sed -i 's/{digest('first')}/{digest('third')}/' /etc/containers/systemd/oci.container")
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    SCENARIO.refuses("verify_alone.yml", "Unable to trust the image that runs", digest("third"))


@pytest.mark.usefixtures("mended")
def test_a_folder_of_the_machine_and_another_port_are_no_proof(host: Host) -> None:
    host.check_output(
        "sed -i '/^UIDMap/i Volume=/etc:/www/cgi-bin:ro\\nPublishPort=0.0.0.0:18400:80'"
        " /etc/containers/systemd/oci.container"
    )
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    SCENARIO.refuses(
        "verify_alone.yml", "/etc of the machine is mounted at /www/cgi-bin", "it is published at 0.0.0.0:18400"
    )


def test_a_command_that_says_it_is_not_well_is_no_proof() -> None:
    SCENARIO.refuses("verify_alone.yml", "`health_command` ended with 1", oci_health_command=["/bin/busybox", "false"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"oci_image": "docker.io/library/nginx:1.27"}, "a tag may mean another image tomorrow"),
        ({"oci_port": 80}, "`port` (80) must be 1024 or more"),
        ({"oci_pages": ["/"]}, "either in `pages`"),
        ({"oci_answers": [], "oci_looks": [], "oci_pages": ["/"]}, "no browser sends one"),
        ({"oci_registry_password": ""}, "belong together"),
        ({"oci_volumes": {"a": "/proc/x"}}, "which is no other one's"),
        ({"oci_volumes": {"../a": "/x"}}, "A folder of the machine or of the container cannot be given"),
        ({"oci_environment": {"TOKEN": "x"}}, "needs a name of its own"),
        ({"oci_arguments": ["a\nb"]}, "holds a control character"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(values: dict[str, Any], words: str) -> None:
    SCENARIO.refuses("converge.yml", words, **values)
