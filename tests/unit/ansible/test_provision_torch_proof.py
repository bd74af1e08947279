"""What module `provision_torch_proof` says of a stack: a torch of pure Python, and real processes that import it."""

from __future__ import annotations

import importlib.util
import os
import pwd
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from provisioner.ansible.modules.provision_torch_proof import (
    TAIL,
    Elf,
    Ran,
    Step,
    Torch,
    interpreter_of,
    is_old_abi,
    judge,
    read,
    read_torch,
    symbols,
    system_libraries,
)
from tests.case_files import read_cases
from tests.module_servers import has_ended
from tests.torch_venvs import Venv, prove, verdicts
from tests.waiting import wait_until

CASES = read_cases("ansible/provision_torch_proof")

FAKE_TORCH = """
import os

class Product:
    def __matmul__(self, other): return self
    def sum(self): return self
    def item(self): return int(os.environ["CARD"])

def ones(*sizes, device):
    if os.environ["CARD"] == "old":
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
    return Product()

class cuda:
    is_available = staticmethod(lambda: "CARD" in os.environ)
    @staticmethod
    def init():
        raise AssertionError(os.environ["NO_CARD"])
"""
RIGHT = str(64**3)
LOCKED = {"torch": "2.9.0+cu128", "one-ext": "1.4.2+cu128.torch2.9.0"}
Prepared = Callable[[Path], tuple[Venv, dict[str, str], dict[str, Any]]]
"""Makes a stack in a folder; gives what is locked, and the module's further options."""


def an_elf() -> bytes:
    """A compiled module that needs nothing of torch."""
    spec = importlib.util.find_spec("markupsafe._speedups")
    assert spec
    assert spec.origin
    return Path(spec.origin).read_bytes()


def stack(root: Path, code: str = "", torch: str = FAKE_TORCH, **files: str | bytes) -> Venv:
    """A torch and an extension whose module is compiled, and which Python finds as this code."""
    venv = Venv(root).make().add("torch", "2.9.0+cu128", {"torch/__init__.py": torch})
    own = {"one_ext.so": an_elf(), "one_ext/__init__.py": code, **files}
    return venv.add("one_ext", "1.4.2+cu128.torch2.9.0", own, ["torch>=2.6", "numpy", "absent; extra == 'all'"])


def answer(venv: Venv, packages: dict[str, str] | None = None, **more: Any) -> Any:
    return prove(venv, packages or LOCKED, **{"modules": {"one_ext": ["one_ext"]}, "timeout_s": 20, **more})


def test_a_stack_that_fits_is_proved_in_order_and_what_was_not_is_said(tmp_path: Path) -> None:
    venv = stack(tmp_path / "venv")
    files = sorted(venv.root.rglob("*"))
    said = answer(venv.add("pure", "1.0"), {**LOCKED, "pure": "1.0"})
    assert (said["problem"], said["advice"], said["package"], said["changed"]) == ("", "", "", False)
    order = [step for step, _, _ in verdicts(said)]
    assert list(dict.fromkeys(order)) == ["names", "metadata", "symbols", "import", "kernel"]
    assert ("import", "one-ext", "ok") in verdicts(said)
    assert said["unproved"] == [
        "no kernel ran: no card was asked for",
        "nothing of pure ran: no module of it was named",
    ]
    assert [one for one in sorted(venv.root.rglob("*")) if "pure" not in one.parts[-1] + one.parts[-2]] == files


def test_a_local_label_may_be_spelled_as_the_wheel_does(tmp_path: Path) -> None:
    venv = stack(tmp_path / "venv")
    assert answer(venv, {**LOCKED, "one-ext": "1.4.2+CU128-torch2.9.0"})["problem"] == ""


def test_requirements_of_other_pythons_extras_and_labels_are_no_obstacle(tmp_path: Path) -> None:
    more = ["torch==2.11; python_version < '3'", "torch==3; extra == 'new'", "torch==2.9.0", "torch (>=2", "numpy<1"]
    venv = stack(tmp_path / "venv").add("more", "1.0", {}, more)
    said = answer(venv, {**LOCKED, "more": "1.0"})
    assert said["problem"] == ""
    assert any("torch (>=2" in one or "cannot be read" in one for one in said["unproved"])


def test_a_stack_without_compiled_modules_has_torch_imported(tmp_path: Path) -> None:
    said = prove(Venv(tmp_path).make().add("torch", "2.9.0", {"torch/__init__.py": ""}), {"torch": "2.9.0"})
    assert (said["problem"], ("import", "torch", "ok") in verdicts(said)) == ("", True)


