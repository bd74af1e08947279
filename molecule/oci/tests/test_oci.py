"""An image as its users meet it, from a registry of one's own; and the role's proof, which fails where it must."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
TOKEN, FILE = (secret["value"] for secret in VARS["oci_secrets"])
SECURITY_LIMIT = 75
"""In tenths; docs/oci.md says why it is no less."""
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


@contextmanager
def neighbour(host: Host) -> Iterator[None]:
    """A network beside the container's, which it leads to its own; its commands begin with ``ip netns exec beside``."""
    host.check_output(
        "ip netns add beside && ip link add beside0 type veth peer name beside1 netns beside"
        " && ip addr add 10.99.0.1/24 dev beside0 && ip link set beside0 up"
        " && ip -n beside addr add 10.99.0.2/24 dev beside1 && ip -n beside link set beside1 up"
        " && ip -n beside route add default via 10.99.0.1"
    )
    try:
        yield
    finally:
        host.check_output("ip link del beside0; ip netns del beside")


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
    limits = host.check_output(f"cat /proc/{state['State']['Pid']}/limits /proc/{state['State']['Pid']}/oom_score_adj")
    assert [line.split()[2:4] for line in limits.splitlines() if line.startswith("Max processes")] == [["4096"] * 2]
    assert limits.splitlines()[-1] == "500"
    assert variable(host, "NOTE") == VARS["oci_environment"]["NOTE"]
    assert variable(host, "TOKEN") == TOKEN
    assert inside(host, "id", "-u") == "1000"
    assert inside(host, "sh", "-c", "'/bin/busybox touch /etc/x 2>&1 || /bin/busybox echo no'").endswith("no")


def test_its_unit_may_what_podman_needs(host: Host) -> None:
    host.check_output(f"systemd-analyze security --no-pager --threshold={SECURITY_LIMIT} {UNIT}")
    unit = host.check_output(f"systemctl show --property=MemoryMax,TasksMax {UNIT}")
    assert "TasksMax=4096" in unit
    assert "MemoryMax=infinity" not in unit


def test_its_root_is_nobody_and_its_volume_outlives_it(host: Host) -> None:
    inside(host, "touch", "/data/kept")
    host.check_output(f"systemctl restart {UNIT}")
    assert host.file("/var/lib/oci/volumes/data/kept").uid == 1_000_000 + 1000
    assert "kept" in inside(host, "ls", "/data").split()


def test_secrets_are_in_no_journal_argument_unit_or_other_file(host: Host) -> None:
    store = host.file("/var/lib/containers/storage/secrets/filedriver/secretsdata.json")
    assert (store.mode, store.user) == (0o600, "root")
    found = host.check_output(
        f"journalctl --no-pager --all --quiet --boot; ps -efww; systemctl cat {UNIT}; {PODMAN} container inspect oci;"
        f" {PODMAN} image inspect {image('first')}; cat /etc/oci/* /etc/containers/systemd/* /etc/switch-oci.cfg;"
        " find /run -name '*.json' -size -100k -not -path '*/crun/*' -exec cat {} +"
    )
    assert "oci" in found
    for secret in (KEY, TOKEN, FILE.strip(), VARS["oci_registry_password"]):
        assert secret not in found


def test_a_secret_is_a_file_of_the_images_user_alone(host: Host) -> None:
    assert inside(host, "stat", "-c", "'%u %a'", "/run/secrets/key.pem") == "1000 400"
    assert f"{inside(host, 'cat', '/run/secrets/key.pem')}\n" == FILE
    assert variable(host, "key.pem") == ""


def test_further_ports_reach_the_image_and_nothing_else_does(host: Host) -> None:
    """From a network of its own beside the container's, as a neighbour on the bridge could ask."""
    at = host.check_output(f"{PODMAN} container inspect oci --format '{{{{.NetworkSettings.IPAddress}}}}'")
    with neighbour(host):
        ask = "ip netns exec beside busybox wget -q -T 3 -O -"
        assert host.check_output(f"{ask} http://10.99.0.1:1883/hidden") == "hidden"
        assert host.run(f"{ask} http://{at}:1883/hidden").rc != 0
        assert host.run(f"{ask} http://{at}:80/health").rc != 0
        send = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'from-beside', ('10.99.0.1', 5300))"
        host.check_output(f'ip netns exec beside python3 -c "{send}"')
    heard = "/var/lib/oci/volumes/data/heard"
    host.check_output(f"timeout 20 sh -c 'until grep -q from-beside {heard}; do sleep 0.1; done'")
    there = {place.rpartition(":")[2] for place in listeners(host, 1883)}
    assert there == {"1883"}


