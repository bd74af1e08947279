"""The programs of role ``oci``: how an image and its secrets come, and what a look at the running one finds."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from provisioner.values import paths
from tests.case_files import read_cases
from tests.scenario_programs import module_at

CASES = read_cases("ansible/oci_programs")

PROGRAMS = paths.roles() / "oci/programs"
NAMES = ("card", "image", "look", "secrets", "release")
CARD, IMAGE, LOOK, SECRETS, RELEASE = (module_at(PROGRAMS / f"{name}.py") for name in NAMES)
OLD, FORMER, NEW = (f"registry.example/web@sha256:{letter * 64}" for letter in "abc")
PODMAN = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
state = json.loads((folder / "state").read_text())
words = sys.argv[1:]
with (folder / "asked").open("a") as file: file.write(json.dumps(words) + "\\n")
if words[:2] == ["image", "exists"]: sys.exit(0 if words[2] in state["images"] else 1)
if words[0] == "pull":
    if state["refuses"]: sys.exit(state["refuses"])
    if "--authfile" in words: (folder / "told").write_text(open(words[words.index("--authfile") + 1]).read())
    state["images"].append(words[-1])
if words[0] == "rmi": state["images"].remove(words[1])
if words[:2] == ["image", "inspect"]: print(state["machine"])
if words[0] == "secret":
    kept = state["secrets"]
    if words[1] == "ls": print("\\n".join([*kept, "strange"]))
    if words[1] == "inspect": print(json.dumps([{"SecretData": kept[words[3]]}]))
    if words[1] == "create": kept[words[3]] = sys.stdin.read()
    if words[1] == "rm": del kept[words[2]]
(folder / "state").write_text(json.dumps(state))
"""


