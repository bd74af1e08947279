"""``oci`` in a lab's file, up on a real host: an image made on the spot, from a registry as people have one at home.

The registry is Debian's, in a container beside the lab's, with an authority of its own and a login
(``tests/oci_registry.sh``). The tests build on each other, in their order.
"""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.up.quickstart_lab import Lab, sh
from tests.lab.incus import Lab as Incus
from tests.lab_files import lab_text

pytestmark = [pytest.mark.incus, pytest.mark.network, pytest.mark.slow]

NAME, BESIDE = "e2eoci", "e2eoci-registry"
SCRIPT = Path(__file__).resolve().parents[2] / "oci_registry.sh"
IN_FILE = "CANARY4-a-file-of-an-image"
KEY, TOKEN, PASSWORD = "CANARY1-of-an-image-0123456789", 'CANARY2-"$HOME\\%n#{{8*8}}', "CANARY3-registry-0123456789"
PORT = 8300
FILE = lab_text("oci")


class ImageLab(Lab):
    """The lab, with what its registry serves."""

    registry: str
    digests: dict[str, str]

    def write_file(self, image: str = "first", text: str = FILE) -> None:
        """Write the file for one of the images, and its secrets."""
        self.write(text.replace("REGISTRY", self.registry).replace("DIGEST", self.digests[image]))
        secrets = self.folder / "secrets.env"
        secrets.write_text(f"key={KEY}\ntoken={TOKEN}\nregistry={PASSWORD}\nfile={IN_FILE}\n", encoding="utf-8")
        secrets.chmod(0o600)

    def asked(
        self, path: str, body: dict[str, Any] | None = None, key: str | None = KEY, port: int = PORT
    ) -> tuple[int, str]:
        """Status and text of an answer of one of the service's ports."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address('image')}:{port}{path}", data, headers)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def with_registry(lab: ImageLab) -> None:
    """Start the registry's container, and note where it is and what it serves."""
    lab.incus("delete", "--force", BESIDE, check=False)  # what an interrupted run of this test left
    lab.incus("launch", "debian/13", BESIDE, "--config", "security.nesting=true")
    waits = (
        "until systemctl is-system-running --quiet && ip -4 -brief address show eth0 | grep -q /; do sleep 0.2; done"
    )
    lab.incus("exec", BESIDE, "--", "timeout", "120", "bash", "-c", waits)
    address = sh(lab, BESIDE, "ip -4 -brief address show eth0").split()[2].partition("/")[0]
    lab.incus("file", "push", str(SCRIPT), f"{BESIDE}/root/make.sh")
    lab.incus("exec", BESIDE, "--", "bash", "/root/make.sh", address)
    lab.registry = f"{address}:5443"
    names = ("first", "second", "foreign")
    lab.digests = {name: sh(lab, BESIDE, f"cat /srv/registry/digest-{name}").strip() for name in names}
    lab.digests["none"] = f"sha256:{'a' * 64}"
    (lab.folder / "ca.crt").write_text(sh(lab, BESIDE, "cat /srv/registry/ca.crt"), encoding="utf-8")