def test_podman_takes_no_orders(host: Host) -> None:
    assert host.check_output("systemctl is-enabled podman.socket || true") == "masked"
    assert not host.file("/run/podman/podman.sock").exists


def test_who_routes_a_packet_past_the_port_gets_no_answer(host: Host) -> None:
    """From a network of its own beside the container's, as a neighbour on the bridge could send it."""
    at = host.check_output(f"{PODMAN} container inspect oci --format '{{{{.NetworkSettings.IPAddress}}}}'")
    ask = f"ip netns exec beside busybox wget -q -T 3 -O /dev/null http://{at}:80/health"
    try:
        with neighbour(host):
            assert host.run(ask).rc != 0
            host.check_output("nft flush chain inet oci forward")
            assert host.run(ask).rc == 0
            SCENARIO.refuses("verify_alone.yml", "Unable to trust the network of Podman")
    finally:
        host.check_output(f"systemctl restart {UNIT}")
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


HOSTILE = {
    "other-manifest": "What the registry has is not what `image` says",
    "endless": "Unable to bring",
    "other-layer": "What the registry has is not what `image` says",
    "short-layer": "Unable to bring",
    "drips": "did not end within 10 seconds",
    "elsewhere": "Unable to bring",
    "steers": "Unable to bring",
}
MOST_SAID = 6000
"""Characters of an error: that of Ansible, with ours twice."""


@pytest.fixture(scope="module")
def hostile(host: Host) -> Iterator[None]:
    """A registry that lies (``tests/attackers/registry.py``), at port 5444 of the container, for some minutes."""
    program = (FOLDER.parents[1] / "tests/attackers/registry.py").read_text(encoding="utf-8")
    host.check_output("mkdir -p /srv/hostile && printf %%s %s > /srv/hostile/registry.py", program)
    pair = "/srv/registry/registry.crt /srv/registry/registry.key"
    command = f"/usr/bin/python3 /srv/hostile/registry.py 5444 1500 {pair} /srv/hostile"
    host.check_output(f"systemd-run --unit=hostile --collect {command}")
    host.check_output("timeout 20 sh -c 'until ss -tln | grep -q :5444; do sleep 0.1; done'")
    yield
    host.check_output("systemctl stop hostile")
    SCENARIO.passes("converge.yml")


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("mode", HOSTILE)
def test_a_registry_that_lies_gives_nothing_and_the_image_that_runs_stays(host: Host, mode: str) -> None:
    before = process(host)
    told = host.check_output(f"cat /srv/hostile/digest-{mode}")
    done = SCENARIO.run("converge.yml", oci_image=f"localhost:5444/{mode}/web@{told}", __oci_pull_s=10)
    assert done.returncode != 0
    assert HOSTILE[mode] in done.stdout
    error = done.stdout[done.stdout.index("fatal: ") :] if "fatal: " in done.stdout else done.stdout
    assert len(error) < MOST_SAID
    assert "\x1b" not in done.stdout
    assert "CANARY-of-another-service" not in done.stdout
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


# A card, for which devices of every machine and a library that only has the right name stand in.

CARD = {"vendor": "nvidia", "nodes": ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]}
STAND_INS = """
set -e
apt-get install -y -q --no-install-recommends tcc
for name in nvidia0 nvidiactl nvidia-uvm; do touch /dev/$name; mount --bind /dev/null /dev/$name; done
echo 'int cuInit(unsigned flags) { return 0; }' > /root/driver.c
tcc -shared -nostdlib -Wl,-soname=libcuda.so.1 -o /usr/local/lib/libcuda.so.9.9 /root/driver.c
ldconfig
"""
TAKEN_AWAY = """
for name in nvidia0 nvidiactl nvidia-uvm; do umount /dev/$name; rm -f /dev/$name; done
rm -f /usr/local/lib/libcuda.so.*; ldconfig
"""


@pytest.fixture
def card(host: Host) -> Iterator[None]:
    """A card in the container, until the test is over; then the scenario's own state again."""
    host.check_output("bash -c %s", STAND_INS)
    yield
    host.run("bash -c %s", TAKEN_AWAY)
    SCENARIO.passes("converge.yml")
    assert not host.file("/etc/cdi/provision.json").exists
    assert "nvidia" not in inside(host, "ls", "/dev")