class Podman:
    """A stand-in that keeps images and secrets in a file, and notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "podman"
        program.write_text(PODMAN.replace("/usr/bin/env python3", sys.executable), encoding="utf-8")
        program.chmod(0o755)
        machine = IMAGE.MACHINES.get(os.uname().machine, os.uname().machine)
        self.write(images=[], refuses="", machine=f"linux/{machine}", secrets={})

    def write(self, **changes: Any) -> None:
        """Set its state."""
        (self.folder / "state").write_text(json.dumps({**self.state(), **changes}), encoding="utf-8")

    def state(self) -> dict[str, Any]:
        """What it has."""
        file = self.folder / "state"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    def asked(self) -> str:
        """All that it was asked, as a text."""
        file = self.folder / "asked"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def run(self, program: str, told: Any, *arguments: str) -> Any:
        """What a program of the role prints, which finds this Podman."""
        done = subprocess.run(
            [sys.executable, "-BEsS", str(PROGRAMS / f"{program}.py"), *arguments],
            input=json.dumps(told),
            env={"PATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return json.loads(done.stdout)


@pytest.fixture
def podman(tmp_path: Path) -> Podman:
    """The stand-in."""
    return Podman(tmp_path)


def wanted(podman: Podman, image: str, password: str = "") -> dict[str, Any]:
    """What the role tells the program that brings an image."""
    user = "penny" if password else ""
    record = str(podman.folder / "images.json")
    return {"image": image, "user": user, "password": password, "record": record, "within_s": 60}


def test_an_image_is_fetched_once_and_the_one_before_it_stays(podman: Podman) -> None:
    for image, there in ((OLD, [OLD]), (FORMER, [OLD, FORMER]), (NEW, [FORMER, NEW])):
        assert podman.run("image", wanted(podman, image)) == {"changed": True, "error": ""}
        assert podman.state()["images"] == there
    assert podman.run("image", wanted(podman, NEW)) == {"changed": False, "error": ""}
    assert podman.asked().count('"pull"') == 3
    assert podman.run("image", wanted(podman, FORMER)) == {"changed": True, "error": ""}
    assert podman.asked().count('"pull"') == 3  # a rollback asks nobody


def test_an_image_that_somebody_else_fetched_stays(podman: Podman) -> None:
    podman.write(images=["registry.example/hand@sha256:1"])
    for image in (OLD, FORMER, NEW):
        podman.run("image", wanted(podman, image))
    assert podman.state()["images"] == ["registry.example/hand@sha256:1", FORMER, NEW]


def test_a_look_changes_nothing(podman: Podman) -> None:
    assert podman.run("image", wanted(podman, OLD), "--look") == {"changed": True, "error": ""}
    assert podman.state()["images"] == []
    assert not (podman.folder / "images.json").exists()


def test_the_password_is_told_by_a_file_alone_that_is_gone(podman: Podman) -> None:
    podman.run("image", wanted(podman, OLD, "canary-password"))
    assert "canary" not in podman.asked()
    assert json.loads((podman.folder / "told").read_text(encoding="utf-8"))["auths"].keys() == {"registry.example"}
    (words,) = (json.loads(line) for line in podman.asked().splitlines() if '"pull"' in line)
    assert not Path(words[words.index("--authfile") + 1]).exists()


@pytest.mark.parametrize(
    ("says", "words"), CASES["what a registry refuses is told with what to do and without the password"]
)
def test_what_a_registry_refuses_is_told_with_what_to_do_and_without_the_password(
    podman: Podman, says: str, words: str
) -> None:
    podman.write(refuses=says)
    said = podman.run("image", wanted(podman, OLD, "canary-password"))
    assert said["error"].startswith(f"Unable to bring {OLD}: podman pull says:")
    assert words in said["error"]
    assert "canary" not in said["error"]


def test_an_image_for_another_machine_is_refused_and_removed(podman: Podman) -> None:
    podman.write(machine="linux/s390x")
    assert "it is made for linux/s390x" in podman.run("image", wanted(podman, OLD))["error"]
    assert podman.state()["images"] == []


def test_secrets_come_by_standard_input_and_what_nobody_names_is_forgotten(podman: Podman) -> None:
    podman.write(secrets={"oci-GONE": "x", "oci-SAME": "canary-same"})
    told = {"NEW": 'canary"\\$\n{{7*7}}', "SAME": "canary-same"}
    assert podman.run("secrets", told, "--look") == {"changed": ["NEW", "GONE"], "error": ""}
    assert podman.run("secrets", told) == {"changed": ["NEW", "GONE"], "error": ""}
    assert podman.state()["secrets"] == {"oci-SAME": "canary-same", "oci-NEW": 'canary"\\$\n{{7*7}}'}
    assert podman.run("secrets", told) == {"changed": [], "error": ""}
    assert "canary" not in podman.asked()


def test_without_podman_the_error_is_told(tmp_path: Path) -> None:
    podman = Podman(tmp_path)
    (tmp_path / "podman").chmod(stat.S_IRUSR)
    assert "podman secret ls" in podman.run("secrets", {"A": "b"})["error"]
    assert podman.run("secrets", {"A": "b"}, "--look") == {"changed": ["A"], "error": ""}


RUNNING: dict[str, Any] = {
    "Image": "1",
    "ImageName": NEW,
    "HostConfig": {"Privileged": False, "NetworkMode": "bridge", "PidMode": "private", "IpcMode": "shareable"},
    "Mounts": [{"Type": "bind", "Source": "/var/lib/oci/volumes/data", "Destination": "/data"}],
    "NetworkSettings": {"Ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18300"}]}},
}
EXPECTED = {
    "image": NEW,
    "published": "127.0.0.1:18300",
    "image_port": 80,
    "volumes": "/var/lib/oci/volumes",
    "further": {},
}
DESCRIBED = {"Id": "1", "Digest": NEW.partition("@")[2], "RepoDigests": [NEW]}


def problems_of(running: dict[str, Any], image: dict[str, Any] = DESCRIBED) -> list[str]:
    """All that is wrong with it."""
    return [
        *LOOK.image_problems(running, image, EXPECTED),
        *LOOK.power_problems(running, EXPECTED),
        *LOOK.port_problems(running, EXPECTED),
    ]


def test_one_that_is_as_the_file_says_has_no_problem() -> None:
    assert problems_of(RUNNING) == []


@pytest.mark.parametrize(("changes", "words"), CASES["what no image may have is a problem"])
def test_what_no_image_may_have_is_a_problem(changes: dict[str, Any], words: str) -> None:
    (problem,) = problems_of({**RUNNING, **changes})
    assert words in problem


@pytest.mark.parametrize(("status", "powers", "words"), CASES["what does not hold an image is a problem"])
def test_what_does_not_hold_an_image_is_a_problem(status: dict[str, str], powers: list[str], words: str) -> None:
    held = {"CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
    assert list(LOOK.confinement_problems(held, {"capabilities": []})) == []
    problems = list(LOOK.confinement_problems(held | status, {"capabilities": powers}))
    assert [words in problem for problem in problems] == ([True] if words else [])


def test_a_process_is_known_by_what_the_kernel_says_of_it() -> None:
    status = LOOK.status_of(os.getpid())
    assert status["Pid"] == str(os.getpid())
    assert {"CapBnd", "NoNewPrivs", "Seccomp", "Groups"} <= status.keys()


def test_a_further_port_is_published_where_the_file_says_it() -> None:
    there = {"HostIp": "", "HostPort": "53"}
    ports = {**RUNNING["NetworkSettings"]["Ports"], "5353/udp": [there]}
    running = {**RUNNING, "NetworkSettings": {"Ports": ports}}
    expected = {**EXPECTED, "further": {"0.0.0.0:53/udp": "5353/udp"}}
    assert list(LOOK.port_problems(running, expected)) == []
    (problem,) = LOOK.port_problems(running, EXPECTED)
    assert problem == "it is published at 0.0.0.0:53/udp, 127.0.0.1:18300/tcp, and not at 127.0.0.1:18300/tcp alone"
    (problem,) = LOOK.port_problems(RUNNING, expected)
    assert "not at 0.0.0.0:53/udp" in problem


def test_an_image_that_speaks_no_http_is_published_by_its_further_ports_alone() -> None:
    running = {**RUNNING, "NetworkSettings": {"Ports": {"1883/tcp": [{"HostIp": "", "HostPort": "1883"}]}}}
    expected = {**EXPECTED, "published": "", "image_port": 0, "further": {"0.0.0.0:1883/tcp": "1883/tcp"}}
    assert list(LOOK.port_problems(running, expected)) == []
    (problem,) = LOOK.port_problems(RUNNING, expected)
    assert "it is published at 127.0.0.1:18300/tcp, and not at 0.0.0.0:1883/tcp alone" in problem


@pytest.mark.parametrize(("published", "within_s", "asked"), [("", 30, 3), ("127.0.0.1:18300", 30, 1), ("", 0, 1)])
def test_an_image_without_a_page_is_asked_until_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, published: str, within_s: float, asked: int
) -> None:
    answers = [1, 1, 0]

    def podman(*words: str, **_: float) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, answers.pop(0), "", "")

    monkeypatch.setattr(LOOK, "podman", podman)
    monkeypatch.setattr(LOOK, "ASKED_EACH_S", 0)
    wanted = {"container": "oci", "health_command": ["/bin/ask"], "published": published, "within_s": within_s}
    told = list(LOOK.health_problems(wanted))
    assert 3 - len(answers) == asked
    assert told == ([] if asked == 3 else ["`health_command` ended with 1"])


@pytest.mark.parametrize(("kind", "protocol"), [(socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")])
def test_a_further_port_at_which_nothing_listens_is_a_problem(kind: socket.SocketKind, protocol: str) -> None:
    """This process stands in for the image's."""
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        if protocol == "tcp":
            listener.listen()
        inside = f"{listener.getsockname()[1]}/{protocol}"
        wanted = {"further": {f"0.0.0.0:53/{protocol}": inside}, "within_s": 0}
        assert list(LOOK.deaf_ports(os.getpid(), wanted)) == []
    (problem,) = LOOK.deaf_ports(os.getpid(), wanted)
    assert problem == f"0.0.0.0:53/{protocol} leads to port {inside} of the image, and nothing listens there"


