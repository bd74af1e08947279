"""What a file says of the program that computes: where it comes from, what it computes with, for which cards."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.lab.rules import service_options
from provisioner.values import paths
from tests.unit.services.llama_cpp.servers import resolved, spec_with, told

COMMIT = "0c1e57098" + "0" * 31
SHA256 = "ab" * 32
CUDA = {"backend": "cuda", "cuda_architectures": ["86"]}


def problems_of(**options: Any) -> list[tuple[str, str]]:
    return told(service_options(resolved(spec_with(options))))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gpu_layers": 0},
        {"gpu_layers": "auto"},
        CUDA,
        CUDA | {"gpu_layers": "all", "device": "CUDA0,CUDA1"},
        CUDA | {"gpu_layers": 20, "cuda_version": "13.0"},
        {"backend": "vulkan", "device": "Vulkan1", "environment": {"GGML_VK_VISIBLE_DEVICES": "0"}},
        {"source": f"git+https://example.org/llama.cpp@{COMMIT}"},
        {"source": "https://example.org/llama.cpp.tar.gz", "source_sha256": SHA256},
        {"source": "pypi:llama-cpp-python==0.3.37", "source_sha256": SHA256},
    ],
)
def test_what_can_be_built_is_taken(options: dict[str, Any]) -> None:
    assert problems_of(**options) == []


@pytest.mark.parametrize(
    ("options", "where", "words"),
    [
        ({"gpu_layers": "all"}, "gpu_layers", "for the CPU alone"),
        ({"gpu_layers": 20}, "gpu_layers", "for the CPU alone"),
        ({"device": "CUDA0"}, "device", "for the CPU alone"),
        ({"gpu_layers": -1}, "gpu_layers", "no number of layers"),
        ({"gpu_layers": "some"}, "gpu_layers", "no number of layers"),
        ({"gpu_layers": True}, "gpu_layers", "no number of layers"),
        (CUDA | {"device": "the first one"}, "device", "no devices"),
        ({"backend": "cuda"}, "backend", "has to know its cards"),
        (CUDA | {"cuda_architectures": ["native"]}, "cuda_architectures", "no card"),
        (CUDA | {"cuda_architectures": ["61"]}, "cuda_architectures", "compiles for 75 and newer"),
        ({"source": "git+https://example.org/llama.cpp@main"}, "source", "not a source"),
        ({"source": "git+file:///srv/llama.cpp@" + COMMIT}, "source", "not a source"),
        ({"source": "git+ssh://git@example.org/llama.cpp@" + COMMIT}, "source", "not a source"),
        ({"source": "http://example.org/llama.cpp.tar.gz"}, "source", "not a source"),
        ({"source": "https://example.org/llama.cpp.tar.gz"}, "source", "needs its sha256"),
        ({"source": "pypi:llama-cpp-python==0.3.37", "source_sha256": "ab"}, "source", "needs its sha256"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, Any], where: str, words: str) -> None:
    ((path, message),) = problems_of(**options)
    assert path == where
    assert words in message


def test_the_versions_of_cuda_are_those_of_the_role_that_gets_them() -> None:
    wheels = yaml.safe_load((paths.roles() / "cuda_toolkit/vars/wheels.yml").read_text(encoding="utf-8"))
    choices = load_catalog().services["llama_cpp"].options["cuda_version"].choices
    assert set(choices) == set(wheels["__cuda_toolkit_wheels"])