@pytest.mark.usefixtures("card")
def test_a_card_is_in_the_image_with_its_driver_and_nothing_starts_without_it(host: Host) -> None:
    SCENARIO.passes("converge.yml", oci_card=CARD)
    assert "changed=0" in SCENARIO.passes("converge.yml", oci_card=CARD)
    assert set(CARD["nodes"]) <= {f"/dev/{name}" for name in inside(host, "ls", "/dev").split()}
    assert inside(host, "ls", "/usr/local/nvidia/lib64") == "libcuda.so.1"
    assert variable(host, "LD_LIBRARY_PATH") == "/usr/local/nvidia/lib64"

    host.check_output("sed -i '/^AddDevice=/d' /etc/containers/systemd/oci.container")
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    SCENARIO.refuses("verify_alone.yml", "the image has no /dev/nvidia0 of the card", oci_card=CARD)
    SCENARIO.passes("converge.yml", oci_card=CARD)

    host.check_output("umount /dev/nvidia0 && rm /dev/nvidia0")
    SCENARIO.refuses("verify_alone.yml", "/dev/nvidia0 of the card is gone from this container", oci_card=CARD)
    SCENARIO.refuses(
        "converge.yml",
        "Unable to give the image its card: /dev/nvidia0 of the card is not in this container",
        oci_card=CARD,
    )
    assert host.run(f"systemctl restart {UNIT}").rc != 0
    assert "/dev/nvidia0" in host.check_output(f"journalctl --no-pager --quiet --unit {UNIT} --lines 40")
    host.check_output("touch /dev/nvidia0; mount --bind /dev/null /dev/nvidia0")


@pytest.mark.usefixtures("mended")
def test_a_device_file_of_a_group_is_opened_by_the_images_own_user(host: Host) -> None:
    host.run(f"systemctl reset-failed {UNIT}")  # the test before has started it often, and quickly on a quick machine
    node = "/dev/dri/renderD128"
    device = ("incus", "config", "device")
    add = ("render", "unix-char", "source=/dev/full", f"path={node}", "mode=0660", "gid=44")
    subprocess.run((*device, "add", host.backend.hostname, *add), check=True, capture_output=True, timeout=60)
    try:
        SCENARIO.passes("converge.yml", oci_card={"vendor": "amd", "nodes": [node]})
        assert inside(host, "id", "-u") == "1000"
        inside(host, "dd", f"if={node}", "of=/dev/null", "bs=1", "count=1")
        host.check_output("sed -i '/^GroupAdd=/d' /etc/containers/systemd/oci.container")
        host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
        words = f"{node} of the card belongs to group 44, in which the image's program is not"
        SCENARIO.refuses("verify_alone.yml", words, oci_card={"vendor": "amd", "nodes": [node]})
    finally:
        subprocess.run(
            (*device, "remove", host.backend.hostname, "render"), check=True, capture_output=True, timeout=60
        )


@pytest.mark.usefixtures("mended")
def test_a_device_that_nobody_gave_is_no_proof(host: Host) -> None:
    host.check_output("sed -i '/^UIDMap/i AddDevice=/dev/net/tun' /etc/containers/systemd/oci.container")
    host.check_output(f"systemctl daemon-reload && systemctl restart {UNIT}")
    SCENARIO.refuses("verify_alone.yml", "the image has the device /dev/net/tun, and nobody gave it that")


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


def test_a_further_port_at_which_nothing_listens_is_no_proof(host: Host) -> None:
    more = [*VARS["oci_ports"], {"port": 5999, "why": "nobody"}]
    SCENARIO.refuses("converge.yml", "0.0.0.0:5999/tcp leads to port 5999/tcp of the image", oci_ports=more)
    SCENARIO.passes("converge.yml")
    assert listeners(host, 5999) == {}


NO_HTTP: dict[str, Any] = {
    "oci_health": "",
    "oci_image_port": 0,
    "oci_api_key": "",
    "oci_answers": [],
    "oci_looks": [],
    # It is ready when a further port answers.
    "oci_health_command": ["/bin/busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:1883/health"],
}


@pytest.mark.usefixtures("mended")
def test_an_image_that_speaks_no_http_has_no_switch_and_is_asked_by_its_command(host: Host) -> None:
    SCENARIO.passes("converge.yml", **NO_HTTP)
    assert "changed=0" in SCENARIO.passes("converge.yml", **NO_HTTP)
    assert listeners(host, PORT) == listeners(host, BEHIND) == {}
    assert host.run("systemctl cat switch-oci").rc != 0
    assert host.check_output("busybox wget -q -O - http://127.0.0.1:1883/hidden") == "hidden"
    unwell = {**NO_HTTP, "oci_health_command": ["/bin/busybox", "false"], "oci_start_timeout_s": 5}
    SCENARIO.refuses("verify_alone.yml", "`health_command` ended with 1", **unwell)
    SCENARIO.refuses("verify_alone.yml", "/health did not answer 200", oci_start_timeout_s=5)