SOURCES = {"exllamav3/ext.py": ""}
LIBRARY = "raise ImportError('libz.so.9: cannot open shared object file: No such file')"
MUCH = "import os; os.write(1, b'\\xff\\x00' * 40_000_000); raise ValueError('after all that')"
BESIDE = "import os, sys; 'CARD' in os.environ and '' not in sys.argv and os.abort()"


def fails(code: str, **more: Any) -> Prepared:
    """A stack whose extension runs this code when it is imported."""
    return lambda root: (stack(root, code), LOCKED, more)


def requiring(requires: str) -> Prepared:
    """A stack with a package that requires this."""
    return lambda root: (stack(root).add("more", "1.0", {}, [requires]), {**LOCKED, "more": "1.0"}, {})


def on_card(code: str = "", **environment: str) -> Prepared:
    """A stack that has to compute on a card."""
    return fails(code, device="cuda", environment=environment)


def damaged(root: Path, content: bytes | None) -> tuple[Venv, dict[str, str], dict[str, Any]]:
    """A stack whose compiled file is cut off, or gone."""
    venv = stack(root, "raise SystemExit('imported')")
    (venv.site / "one_ext.so").unlink()
    if content is not None:
        (venv.site / "one_ext.so").write_bytes(content)
    return venv, LOCKED, {}


def old_triton(root: Path) -> tuple[Venv, dict[str, str], dict[str, Any]]:
    venv = Venv(root).make().add("torch", "2.9.0", {}, ["triton==3.5.0; platform_system == 'Linux'"])
    return venv.add("triton", "3.4.0"), {"torch": "2.9.0", "triton": "3.4.0"}, {"modules": {}}


WRONG: dict[str, tuple[Prepared, str, tuple[str, str, str]]] = {
    "another torch": (
        lambda root: (stack(root), {**LOCKED, "torch": "2.9.0"}, {}), "torch", ("names", "one-ext", "ok"),
    ),
    "another label": (
        lambda root: (stack(root), {"one_ext": "1.4.2+cu130.torch2.9.0"}, {}),
        "one-ext", ("names", "one-ext", "another version"),
    ),
    "not there": (
        lambda root: (stack(root), {**LOCKED, "Flash_Attn": "2.8.3"}, {}),
        "flash-attn", ("names", "flash-attn", "absent"),
    ),
    "a wheel of sources": (
        lambda root: (
            stack(root).add("exllamav3", "1.6.5", SOURCES, ["torch>=2.6.0"]),
            {**LOCKED, "exllamav3": "1.6.5"},
            {"modules": {"exllamav3": ["exllamav3_ext"]}},
        ),
        "exllamav3", ("names", "exllamav3", "absent"),
    ),
    "a file that is cut off": (
        lambda root: damaged(root, an_elf()[:40]), "one-ext", ("symbols", "one-ext", "damaged"),
    ),
    "a file that is gone": (lambda root: damaged(root, None), "one-ext", ("names", "one-ext", "absent")),
    "requires another torch": (requiring("torch==2.11.0"), "more", ("metadata", "more", "requirement not met")),
    "requires what is not there": (
        requiring("Triton>=3.5; python_version >= '3'"), "more", ("metadata", "more", "requirement not met"),
    ),
    "requires another extension": (
        requiring("one.ext<1; sys_platform == 'linux'"), "more", ("metadata", "more", "requirement not met"),
    ),
    "torch requires another": (old_triton, "triton", ("metadata", "torch", "requirement not met")),
    "import error": (fails("raise ImportError('no such thing')"), "one-ext", ("import", "one-ext", "import error")),
    "ends python": (fails("raise SystemExit(0)"), "one-ext", ("import", "one-ext", "import error")),
    "ends python at once": (fails("import os; os._exit(3)"), "one-ext", ("import", "one-ext", "import error")),
    "aborts": (fails("import os; os.abort()"), "one-ext", ("import", "one-ext", "crash")),
    "is killed": (fails("import os; os.kill(os.getpid(), 9)"), "one-ext", ("import", "one-ext", "crash")),
    "hangs": (fails("import time; time.sleep(99)", timeout_s=2), "one-ext", ("import", "one-ext", "hang")),
    "a missing symbol": (
        fails("raise ImportError('x.so: undefined symbol: cudaGone')"),
        "one-ext", ("import", "one-ext", "missing symbol"),
    ),
    "a missing library": (fails(LIBRARY), "one-ext", ("import", "one-ext", "missing library")),
    "much output": (fails(MUCH), "one-ext", ("import", "one-ext", "import error")),
    "torch aborts": (
        lambda root: (stack(root, torch="import os; os.abort()"), LOCKED, {}), "torch", ("import", "torch", "crash"),
    ),
    "no driver": (on_card(NO_CARD="Found no NVIDIA driver on your system."), "", ("kernel", "torch", "no card")),
    "torch for the processor": (
        on_card(NO_CARD="Torch not compiled with CUDA enabled"), "torch", ("kernel", "torch", "CPU torch"),
    ),
    "no kernel": (on_card(CARD="old"), "torch", ("kernel", "torch", "kernel error")),
    "a wrong product": (on_card(CARD="7"), "torch", ("kernel", "torch", "kernel error")),
    "aborts beside the card": (on_card(BESIDE, CARD=RIGHT), "one-ext", ("kernel", "one-ext", "crash")),
}  # fmt: skip


