"""The driver's stub: made of a header by a real compiler, the same each time, and what links with it gets 34."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from provisioner.cuda.driver import SONAME, STUB, STUB_ERROR, functions_of, source_of, write_stub
from provisioner.values.errors import PreflightError, ProvisionError
from tests.case_files import read_cases
from tests.unit.cuda.wheels import RUNTIME_13_0, unpack

CASES = read_cases("cuda/driver")

TIMEOUT_S = 120
HEADER: str = CASES["header"]
NAMES = ("cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuStreamQuery", "cuStreamQuery_ptsz")
SMALL = '#include "cuda.h"\nint main(void) { void *one; return cuInit(0) == cuMemAlloc(&one, 1) ? cuInit(0) : 1; }\n'
REAL = "#include <cuda.h>\nint main(void) { return cuInit(0) == cuMemCreate(0, 0, 0, 0) ? cuInit(0) : 1; }\n"

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A toolkit with a header of the driver's, and lib64 as the wheels are laid out: a link."""
    (tmp_path / "include").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "include/cuda.h").write_text(HEADER)
    return tmp_path


def answer_of(source: str, root: Path) -> int:
    """The exit code of the program, linked with the stub and run with nothing else of that name."""
    folder = root / STUB.parent
    (root / "one.c").write_text(source)
    flags = [f"-I{root}/include", f"-L{folder}", "-Werror"]
    subprocess.run(
        ["g++", "-x", "c", *flags, root / "one.c", "-o", root / "one", "-lcuda"], check=True, timeout=TIMEOUT_S
    )
    return subprocess.run(
        [root / "one"], env={"LD_LIBRARY_PATH": str(folder)}, check=False, timeout=TIMEOUT_S
    ).returncode


def test_each_declared_function_is_found_once_and_nothing_else() -> None:
    text = (
        "typedef CUresult (*one)(int); CUresult cuB(int);\nextern CUresult\n cuA (void); int cuC(); CUresult cuB(int);"
    )
    assert functions_of([text, "CUresult cuD(void);"]) == ("cuA", "cuB", "cuD")


def test_each_function_is_one_that_answers_34() -> None:
    one, *rest = source_of(["cuA", "cuB"]).splitlines()
    assert "return 34;" in one
    assert rest == [f'int {name}(void) __attribute__((alias("stub")));' for name in ("cuA", "cuB")]


@needs_compiler
def test_it_has_every_name_that_programs_may_ask_for_and_is_found_by_its_soname(root: Path) -> None:
    assert write_stub(root, "g++") == (root / STUB, root / STUB.with_name(SONAME))
    symbols = subprocess.run(
        ["nm", "-D", root / STUB], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert tuple(sorted(line.split()[-1] for line in symbols.splitlines() if " T " in line)) == NAMES
    assert answer_of(SMALL, root) == STUB_ERROR
    needed = subprocess.run(
        ["readelf", "-d", root / "one"], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    assert f"[{SONAME}]" in needed


@needs_compiler
def test_a_second_run_changes_nothing_and_check_mode_neither(root: Path) -> None:
    assert len(write_stub(root, "g++", write=False)) == 2
    assert not (root / STUB).exists()
    write_stub(root, "g++")
    before = (root / STUB).stat()
    assert write_stub(root, "g++") == ()
    after = (root / STUB).stat()  # but for the time at which it was read
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert sorted(one.name for one in (root / STUB).parent.iterdir()) == ["libcuda.so", "libcuda.so.1"]


@needs_compiler
@pytest.mark.parametrize("name", [STUB.name, SONAME])
def test_what_was_damaged_or_is_missing_is_made_anew(root: Path, name: str) -> None:
    write_stub(root, "g++")
    path = root / STUB.with_name(name)
    path.unlink()
    for _ in range(2):
        assert write_stub(root, "g++", write=False) == (path,)
        assert write_stub(root, "g++") == (path,)
        assert write_stub(root, "g++") == ()
        path.unlink()
        path.write_text("something else")


@needs_compiler
def test_another_header_is_another_stub(root: Path) -> None:
    write_stub(root, "g++")
    (root / "include/cuda.h").write_text(f"{HEADER}CUresult cuNew(void);\n")
    assert write_stub(root, "g++") == (root / STUB,)


@needs_compiler
def test_what_it_cannot_be_made_of_is_refused(root: Path) -> None:
    header = root / "include/cuda.h"
    with pytest.raises(PreflightError, match="there is no compiler g\\+\\+-99"):
        write_stub(root, "g++-99")
    header.write_text("CUresult cuOther(void);\n")
    with pytest.raises(PreflightError, match="does not declare cuInit"):
        write_stub(root, "g++")
    header.write_text("#error not this one\n")
    with pytest.raises(ProvisionError, match="not this one"):
        write_stub(root, "g++")
    header.unlink()
    with pytest.raises(PreflightError, match=r"there is no include/cuda\.h"):
        write_stub(root, "g++")
    assert not (root / STUB).exists()


@needs_compiler
@pytest.mark.network
def test_nvidia_s_own_header_gives_the_whole_driver(tmp_path: Path) -> None:
    root = unpack([RUNTIME_13_0], tmp_path / "cuda", "include/")
    (root / "lib64").mkdir()
    write_stub(root, "g++")
    symbols = subprocess.run(
        ["nm", "-D", root / STUB], capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    ).stdout
    names = {line.split()[-1] for line in symbols.splitlines()}
    assert {"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuCtxCreate_v4", "cuMemCreate", "cuMemcpyHtoD_v2_ptds"} <= names
    assert len(names) > 600
    assert answer_of(REAL, root) == STUB_ERROR
