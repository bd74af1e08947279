"""The collection and the package in one run: of two versions nothing is used, and nobody is asked anything."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from provisioner import __version__
from tests.integration.plain_ansible import ansible
from tests.processes import completed
from tests.scenario_programs import module_at
from tests.waiting import PATIENCE_S

__all__ = ["ansible"]


ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
OTHER, THIRD = "99.0.1", "98.0.1"
TREE = "ansible_collections/provisioner/inference"
TIMEOUT_S = 300
FINGERPRINT = "ab" * 32
SECRET = "canary-of-one-version"
HOST = f'{{incus: "https://127.0.0.1:PORT", fingerprint: "{FINGERPRINT}", cert: own.crt, key: own.key}}'
LAB = f"""
name: versions
hosts: {{box: {HOST}}}
containers: {{versions-one: {{}}}}
"""
WITH_SECRET = """
name: versions
hosts: {box: {incus: local}}
models: { tiny: { source: "builtin:tiny", context: 512 } }
containers: {versions-one: {services: {llama_cpp: {model: tiny, api_key: !secret engine_key}}}}
"""
CONNECTION = """
- hosts: all
  gather_facts: false
  vars: {provision_instance: one, provision_vmid: 100, provision_ssh: "root@127.0.0.1:PORT"}
  tasks: [ansible.builtin.raw: "true"]
"""
LOCAL = """
- hosts: localhost
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
"""
FILES = {
    "inventory.yml": "plugin: provisioner.inference.lab\nfile: homelab.yml\n",
    "homelab.yml": LAB,
    "secret.yml": WITH_SECRET,
    "provision_incus.yml": CONNECTION,
    "provision_proxmox.yml": CONNECTION,
    "provision_secret.yml": f"""{LOCAL}
    - ansible.builtin.debug:
        msg: "{{{{ lookup(plugin, 'engine_key', lab_file='secret.yml') | length }}}} letters"
      vars: {{plugin: provisioner.inference.provision_secret}}
""",
    "provision_container.yml": f"""{LOCAL}
    - provisioner.inference.provision_container:
        {{name: versions-one, lab: versions, image: debian/12, host: {HOST}}}
""",
}
HOW = {
    "lab": ("ansible-inventory", "-i", "inventory.yml", "--list"),
    "provision_container": ("ansible-playbook", "provision_container.yml"),
    "provision_incus": (
        *("ansible-playbook", "-i", "one,", "-c", "provisioner.inference.provision_incus", "provision_incus.yml"),
        *("-e", "provision_endpoint=https://127.0.0.1:PORT", "-e", f"provision_fingerprint={FINGERPRINT}"),
    ),
    "provision_proxmox": (
        *("ansible-playbook", "-i", "one,", "-c", "provisioner.inference.provision_proxmox", "provision_proxmox.yml"),
    ),
    "provision_secret": ("ansible-playbook", "provision_secret.yml"),
}
"""By plugin that imports the package, what uses it."""
MARK = "    module.exit_json("
MARKED = f'{MARK}module_of="VERSION", helper_of=errors.VERSION, '
IMPORT = "from ansible.module_utils.basic import AnsibleModule\n"
FIRST_PLAY = f"""{LOCAL}
    - provisioner.inference.provision_paths: {{paths: [/]}}
      register: found
    - ansible.builtin.debug: {{msg: "module {{{{ found.module_of }}}}, module_utils {{{{ found.helper_of }}}}"}}
    - ansible.builtin.import_role: {{name: provisioner.inference.base, tasks_from: version}}
"""

BUILDER = module_at(ROOT / ".ci/collection.py")


def _installed(folder: Path, version: str) -> Path:
    """Where the collection of this version was installed; a module, a file it imports and a role say their version."""
    tree = folder / "tree" / TREE
    BUILDER.write(tree, version)
    module = tree / "plugins/modules/provision_paths.py"
    text = module.read_text(encoding="utf-8")
    assert text.count(MARK) == text.count(IMPORT) == 1
    helper = "from ansible_collections.provisioner.inference.plugins.module_utils.values import errors\n"
    marked = text.replace(MARK, MARKED.replace("VERSION", version, 1)).replace(IMPORT, IMPORT + helper)
    module.write_text(marked, encoding="utf-8")
    with (tree / "plugins/module_utils/values/errors.py").open("a", encoding="utf-8") as errors:
        errors.write(f'VERSION = "{version}"\n')
    said = f'- ansible.builtin.debug: {{msg: "role {version}"}}\n'
    (tree / "roles/base/tasks/version.yml").write_text(said, encoding="utf-8")
    galaxy = PROGRAMS / "ansible-galaxy"
    build: list[str | Path] = [galaxy, "collection", "build", tree, "--output-path", folder]
    subprocess.run(build, check=True, capture_output=True, timeout=TIMEOUT_S)
    (file,) = folder.glob("provisioner-inference-*.tar.gz")
    install: list[str | Path] = [galaxy, "collection", "install", "--offline", file, "-p", folder / "installed"]
    subprocess.run(install, check=True, capture_output=True, timeout=TIMEOUT_S)
    return folder / "installed"


class Door:
    """A port that closes each connection at once, and counts them."""

    def __init__(self) -> None:
        self.knocks = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._answering = threading.Thread(target=self._answer, daemon=True)
        self._answering.start()

    def _answer(self) -> None:
        with suppress(OSError):
            while True:
                knocking, _ = self._socket.accept()
                self.knocks += 1
                knocking.close()

    def close(self) -> None:
        """Close the port."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._answering.join(PATIENCE_S)