@pytest.fixture(scope="module")
def lab(incus_lab: Incus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageLab]:
    """The lab, up."""
    lab = ImageLab(tmp_path_factory.mktemp("oci"), incus_lab.environment, "debian/13", "debian/13", name=NAME)
    try:
        with_registry(lab)
        lab.write_file()
        lab.provision("destroy", "--yes", "--lab", NAME)  # what an interrupted run of this test left
        lab.runs.clear()
        lab.succeeded("up", "--yes", "--json")
        yield lab
        lab.succeeded("destroy", "--prune", "--yes", "--lab", NAME, "--json")
    finally:
        environment = {**incus_lab.environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        subprocess.run(
            ["incus", "delete", "--force", BESIDE], env=environment, capture_output=True, check=False, timeout=120
        )


def test_it_is_proved_and_the_next_run_has_nothing_to_do(lab: ImageLab) -> None:
    assert lab.runs[0].checks == {"image/oci": True}
    lab.succeeded("plan", "--detailed-exitcode")
    lab.incus("stop", BESIDE)  # what runs needs no registry
    lab.succeeded("verify")
    lab.succeeded("audit")
    lab.incus("start", BESIDE)


def test_it_answers_with_the_key_on_its_paths_alone(lab: ImageLab) -> None:
    assert lab.asked("/health", key=None) == (200, "first\n")
    assert lab.asked("/", key=None)[0] == 401
    assert lab.asked("/cgi-bin/answer", {"a": 1}, key=None)[0] == 401
    assert lab.asked("/cgi-bin/answer", {"a": 1}) == (200, '{"a": 1}')
    assert lab.asked("/hidden")[0] == 404


def test_further_ports_reach_the_image_itself_and_a_secret_is_a_file(lab: ImageLab) -> None:
    assert lab.asked("/hidden", key=None, port=1883) == (200, "hidden\n")
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"from the host", (lab.address("image"), 5300))
    heard = "/var/lib/oci/volumes/data/heard"
    sh(lab, "image", f"timeout 20 sh -c 'until grep -q \"from the host\" {heard}; do sleep 0.1; done'")
    process = "$(PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman container inspect oci --format '{{.State.Pid}}')"
    assert sh(lab, "image", f"cat /proc/{process}/root/run/secrets/key.pem") == IN_FILE


def reached(lab: ImageLab, *places: tuple[str, int], as_image: bool = True) -> list[tuple[str, int]]:
    """Return those of the places to which a program in the image's network, or in the container's own, connects."""
    program = "import json, sys; sys.path.insert(0, '/usr/local/lib/egress'); import egress; "
    program += "print(json.dumps(egress.ask([tuple(place) for place in json.loads(sys.argv[1])])))"
    process = "$(PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman container inspect oci --format '{{.State.Pid}}')"
    network = f"nsenter --target {process} --net " if as_image else ""
    told = sh(lab, "image", f'{network}python3 -BS -c "{program}" {shlex.quote(json.dumps(places))}')
    return [(host, port) for host, port, code in json.loads(told) if code == 0]


def test_a_hostile_image_reaches_only_what_the_file_connects(lab: ImageLab) -> None:
    """The host, a neighbour, another lab's container, the link and the internet are asked at 40 places."""
    gateway = sh(lab, "image", "ip -4 route show default").split()[2]
    own, beside = lab.address("image"), lab.registry.partition(":")[0]
    with socket.socket(type=socket.SOCK_DGRAM) as way:  # nothing is sent
        way.connect(("192.0.2.1", 9))
        host = way.getsockname()[0]
    names = ("localhost.localdomain", f"{BESIDE}.incus", "image.incus", "_gateway")
    places = [
        *((gateway, port) for port in (22, 53, 80, 443, 2375, 8006, 8443)),
        *((f"::ffff:{gateway}", port) for port in (22, 53, 8443)),
        *((host, port) for port in (22, 80, 443, 8006, 8443)),
        *((beside, port) for port in (22, 80, 5443, 8080)),
        *((own, port) for port in (22, 1883, PORT, PORT + 10000)),
        *((address, 80) for address in ("169.254.169.254", "169.254.170.2", "169.254.0.1", "100.100.100.200")),
        *((address, 80) for address in ("fe80::1", "fe80::a9fe:a9fe", "fd00:ec2::254", "fd42::1", "ff02::1")),
        *((name, port) for name in names for port in (53, 5443)),
    ]
    assert len(places) == 40
    assert {(gateway, 53), (beside, 5443)} <= set(reached(lab, *places[:19], as_image=False))
    assert reached(lab, *places) == []
    assert "nothing lets it out" in lab.succeeded("audit").out
    lab.write_file(
        text=FILE.replace("        image_port: 80\n", f'        image_port: 80\n        reaches: ["{beside}:5443"]\n')
    )
    lab.succeeded("up", "--yes")
    assert reached(lab, *places) == [(beside, 5443)]
    lab.write_file()
    lab.succeeded("up", "--yes")
    assert reached(lab, *places) == []


