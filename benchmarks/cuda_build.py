"""How long llama.cpp for CUDA takes to build: by our role in a container of its own, and by CMake, same flags."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import yaml

from benchmarks.labs import cpu_s_of
from benchmarks.measuring import BIN, HEADER, Cost, cost, cost_row, say
from provisioner.hosts import provider_for
from provisioner.hosts.base import Provider
from provisioner.reconcile.runner import ansible_environment
from provisioner.values import paths
from provisioner.values.state import Instance

NAME = "benchmark-cuda-build"
IMAGES = ("debian/12", "debian/13")
TIMEOUT_S = 4 * 3600
WORK = "/var/tmp/llama_cpp"  # noqa: S108  # in the container, where the role works
IS_FOR_CUDA = 'grep --quiet --line-regexp GGML_CUDA:BOOL=ON "$0"/build/CMakeCache.txt'
BY_HAND = """
set -ae
. "$1"
cd "$0"
cmake build > by_hand.log
cmake --build build --clean-first --target llama-server llama-bench >> by_hand.log
"""
"""In the build's own folder: its cache holds the flags, so that none can be forgotten."""


def by_role(provider: Provider, version: str, architecture: str) -> Cost:
    """What the playbook took that `provision up` builds with; ``RuntimeError`` when what it built is not for CUDA."""
    reached = {"ansible_python_interpreter": "/usr/bin/python3", **provider.connection_variables(NAME)}
    wanted = {
        "artifact_role": "llama_cpp",
        "llama_cpp_backend": "cuda",
        "llama_cpp_cuda_version": version,
        "llama_cpp_cuda_architectures": [architecture],
    }
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"builders": {"hosts": {NAME: {**reached, **wanted}}}}), encoding="utf-8")
        before = cpu_s_of([NAME])
        command = [str(BIN / "ansible-playbook"), "-i", str(inventory), str(paths.playbooks() / "artifacts.yml")]
        done = cost(command, ansible_environment(), Path(folder))
        done = replace(done, inside_s=cpu_s_of([NAME]) - before)
    _run(provider, IS_FOR_CUDA, WORK)
    return done


def by_hand(provider: Provider, version: str) -> Cost:
    """What configuring and compiling took, once more from the first file on, in the folder that the role has made."""
    before, started = cpu_s_of([NAME]), monotonic()
    _run(provider, BY_HAND, WORK, f"/opt/cuda-{version}/provision.env")
    return Cost(monotonic() - started, 0.0, inside_s=cpu_s_of([NAME]) - before)


def _run(provider: Provider, script: str, *arguments: str) -> None:
    done = provider.execute(NAME, ["bash", "-c", script, *arguments], timeout_s=TIMEOUT_S)
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")[-3000:]
        raise RuntimeError(f"Unable to measure a build for CUDA: {script.strip()} ended with {done.returncode}\n{said}")


def main(arguments: Sequence[str]) -> int:
    """Build, print the figures as Markdown, and remove the container."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_build", description=__doc__)
    parser.add_argument("--image", choices=IMAGES, default=IMAGES[-1])
    parser.add_argument("--cuda", metavar="VERSION", default="13.2")
    parser.add_argument("--architecture", default="86", help="compute capability without its dot (default: 86)")
    parser.add_argument("--by-hand", action="store_true", help="compile once more, with CMake alone and the same flags")
    wanted = parser.parse_args(arguments)
    provider = provider_for("local", "incus")
    provider.check_available()
    one = Instance(NAME, "local", NAME, wanted.image)
    provider.create(one)
    try:
        provider.start(one)
        provider.wait_until_ready(one)
        say(f"building with CUDA {wanted.cuda} for {wanted.architecture}")
        rows = [cost_row("llama.cpp for CUDA, by the role", [by_role(provider, wanted.cuda, wanted.architecture)])]
        if wanted.by_hand:
            say("once more by CMake alone")
            rows.append(cost_row("the same, compiled by CMake alone", [by_hand(provider, wanted.cuda)]))
    finally:
        provider.delete(one)
    sys.stdout.write(HEADER + "".join(f"{row.line()}\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