@pytest.fixture
def door() -> Iterator[Door]:
    """What stands where a host's API would be."""
    door = Door()
    yield door
    door.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a client certificate and its key, own.crt and own.key."""
    folder = tmp_path_factory.mktemp("pair")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    files: list[str | Path] = ["-subj", "/CN=own", "-keyout", folder / "own.key", "-out", folder / "own.crt"]
    subprocess.run([*make, *files], check=True, capture_output=True, timeout=TIMEOUT_S)
    return folder


@pytest.fixture
def folder(pair: Path, door: Door, tmp_path: Path) -> Path:
    """A user's folder, with a lab whose host is the door, and plays that use each plugin."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("PORT", str(door.port)), encoding="utf-8")
    for name in ("own.crt", "own.key"):
        shutil.copy(pair / name, tmp_path)
    secrets = tmp_path / "secrets.env"
    secrets.write_text(f"engine_key={SECRET}\n", encoding="utf-8")
    secrets.chmod(0o600)
    return tmp_path


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By version, where the collection was installed."""
    return {
        version: _installed(tmp_path_factory.mktemp("collection"), version) for version in (__version__, OTHER, THIRD)
    }


def _said(folder: Path, python: str | Path, command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """What one of Ansible's programs says in the folder; its last line is its exit code."""
    clean = {key: one for key, one in os.environ.items() if not key.startswith(("ANSIBLE_", "PROVISION_", "PYTHON"))}
    own = {"ANSIBLE_HOME": str(folder / "home"), "HOME": str(folder)}
    done = completed(
        [python, PROGRAMS / command[0], *command[1:]],
        cwd=folder,
        env={**clean, **own, **environment},
        timeout_s=TIMEOUT_S,
    )
    return f"{done.stdout}{done.stderr}\nrc={done.returncode}"


def _used(plugin: str, folder: Path, path: Path, door: Door, **more: str) -> str:
    """What is said where this plugin is used beside this package."""
    command = tuple(word.replace("PORT", str(door.port)) for word in HOW[plugin])
    own = {"ANSIBLE_COLLECTIONS_PATH": str(path), "PYTHONPATH": str(ROOT / "src")}
    return _said(folder, sys.executable, command, {**own, **more})


def test_every_plugin_that_needs_the_package_is_tried() -> None:
    assert {f"{plugin}.py" for plugin in HOW} == set(BUILDER.NEED_THE_PACKAGE)


@pytest.mark.parametrize("plugin", sorted(HOW))
def test_another_version_than_the_package_s_is_refused_before_anybody_is_asked(
    plugin: str, collections: dict[str, Path], door: Door, folder: Path
) -> None:
    strict = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true"}
    said = _used(plugin, folder, collections[OTHER], door, **strict)
    assert not said.endswith("rc=0"), said
    words = " ".join(said.split())
    assert f"Unable to use provisioner.inference.{plugin}: the collection provisioner.inference" in words
    assert f"is of version {OTHER}, and the Python package provisioner ({ROOT / 'src/provisioner'})" in words
    assert f"of version {__version__}. Install both of one version." in words
    # A module was packed into an archive by Ansible, and knows no longer from where.
    place = "ansible-galaxy collection list" if plugin == "provision_container" else str(collections[OTHER] / TREE)
    assert place in words
    assert "changed=1" not in said
    assert f"{len(SECRET)} letters" not in said
    assert door.knocks == 0


@pytest.mark.parametrize("plugin", sorted(HOW))
def test_one_version_is_used(plugin: str, collections: dict[str, Path], door: Door, folder: Path) -> None:
    said = _used(plugin, folder, collections[__version__], door)
    assert "Install both of one version" not in said
    if plugin == "provision_secret":
        assert f"{len(SECRET)} letters" in said
        assert said.endswith("rc=0"), said
    else:  # its host was asked
        assert door.knocks > 0, said


def test_hosts_of_a_refused_inventory_are_none_even_where_ansible_goes_on_without_it(
    collections: dict[str, Path], door: Door, folder: Path
) -> None:
    said = _used("lab", folder, collections[OTHER], door)
    assert "Install both of one version." in " ".join(said.split())
    assert "versions-one" not in said
    assert door.knocks == 0


@pytest.mark.parametrize("order", [(OTHER, THIRD), (THIRD, OTHER)])
def test_of_two_versions_on_the_path_all_is_the_first_one_s(
    order: tuple[str, str], collections: dict[str, Path], ansible: Path, tmp_path: Path
) -> None:
    (tmp_path / "play.yml").write_text(FIRST_PLAY, encoding="utf-8")
    path = ":".join(str(collections[version]) for version in order)
    said = _said(tmp_path, ansible, ("ansible-playbook", "play.yml"), {"ANSIBLE_COLLECTIONS_PATH": path})
    assert said.endswith("rc=0"), said
    assert f"module {order[0]}, module_utils {order[0]}" in said
    assert f"role {order[0]}" in said
    assert order[1] not in said
