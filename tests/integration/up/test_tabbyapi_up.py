"""``tabbyapi`` in a lab's file, up on a real host: its stack is locked, built once, mounted, and the model answers.

Wheels and upstream are stand-ins of ours with the names of the real ones; what decides about them is the real thing.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.hosts.incus import IncusProvider
from tests.http_servers import files_served
from tests.processes import completed
from tests.scenario_programs import module_at
from tests.torch_extensions import PIP
from tests.wheel_files import write_stack, write_wheel

TIMEOUT_S = 120
pytestmark = [pytest.mark.incus, pytest.mark.network]

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = ROOT / "molecule/tabbyapi"
PYTHON = (3, 11)
TAG = "cp311-cp311-linux_x86_64"
TRITON = "triton-3.5.0-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
EMPTY = """aiofiles aiohttp async_lru fastapi_slim:fastapi huggingface_hub jinja2 numpy packaging pillow:PIL
psutil pydantic requests rich setuptools sse_starlette tokenizers uvloop"""
REAL = ("pyyaml", "uvicorn", "h11", "click", "httptools")
"""What the stand-in of the server uses: the guard is in front of uvicorn's own connections."""
FILE = """\
name: {name}
models: {{ qwen: {{ source: "dir:qwen" }} }}
containers:
  tabby: {{ image: debian/12, cpu: 1, memory: 512MiB, disk: 6GiB, services: {services} }}
"""
SERVICE = """{{ tabbyapi: {{ model: qwen, stack: mine, api_key: !secret api_key, admin_key: !secret admin_key,
  cache_size: 2048, source: "file:///srv/standin.git", commit: {commit}, mirror: "{mirror}",
  start_timeout_s: 60 }} }}"""
