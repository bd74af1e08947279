"""What fits a real torch and what does not: told by symbols and by imports, where ``find_spec`` finds all of it."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.ansible.modules.provision_torch_proof import (
    Step,
    Torch,
    interpreter_of,
    judge,
    read,
    read_torch,
    symbols,
    system_libraries,
)
from tests.torch_extensions import EXTENSIONS, TORCH, extensions, torch_site, torchvision_wheel
from tests.torch_venvs import Venv, prove, verdicts

pytestmark = pytest.mark.network

TIMEOUT_S = 12
"""Ends the module that hangs; torch itself takes two to four seconds."""
FIND = """
import importlib.util, sys
print([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""


@pytest.fixture(scope="module")
def torch() -> Torch:
    """The libraries of the real torch."""
    return read_torch(torch_site())


@pytest.fixture(scope="module")
def version() -> str:
    """Its version, whose label says whether this machine's pip takes the build for the CPU."""
    return next(torch_site().glob("torch-*.dist-info")).name.removeprefix("torch-").removesuffix(".dist-info")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """A venv with that torch and every extension, each a distribution of its own."""
    site = torch_site()
    made = Venv(tmp_path_factory.mktemp("torch") / "venv").make(site)
    for name, content in extensions(site).items():
        made.add(f"{name}-wheel", "1.0+torch2.13", {f"{name}.so": content}, ["torch>=2.13"])
    return made


@pytest.fixture
def needs_cpu_torch(torch: Torch) -> None:
    """Torch is built for the CPU, as it is where pip finds such a wheel."""
    if torch.cuda:
        pytest.skip(f"this machine's pip takes the torch for CUDA {torch.cuda}")


@pytest.fixture
def proved(venv: Venv, version: str) -> Callable[..., Any]:
    """The answer for torch and one extension."""

    def answer(name: str, **more: Any) -> Any:
        packages = {"torch": version, f"{name}-wheel": "1.0+torch2.13"}
        limit = TIMEOUT_S if name == "hang" else 120
        return prove(venv, packages, modules={f"{name}-wheel": [name]}, timeout_s=limit, **more)

    return answer


def test_find_spec_finds_all_that_does_not_work(venv: Venv) -> None:
    done = subprocess.run(
        [venv.python, "-c", FIND, "torch", *EXTENSIONS], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"


def test_the_good_one_is_proved(proved: Callable[..., Any]) -> None:
    said = proved("good")
    assert (said["problem"], said["package"]) == ("", "")
    assert verdicts(said) == [
        ("names", "torch", "ok"),
        ("names", "good-wheel", "ok"),
        ("metadata", "good-wheel", "ok"),
        ("symbols", "good-wheel", "ok"),
        ("import", "good-wheel", "ok"),
        ("kernel", "torch", "unproved"),
    ]
    assert said["unproved"] == ["no kernel ran: no card was asked for"]


@pytest.mark.parametrize(
    ("name", "step", "verdict", "words"),
    [
        ("gone", "symbols", "missing symbol", "removed_in_this_torch"),
        ("old_abi", "symbols", "old C++ ABI", "built with the old C++ ABI (cxx11abi=FALSE): needs"),
        ("no_library", "symbols", "missing library", "needs the library libgone.so.99, which nothing here has"),
        ("crash", "import", "crash", "crashes at import: SIGSEGV (Fatal Python error: Segmentation fault)"),
        ("hang", "import", "hang", "hangs at import: it was ended after 12 s"),
    ],
)
def test_each_that_does_not_work_is_told_apart(
    proved: Callable[..., Any], name: str, step: str, verdict: str, words: str
) -> None:
    package = f"{name.replace('_', '-')}-wheel"
    said = proved(name)
    assert words in said["problem"]
    assert said["problem"].startswith(package)
    assert verdicts(said)[-1] == (step, package, verdict)
    assert said["package"] == package
    assert package in said["advice"]


@pytest.mark.usefixtures("needs_cpu_torch")
@pytest.mark.parametrize(("name", "words"), [("cuda", "libc10_cuda.so"), ("cudart", "libcudart.so.99")])
def test_a_cuda_extension_beside_a_torch_for_the_cpu_has_torch_changed(
    proved: Callable[..., Any], name: str, words: str
) -> None:
    said = proved(name)
    assert words in said["problem"]
    assert "built for the CPU only" in said["problem"]
    assert verdicts(said)[-1] == ("symbols", f"{name}-wheel", "CPU torch")
    assert said["package"] == "torch"


@pytest.mark.usefixtures("needs_cpu_torch")
def test_a_torch_for_the_cpu_runs_no_kernel(proved: Callable[..., Any]) -> None:
    said = proved("good", device="cuda")
    assert verdicts(said)[-2:] == [("import", "good-wheel", "ok"), ("kernel", "torch", "CPU torch")]
    assert "Torch not compiled with CUDA enabled" in said["problem"]
    assert said["package"] == "torch"


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("gone", "missing symbol", "removed_in_this_torch"),
        ("old_abi", "missing symbol", "torchInternalAssertFail"),
        ("no_library", "missing library", "libgone.so.99"),
    ],
)
def test_what_the_symbols_say_is_what_the_loader_does(venv: Venv, name: str, verdict: str, words: str) -> None:
    python = interpreter_of({"python": venv.python, "user": "", "environment": {}, "timeout_s": 60})
    said = judge(Step("import", name, name), python.load(name), python.timeout_s)
    assert said.verdict == verdict
    assert words in said.said


def of_torchvision(version: str, torch: Torch) -> dict[str, set[str]]:
    """By file of that wheel, what keeps it from this torch, beside that it is for CUDA and torch for the CPU."""
    found: dict[str, set[str]] = {}
    for one in symbols("torchvision", list(read(torchvision_wheel(version))), torch, system_libraries({})):
        if one.verdict not in {"ok", "CPU torch"}:
            found.setdefault(one.module, set()).add(one.verdict)
            assert one.change == "torchvision"
    return found


@pytest.mark.parametrize(
    ("version", "built_for"),
    [
        pytest.param("0.24.1", "2.9.1", marks=pytest.mark.slow),
        pytest.param("0.25.0", "2.10.0", marks=pytest.mark.slow),
        ("0.26.0", "2.11.0"),
    ],
)
def test_a_torchvision_for_an_older_torch_is_known_by_its_symbols(version: str, built_for: str, torch: Torch) -> None:
    found = of_torchvision(version, torch)
    assert found["torchvision/_C.so"] == {"missing symbol"}, built_for


def test_torch_s_own_torchvision_has_all_symbols(torch: Torch) -> None:
    assert of_torchvision("0.28.0", torch) == {}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.27.0", "0.27.1"])
def test_one_file_of_a_wheel_may_fit_and_another_not(version: str, torch: Torch) -> None:
    assert of_torchvision(version, torch) == {"torchvision/image.so": {"missing symbol"}}


def test_a_real_wheel_s_own_requirement_is_read(tmp_path: Path, version: str) -> None:
    venv = Venv(tmp_path / "venv").make(torch_site())
    with zipfile.ZipFile(torchvision_wheel("0.26.0")) as wheel:
        wheel.extractall(venv.site)
    installed = next(venv.site.glob("torchvision-*.dist-info")).name.removeprefix("torchvision-")
    said = prove(venv, {"torch": version, "torchvision": installed.removesuffix(".dist-info")})
    assert f"torchvision requires torch==2.11.0, and {version} is there" in said["problem"]
    assert said["package"] == "torchvision"
    assert TORCH in version