def test_a_secret_that_is_no_file_of_the_image_is_a_problem() -> None:
    (problem,) = LOOK.file_problems(os.getpid(), {"secret_files": {"provision-none": "canary"}})
    assert problem == "/run/secrets/provision-none of the image is not the secret of the file"


def test_another_digest_under_the_name_is_a_problem() -> None:
    (problem,) = problems_of(RUNNING, {"Id": "1", "Digest": "sha256:other", "RepoDigests": []})
    assert "the image has the digest sha256:other" in problem


def test_the_digest_that_is_told_is_that_of_the_image_which_runs() -> None:
    other = {"Digest": "sha256:list", "RepoDigests": [OLD, NEW]}
    assert LOOK.digest_of(other, EXPECTED) == NEW.partition("@")[2]
    assert LOOK.digest_of({**other, "RepoDigests": [OLD]}, EXPECTED) == "sha256:list"


CACHE = """\
3 libs found in cache `/etc/ld.so.cache'
\tlibnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
\tlibnvidia-container.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-container.so.1
\tlibGLX_nvidia.so.0 (libc6,x86-64) => /lib/x86_64-linux-gnu/libGLX_nvidia.so.0
\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6,x86-64) => /usr/local/stubs/libcuda.so.1
\tlibcuda.so.1 (libc6) => /lib/i386-linux-gnu/libcuda.so.1
\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13
"""