def test_a_command_that_says_it_is_not_well_is_no_proof() -> None:
    SCENARIO.refuses("verify_alone.yml", "`health_command` ended with 1", oci_health_command=["/bin/busybox", "false"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"oci_image": "docker.io/library/nginx:1.27"}, "a tag may mean another image tomorrow"),
        ({"oci_port": 80}, "`port` (80) must be 1024 or more"),
        ({"oci_pages": ["/"]}, "either in `pages`"),
        ({"oci_image_port": 0}, "write `image_port`"),
        ({"oci_health": ""}, "leave `image_port`, `api_key`"),
        ({**NO_HTTP, "oci_health_command": []}, "a command that says inside of it whether it is well"),
        ({"oci_answers": [], "oci_looks": [], "oci_pages": ["/"]}, "no browser sends one"),
        ({"oci_registry_password": ""}, "belong together"),
        ({"oci_volumes": {"a": "/proc/x"}}, "which is no other one's"),
        ({"oci_volumes": {"../a": "/x"}}, "A folder of the machine or of the container cannot be given"),
        ({"oci_environment": {"TOKEN": "x"}}, "needs a name of its own"),
        ({"oci_arguments": ["a\nb"]}, "holds a control character"),
        ({"oci_ports": [{"port": 53, "why": "names"}]}, "Unable to open 53/tcp: a port of `ports` is 1024 or more"),
        ({"oci_ports": [{"port": 18300, "why": "x"}]}, "each port is there once"),
        ({"oci_ports": [{"port": 5000, "image_port": 80, "why": "x"}]}, "is reached through the switch alone"),
        (
            {"oci_ports": [{"port": 53, "why": "names", "need": "x"}]},
            "Unable to open further ports: 53/tcp is taken (users:",
        ),
        ({"oci_ports": [{"port": 70000, "why": "x"}]}, "a port is a number from 1 to 65535"),
        ({"oci_secrets": [{"name": "../a", "value": "x", "as": "file"}]}, "needs a name of its own"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(values: dict[str, Any], words: str) -> None:
    SCENARIO.refuses("converge.yml", words, **values)


def asked_inside(host: Host, *places: tuple[str, int]) -> list[str]:
    """Return for each place the number of the error of a connection from the image's network, 0 for none."""
    program = "import json, sys; sys.path.insert(0, '/usr/local/lib/egress'); import egress; "
    program += "print(*(code for *_, code in egress.ask([tuple(place) for place in json.loads(sys.argv[1])])))"
    pid = f"$({PODMAN} container inspect oci --format '{{{{.State.Pid}}}}')"
    return str(host.check_output(f"nsenter -t {pid} -n python3 -BS -c %s %s", program, json.dumps(places))).split()


def test_it_reaches_nothing_but_what_it_is_given(host: Host) -> None:
    gateway = str(host.check_output("ip -4 route show default")).split()[2]
    address = str(host.check_output("ip -4 -brief address show eth0")).split()[2].partition("/")[0]
    beside = ("127.0.0.1", 80)  # its own
    places = [(gateway, 53), (gateway, 2222), (address, PORT), (address, 22), ("169.254.169.254", 80)]
    assert asked_inside(host, *places, beside) == ["111"] * 5 + ["0"]
    assert host.run(f"{PODMAN} exec oci /bin/busybox nslookup example.org {gateway}").rc != 0
    SCENARIO.passes("converge.yml", oci_reaches=[f"{gateway}:53"])
    assert asked_inside(host, *places) == ["0", "111", "111", "111", "111"]
    SCENARIO.passes("converge.yml")
    assert asked_inside(host, (gateway, 53)) == ["111"]


@pytest.mark.usefixtures("mended")
def test_an_image_without_its_rules_is_no_proof(host: Host) -> None:
    hold = "add table ip hold; add chain ip hold out { type filter hook postrouting priority 0; }"
    hold += "; add rule ip hold out ip daddr 169.254.0.0/16 drop"
    host.check_output("systemctl stop egress-oci.timer; nft %s && nft delete table inet egress_oci", hold)
    SCENARIO.refuses("verify_alone.yml", "table inet egress_oci is not what its page says")
    host.check_output("nft delete table ip hold")


@pytest.mark.usefixtures("hostile", "mended")
def test_files_that_would_lie_outside_of_an_image_lie_nowhere(host: Host) -> None:
    told = host.check_output("cat /srv/hostile/digest-out-of-it")
    SCENARIO.run("converge.yml", oci_image=f"localhost:5444/out-of-it/web@{told}", oci_start_timeout_s=5)
    assert told in host.check_output(f"{PODMAN} images --all --digests")
    assert not host.file("/etc/cron.d/hostile").exists