def test_another_digest_is_an_update_and_the_one_before_it_needs_no_registry(lab: ImageLab) -> None:
    wait = f"until curl -sk --noproxy '*' https://{lab.registry}/v2/ >/dev/null; do sleep 0.2; done"
    subprocess.run(["timeout", "60", "bash", "-c", wait], check=True, timeout=60)
    sh(lab, "image", "touch /var/lib/oci/volumes/data/kept")
    lab.write_file("second")
    lab.succeeded("up", "--yes")
    assert lab.asked("/health") == (200, "second\n")
    lab.incus("stop", BESIDE)
    lab.write_file("first")
    lab.succeeded("up", "--yes")
    assert lab.asked("/health") == (200, "first\n")
    assert "kept" in sh(lab, "image", "ls /var/lib/oci/volumes/data").split()
    lab.incus("start", BESIDE)
    subprocess.run(["timeout", "60", "bash", "-c", wait], check=True, timeout=60)


@pytest.mark.parametrize(
    ("image", "words"),
    [("foreign", "it is made for linux/arm64"), ("none", "The registry has no image of that name with that digest")],
)
def test_what_cannot_run_here_is_refused_and_the_one_that_runs_stays(lab: ImageLab, image: str, words: str) -> None:
    lab.write_file(image)
    refused = lab.provision("up", "--yes")
    assert refused.code == 1, refused.out
    assert words in " ".join((refused.out + refused.err).split())
    assert lab.asked("/health") == (200, "first\n")
    lab.write_file("first")
    lab.succeeded("up", "--yes")


WITH_HTTP = """        image_port: 80
        api_key: !secret key
        answers: [/cgi-bin/answer]
        looks: [/]
        health: /health
"""
WITHOUT_HTTP = """        expose: lan
        health: ""
        health_command: [/bin/busybox, wget, -q, -O, /dev/null, "http://127.0.0.1:1883/health"]
"""


def test_an_image_that_speaks_no_http_is_proved_by_its_command(lab: ImageLab) -> None:
    assert WITH_HTTP in FILE
    lab.write_file(text=FILE.replace(WITH_HTTP, WITHOUT_HTTP))
    lab.succeeded("up", "--yes")
    assert lab.asked("/hidden", key=None, port=1883) == (200, "hidden\n")
    with pytest.raises(urllib.error.URLError):
        lab.asked("/health")
    with socket.socket(type=socket.SOCK_DGRAM) as sender:  # its host listens on all of its addresses
        sender.sendto(b"from the house", ("127.0.0.1", 5300))
    heard = "/var/lib/oci/volumes/data/heard"
    sh(lab, "image", f"timeout 20 sh -c 'until grep -q \"from the house\" {heard}; do sleep 0.1; done'")
    for words in (("plan", "--detailed-exitcode"), ("verify",), ("audit",), ("status",)):
        lab.succeeded(*words)
    lab.write_file()
    lab.succeeded("up", "--yes")
    assert lab.asked("/health") == (200, "first\n")


def test_it_starts_with_its_container(lab: ImageLab) -> None:
    lab.succeeded("verify", "--after-reboot")


def test_a_socket_of_podman_is_a_finding(lab: ImageLab) -> None:
    sh(lab, "image", "systemctl unmask podman.socket podman.service && systemctl start podman.socket")
    found = lab.provision("plan", "--detailed-exitcode")
    assert found.code == 2, found.out
    assert "podman.socket" in found.out
    lab.succeeded("up", "--yes")
    assert sh(lab, "image", "systemctl is-enabled podman.socket || true").strip() == "masked"


def test_no_secret_was_seen(lab: ImageLab) -> None:
    assert not lab.arguments_seen
    said = "".join(run.out + run.err for run in lab.runs)
    podman = "PODMAN_IGNORE_CGROUPSV1_WARNING=1 podman"
    shown = sh(lab, "image", f"journalctl --no-pager --all --quiet; {podman} container inspect oci; systemctl cat oci")
    assert "oci" in shown
    for secret in (KEY, TOKEN, PASSWORD, IN_FILE, "CANARY"):
        assert secret not in said
        assert secret not in shown