def test_the_libraries_for_computing_are_those_that_programs_load_first() -> None:
    assert CARD.libraries_in(CACHE) == {
        "libnvidia-ml.so.1": "/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "libcuda.so.1": "/lib/x86_64-linux-gnu/libcuda.so.1",
    }


def test_a_library_is_given_as_the_file_behind_its_link(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.9").touch()
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.9")
    first = CARD.mounts_of({"libcuda.so.1": str(tmp_path / "libcuda.so.1")})[-1]
    assert first["hostPath"] == str(tmp_path / "libcuda.so.9")
    assert first["containerPath"] == "/usr/local/nvidia/lib64/libcuda.so.1"
    assert "ro" in first["options"]


def test_a_driver_without_its_main_library_is_refused() -> None:
    with pytest.raises(CARD.UnableError, match=r"libcuda\.so\.1 is not in this container"):
        CARD.mounts_of({"libnvidia-ml.so.1": "/lib/libnvidia-ml.so.1"})


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("", "/usr/local/nvidia/lib64"),
        ("/x", "/x:/usr/local/nvidia/lib64"),
        ("/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"),
        ("/x::", "/x:/usr/local/nvidia/lib64"),
    ],
)
def test_the_path_of_libraries_keeps_what_the_image_sets(path: str, wanted: str) -> None:
    assert CARD.path_with_ours(path) == wanted


def test_a_card_that_is_not_there_is_refused(podman: Podman) -> None:
    told = {"vendor": "amd", "nodes": ["/dev/null", "/dev/provision-none"], "image": NEW, "libraries": ""}
    said = podman.run("card", told)
    assert (said["spec"], said["error"]) == (
        "",
        "/dev/provision-none of the card is not in this container. See: provision doctor",
    )


def test_a_card_without_libraries_of_ours_is_its_device_files(podman: Podman) -> None:
    """Devices of every machine stand in for those of a card."""
    said = podman.run("card", {"vendor": "amd", "nodes": ["/dev/null", "/dev/zero"], "image": NEW, "libraries": ""})
    spec = json.loads(said["spec"])
    assert spec["kind"] == "provision.local/gpu"
    (device,) = spec["devices"]
    assert device["containerEdits"] == {"deviceNodes": [{"path": "/dev/null"}, {"path": "/dev/zero"}]}
    assert (said["groups"], said["libraries"], said["error"]) == ([], "", "")


def test_the_group_of_a_device_file_that_not_everybody_opens_is_told(tmp_path: Path) -> None:
    for name, mode in (("open", 0o666), ("closed", 0o660)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    assert CARD.groups_of([str(tmp_path / "open")]) == []
    assert CARD.groups_of([str(tmp_path / "closed")]) == [(tmp_path / "closed").stat().st_gid]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
def test_a_device_that_nobody_gave_is_seen_in_a_root(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/file").touch()
    assert LOOK.devices_in(tmp_path) == {}
    os.mknod(tmp_path / "dev/card0", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(tmp_path / "dev/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    assert LOOK.devices_in(tmp_path) == {"/dev/card0": os.makedev(1, 3)}


def test_a_library_that_is_another_one_inside_or_is_not_found_is_a_problem(tmp_path: Path) -> None:
    """This process stands in for the image's: its root is the machine's."""
    (tmp_path / "libcuda.so.1").touch()
    (tmp_path / "other.so").touch()
    mount = {"hostPath": str(tmp_path / "libcuda.so.1"), "containerPath": str(tmp_path / "other.so")}
    problems = list(LOOK.library_problems(os.getpid(), {"mounts": [mount]}))
    assert problems[0] == f"{tmp_path}/other.so in the image is not the driver's {tmp_path}/libcuda.so.1"
    assert problems[1].endswith(f"does not name {tmp_path}")


def test_a_card_that_went_away_is_a_problem() -> None:
    gone = {"deviceNodes": [{"path": "/dev/provision-none"}]}
    problems = list(LOOK.device_problems(os.getpid(), gone))
    assert "/dev/provision-none of the card is gone from this container" in problems


def test_a_secret_that_shows_is_found_by_its_place() -> None:
    texts = {"the unit": "Environment=TOKEN=canary", "`podman inspect`": "TOKEN=***"}
    assert LOOK.leaks(["canary", ""], texts) == ["the unit"]


@pytest.mark.parametrize(
    ("text", "number"),
    [('ID=debian\nVERSION_ID="13"\n', 13), ("ID=debian\n", 0), ("ID=ubuntu\nVERSION_ID=24\n", 0), ("", 0)],
)
def test_the_release_is_that_of_debian(text: str, number: int) -> None:
    assert RELEASE.release(text) == number