@pytest.mark.parametrize(("prepare", "package", "last"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found_in_its_step_with_who_is_to_blame_and_what_to_do(
    tmp_path: Path, prepare: Prepared, package: str, last: tuple[str, str, str], snapshot: SnapshotAssertion
) -> None:
    venv, packages, more = prepare(tmp_path / "venv")
    said = answer(venv, packages, **{"timeout_s": 60, **more})
    assert (said["package"], verdicts(said)[-1]) == (package, last)
    assert len(str(said)) < 5000
    assert "\n".join((said["problem"], f"What to do: {said['advice']}", *said["unproved"])) == snapshot


def test_what_hangs_is_ended_with_its_own_children(tmp_path: Path) -> None:
    code = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "60"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    started = time.monotonic()
    assert "hangs" in answer(stack(tmp_path / "venv", code), timeout_s=2)["problem"]
    assert time.monotonic() - started < 20
    wait_until(has_ended(int((tmp_path / "child").read_text())))


def test_of_what_a_child_prints_only_the_end_is_kept() -> None:
    shell = interpreter_of({"python": "/bin/sh", "user": "", "environment": {}, "timeout_s": 20})
    said = shell.start(("-c", "head -c 9000000 /dev/zero; echo; echo the end")).said
    assert said.endswith("\nthe end\n")
    assert len(said) == TAIL


def test_a_child_that_stays_behind_holds_nobody_up(tmp_path: Path) -> None:
    started = time.monotonic()
    code = "import subprocess; subprocess.Popen(['sleep', '60'])"
    assert answer(stack(tmp_path / "venv", code))["problem"] == ""
    assert time.monotonic() - started < 20


def test_on_a_card_only_torch_s_own_kernel_counts_as_run(tmp_path: Path) -> None:
    said = answer(stack(tmp_path / "venv"), device="cuda", environment={"CARD": RIGHT})
    assert said["problem"] == ""
    assert ("kernel", "one-ext", "ok") in verdicts(said)
    assert said["unproved"] == ["no kernel of one_ext ran: it was loaded beside one of torch"]


def test_the_unit_s_environment_is_that_of_the_children_and_ours_is_not(tmp_path: Path) -> None:
    code = "import os; assert (os.environ['OURS'], os.environ.get('ANSIBLE')) == ('1', None), dict(os.environ)"
    venv = stack(tmp_path / "venv", code)
    said = prove(
        venv, LOCKED, {**os.environ, "ANSIBLE": "set"}, modules={"one_ext": ["one_ext"]}, environment={"OURS": 1}
    )
    assert said["problem"] == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of others")
def test_children_run_as_the_user_with_its_home_and_groups() -> None:
    nobody = pwd.getpwnam("nobody")
    options = {"python": "/bin/sh", "user": "nobody", "environment": {"OWN": 1}, "timeout_s": 20}
    said = interpreter_of(options).start(("-c", "id -u; id -g; id -G; echo $HOME $USER $OWN"))
    groups = " ".join(map(str, os.getgrouplist(nobody.pw_name, nobody.pw_gid)))
    assert said == Ran(0, f"{nobody.pw_uid}\n{nobody.pw_gid}\n{groups}\n{nobody.pw_dir} nobody 1\n")


def test_an_interpreter_or_account_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    said = prove(Venv(tmp_path / "none"), LOCKED)
    assert said["failed"]
    assert "cannot be started: No such file or directory" in said["msg"]
    assert "nobody-here" in answer(stack(tmp_path / "venv"), user="nobody-here")["msg"]


def test_a_python_without_the_library_is_told_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in {"elftools": "python3-pyelftools", "packaging": "python3-packaging"}.items():
        with monkeypatch.context() as patch:
            for known in [one for one in sys.modules if one.partition(".")[0] == name]:
                patch.delitem(sys.modules, known)
            patch.setitem(sys.modules, name, None)
            assert prove(Venv(tmp_path), LOCKED)["msg"].endswith(f"apt install {package}")


def test_what_files_without_torch_need_for_other_hardware_is_not_proved(tmp_path: Path) -> None:
    lacking = an_elf().replace(b"libc.so.6\0", b"libq.so.6\0")
    venv = stack(tmp_path / "venv").add("nvidia-cufile", "1.0", {"nvidia/cufile/lib/librdma.so.1": lacking})
    assert answer(venv, {**LOCKED, "nvidia-cufile": "1.0"})["problem"] == ""
    said = answer(venv.add("more", "1.0", {"more.so": lacking}), {**LOCKED, "more": "1.0"})
    assert said["problem"] == ""
    assert "more (more.so) needs the library libq.so.6, which nothing here has" in said["unproved"]


CPU = Torch(frozenset({"libc10.so", "libtorch_cpu.so"}), frozenset({"_ZN3c104fineEv"}), "")
CUDA = Torch(CPU.libraries | {"libc10_cuda.so", "libcudart.so.12"}, CPU.exports, "12")
SYSTEM = frozenset({"libc.so.6", "libstdc++.so.6", "libcudart.so.13"})


def judged(torch: Torch, *elves: Elf) -> list[tuple[str, str, str]]:
    return [(one.verdict, one.said, one.change) for one in symbols("ext", elves, torch, SYSTEM)]


def undefined(*names: str) -> Elf:
    return Elf("ext.so", undefined=frozenset(names))


def test_libraries_come_from_torch_the_wheel_itself_and_the_system() -> None:
    needed = ("libc10_cuda.so", "libcudart.so.12", "libc.so.6", "libpng-1c0.so.16", "libpython3.12.so.1.0")
    fine = (Elf("ext/_C.so", needed), Elf("ext.libs/libpng-1c0.so.16"))
    assert judged(CUDA, *fine) == [("ok", "2 compiled files fit", "")]
    ((verdict, said, change),) = judged(CUDA, fine[0])
    assert (verdict, change) == ("missing library", "ext")
    assert "libpng-1c0.so.16" in said


def test_a_runtime_of_another_cuda_that_only_the_system_has_is_found() -> None:
    ((verdict, said, change),) = judged(CUDA, Elf("ext.so", ("libcudart.so.13",)))
    assert (verdict, change) == ("another CUDA", "ext")
    assert said == "needs libcudart.so.13, which only the system has; torch computes with CUDA 12"
    same = Torch(CUDA.libraries, CUDA.exports, "13")
    assert judged(same, Elf("ext.so", ("libcudart.so.13",)))[0][0] == "ok"
    beside = Torch(CUDA.libraries | {"libcudart.so.13"}, CUDA.exports, "12")
    assert judged(beside, Elf("ext.so", ("libcudart.so.13",)))[0][0] == "ok"
    assert judged(CUDA, Elf("ext.so", ("libcudart.so.11.0",)))[0][0] == "missing library"


@pytest.mark.parametrize("library", ["libcudart.so.13", "libc10_cuda.so", "libtorch_cuda.so"])
def test_a_cuda_build_beside_a_torch_for_the_cpu_is_torch_s_to_change(library: str) -> None:
    ((verdict, _, change),) = judged(CPU, Elf("ext.so", (library,)))
    assert (verdict, change) == ("CPU torch", "torch")


def test_the_driver_s_library_is_nobody_s_to_install() -> None:
    assert judged(CUDA, Elf("ext.so", ("libcuda.so.1",))) == [
        ("no card", "needs the library libcuda.so.1, which the driver has", "")
    ]


def test_without_a_device_the_driver_s_library_may_be_missing() -> None:
    kernels = [Elf(f"ext/{name}.so", ("libtorch.so", "libcuda.so.1", "libcudart.so.12")) for name in "ab"]
    torch = Torch(CUDA.libraries | {"libtorch.so"}, CUDA.exports, "12")
    (step,) = symbols("ext", kernels, torch, SYSTEM, device="")
    assert step.verdict == "unproved"
    assert step.said == "ext (ext/a.so) needs the library libcuda.so.1, which the driver has and 1 more"
    wrong = Elf("ext/c.so", ("libtorch.so", "libcuda.so.1", "libcudart.so.11"))
    steps = symbols("ext", [wrong], torch, SYSTEM, device="")
    assert [(step.verdict, step.change) for step in steps] == [("missing library", "ext"), ("unproved", "")]


def test_a_library_that_a_file_without_torch_needs_decides_nothing() -> None:
    pool = Elf("numba/tbbpool.so", ("libtbb.so.12", "libc.so.6"))
    assert judged(CUDA, pool) == [
        ("unproved", "ext (numba/tbbpool.so) needs the library libtbb.so.12, which nothing here has", "")
    ]
    linked = Elf("ext/_C.so", ("libnuma.so.1", "libc10.so"))
    assert judged(CUDA, linked) == [
        ("missing library", "needs the library libnuma.so.1, which nothing here has", "ext")
    ]
    calls = Elf("ext/_C.so", ("libnuma.so.1",), frozenset({"_ZN3c104fineEv"}))
    assert judged(CUDA, calls)[0][0] == "missing library"


def test_symbols_of_torch_are_looked_for_and_no_others() -> None:
    assert (
        judged(CUDA, undefined("_ZN3c104fineEv", "PyList_New", "cudaMalloc", "_ZNSt8ios_base4InitC1Ev"))[0][0] == "ok"
    )
    inside = Elf("ext.libs/b.so", exports=frozenset({"_ZN3ext3nmsERKN2at6TensorE"}))
    assert judged(CUDA, undefined("_ZN3ext3nmsERKN2at6TensorE"), inside)[0][0] == "ok"
    for gone in (
        "_ZN3c104goneEv",
        "_ZNK2at6Tensor4goneEv",
        "_ZTIN5torch8autograd4NodeE",
        "aoti_torch_gone",
        "_ZNSt6vectorIN3c106SymIntESaIS1_EE4goneEv",
        "_Z16THPVariable_WrapRKN2at10TensorBaseE",
    ):
        ((verdict, _, change),) = judged(CUDA, undefined(gone))
        assert (verdict, change) == ("missing symbol", "ext"), gone
    assert judged(CUDA, undefined("_ZN3c104cuda4goneEv"))[0][0] == "missing symbol"
    both = judged(CPU, undefined("_ZN3c104cuda14CUDACachingAllocator9allocatorE", "_ZN3c104goneEv"))
    assert [(one[0], one[2]) for one in both] == [("CPU torch", "torch"), ("missing symbol", "ext")]


FAIL = "_ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RK"
NEW = {f"{FAIL}NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "_ZNK3c106Device3strB5cxx11Ev", "_ZN2at3addEv"}


@pytest.mark.parametrize(("symbol", "is_old"), CASES["the old abi is known by the new one s names"])
def test_the_old_abi_is_known_by_the_new_one_s_names(symbol: str, *, is_old: bool) -> None:
    assert is_old_abi(symbol, NEW) is is_old


def test_the_old_abi_is_named() -> None:
    torch = Torch(CUDA.libraries, frozenset(NEW), "12")
    ((verdict, said, change),) = judged(torch, undefined(f"{FAIL}Ss", "_ZN3c104goneEv"))
    assert (verdict, change) == ("old C++ ABI", "ext")
    assert "built with the old C++ ABI (cxx11abi=FALSE)" in said


def test_torch_s_cuda_is_read_from_its_own_libraries(tmp_path: Path) -> None:
    for name in ("torch/lib/libc10.so", "nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cuda_runtime/include/x.so"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(an_elf())
    torch = read_torch(tmp_path)
    assert torch.libraries == {"libc10.so", "libcudart.so.12"}
    assert "PyInit__speedups" in torch.exports
    assert torch.cuda == ""


def test_a_file_is_read_as_the_loader_does(tmp_path: Path) -> None:
    (tmp_path / "one.so").write_bytes(an_elf())
    (tmp_path / "empty.so.1").touch()
    (tmp_path / "page.sofa").touch()
    empty, one = read(tmp_path)
    assert (empty.name, one.name) == ("empty.so.1", "one.so")
    assert empty.damage
    assert "libc.so.6" in one.needed
    assert any(name.startswith("Py") for name in one.undefined)
    assert b"__gmon_start__" in an_elf()
    assert "__gmon_start__" not in one.undefined  # a weak one, which the loader does without


def test_the_system_s_libraries_are_those_of_the_loader(tmp_path: Path) -> None:
    (tmp_path / "libown.so.3").touch()
    found = system_libraries({"LD_LIBRARY_PATH": f"{tmp_path}:"})
    assert "libown.so.3" in found
    assert "libown.so.3" not in system_libraries({})
    assert any(name.startswith("libc.so") for name in found)


def test_a_crash_while_the_card_computes_is_not_the_module_s() -> None:
    said = judge(Step("kernel", "one-ext", "one_ext"), Ran(-11, "Fatal Python error: Segmentation fault\n", "tc"), 9)
    assert (said.package, said.change) == ("torch", "torch")
    assert said.said == "crashes while the card computes: SIGSEGV (Fatal Python error: Segmentation fault)"