API_KEY, ADMIN_KEY = "canary-api-key-0123456789", "canary-admin-key-0123456789"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the stack and tabbyAPI want, by the names of the real ones; real are the installer and ``REAL``."""
    if sys.version_info[:2] != PYTHON:
        pytest.skip("the wheels are made for the Python of debian/12")
    place = tmp_path_factory.mktemp("wheels")
    made = module_at(ROOT / "molecule/torch_stack/wheels.py")
    made.main(place)
    packages = SCENARIO / "files/packages"
    extension = made.EXTENSION % {"length": 7, "symbol": "present"}
    compiled = made.compiled(extension.replace("flash_attn_2_cuda", "exllamav3_ext"), "exllamav3_ext.so", "libc10.so")
    files = {"exllamav3/__init__.py": (packages / "exllamav3.py").read_bytes(), "exllamav3_ext.so": compiled}
    write_wheel(place, f"exllamav3-1.4.2+cu128.torch2.9.0-{TAG}.whl", "torch", files=files)
    write_wheel(
        place, "loguru-1.0.0-py3-none-any.whl", files={"loguru/__init__.py": (packages / "loguru.py").read_bytes()}
    )
    yaml_files = {f"ruamel/{one.name}": one.read_bytes() for one in (packages / "ruamel").glob("*.py")}
    write_wheel(place, "ruamel.yaml-1.0.0-py3-none-any.whl", "pyyaml", files=yaml_files)
    for name, module in ((one.split(":") * 2)[:2] for one in EMPTY.split()):
        version = "2.20.0" if name == "pydantic" else "99.0.0"
        write_wheel(place, f"{name}-{version}-py3-none-any.whl", files={f"{module}/__init__.py": b""})
    write_wheel(place, TRITON)
    installer = ROOT / "roles/torch_stack/files/installer.txt"
    for words in (("--require-hashes", "--requirement", str(installer)), REAL):
        command = [sys.executable, *PIP, "download", "--no-deps", "--only-binary=:all:", "--dest", str(place), *words]
        subprocess.run(command, check=True, timeout=900)
    return place


@pytest.fixture(scope="module")
def mirror(wheels: Path, provider: IncusProvider) -> Iterator[str]:
    """Where containers reach the wheels: on the host's end of their bridge."""
    assert provider
    shown = subprocess.run(
        ["incus", "network", "list", "--format=json"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    bridge = next(one for one in json.loads(shown.stdout) if one["managed"] and one["type"] == "bridge")
    address = bridge["config"]["ipv4.address"].partition("/")[0]
    with files_served(wheels, (address, 0)) as url:
        yield url


@dataclass
class Lab:
    """A lab in a folder."""

    folder: Path
    name: str

    def provision(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command there."""
        program = str(Path(sys.executable).parent / "provision")
        environment = {"PROVISION_SECRET_API_KEY": API_KEY, "PROVISION_SECRET_ADMIN_KEY": ADMIN_KEY}
        return completed([program, *arguments], cwd=self.folder, env=os.environ | environment, timeout_s=1200)

    def write(self, services: str) -> None:
        """The lab's file."""
        (self.folder / "homelab.yml").write_text(FILE.format(name=self.name, services=services))


def well(done: subprocess.CompletedProcess[str]) -> str:
    """What a run that ended well said."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, wheels: Path, mirror: str) -> Iterator[Lab]:
    """A lab whose container has the stand-in's repository, and then tabbyAPI."""
    folder = tmp_path_factory.mktemp("lab")
    made = Lab(folder, f"t{secrets.token_hex(4)}")
    (folder / "qwen").mkdir()
    about = {
        "max_position_embeddings": 2048,
        "quantization_config": {"quant_method": "exl3"},
        "load_s": 0.5,
        "room": 65536,
    }
    (folder / "qwen/config.json").write_text(json.dumps(about))
    (folder / "qwen/model.safetensors").write_bytes(b"weights")
    (folder / "qwen/tokenizer.json").write_text("{}")
    files = (TRITON, f"torch-2.9.0+cu128-{TAG}.whl", f"exllamav3-1.4.2+cu128.torch2.9.0-{TAG}.whl")
    write_stack(folder / "stacks", wheels, "3.11", files)
    module_at(SCENARIO / "repository.py").main(SCENARIO / "files", folder / "standin")
    commit = json.loads((folder / "standin/commits.json").read_text())["newer"]
    made.write("{}")
    try:
        well(made.provision("up", "--yes"))
        subprocess.run(
            ["incus", "file", "push", "--quiet", "--recursive", str(folder / "standin/standin.git"), "tabby/srv/"],
            check=True,
            timeout=TIMEOUT_S,
        )
        made.write(SERVICE.format(commit=commit, mirror=mirror))
        yield made
    finally:
        made.provision("destroy", "--prune", "--yes", "--lab", made.name)


def test_from_nothing_to_an_answer(lab: Lab, wheels: Path) -> None:
    refused = lab.provision("up", "--yes")
    assert refused.returncode == 4
    assert "Run: provision lock" in refused.stderr
    well(lab.provision("lock", "--from", str(wheels)))
    well(lab.provision("up", "--yes"))
    well(lab.provision("verify"))
    again = well(lab.provision("up"))
    assert "No changes" in again
    told = lab.provision("status").stdout
    assert "tabbyapi" in told
    shown = completed(
        ["incus", "exec", "tabby", "--", "sh", "-c", "cd /opt/torch_stack/* && readlink current; touch x 2>&1"],
        timeout_s=TIMEOUT_S,
    ).stdout
    assert "Read-only file system" in shown
    everything = "".join(path.read_text(errors="replace") for path in lab.folder.rglob("*") if path.is_file())
    assert API_KEY not in everything
    assert ADMIN_KEY not in everything


def test_a_triton_that_cannot_compile_is_a_finding(lab: Lab) -> None:
    inside = ["incus", "exec", "tabby", "--"]
    subprocess.run([*inside, "mv", "/usr/include/python3.11/Python.h", "/root/"], check=True, timeout=TIMEOUT_S)
    try:
        done = lab.provision("verify")
    finally:
        subprocess.run([*inside, "mv", "/root/Python.h", "/usr/include/python3.11/"], check=True, timeout=TIMEOUT_S)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Python.h" in done.stdout + done.stderr
