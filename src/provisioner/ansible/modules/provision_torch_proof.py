# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: proves that the packages of a torch stack fit each other, and names the one to change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_torch_proof
short_description: Prove that an installed torch stack works together
description:
  - Compares versions with the lock, requirements with versions, and symbols of compiled files with torch's libraries.
    Then imports each compiled module, and has the card compute, each in a process of its own.
  - Ends at the first step with a problem. Before the imports, nothing of the venv is executed. Changes nothing.
  - Needs Debian's python3-pyelftools and python3-packaging.
options:
  python: {type: path, required: true, description: [The venv's interpreter.]}
  packages: {type: dict, required: true, description: ["Locked versions by distribution, with their local labels."]}
  modules: {type: dict, default: {}, description: [The compiled modules of each distribution that has some.]}
  user: {type: str, default: "", description: [Whose processes import them; those of who runs this when empty.]}
  environment: {type: dict, default: {}, description: [Variables of the unit.]}
  timeout_s: {type: int, default: 120, description: [How long one process may take.]}
  device: {type: str, default: "", choices: ["", cuda], description: [What has to compute; nothing when empty.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: verify | Prove the stack
  provision_torch_proof:
    python: /opt/torch_stack/venv/bin/python
    packages: {torch: 2.9.0+cu128, exllamav3: 1.4.2+cu128.torch2.9.0}
    modules: {exllamav3: [exllamav3_ext]}
"""
RETURN = r"""
steps: {type: list, returned: always, description: "What was looked at: step, package, module, verdict, said."}
problem: {type: str, returned: always, description: What does not fit; empty when all does.}
advice: {type: str, returned: always, description: What to do about it.}
package: {type: str, returned: always, description: The package to change; empty where none is to blame.}
unproved: {type: list, returned: always, description: "What could not be proved here, in words."}
"""

import contextlib
import io
import os
import pwd
import re
import shutil
import signal
import struct
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import Distribution, distributions
from itertools import chain
from pathlib import Path
from typing import IO, Any

from ansible.module_utils.basic import AnsibleModule

try:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name as canonical
    from packaging.version import InvalidVersion, Version
except ImportError as error:
    LACKING = "python3-pyelftools" if str(error.name).startswith("elftools") else "python3-packaging"
else:
    LACKING = ""


OK = "ok"
UNPROVED = "unproved"
ABSENT = "absent"
VERSION = "another version"
REQUIREMENT = "requirement not met"
SYMBOL = "missing symbol"
OLD_ABI = "old C++ ABI"
LIBRARY = "missing library"
CUDA = "another CUDA"
CPU = "CPU torch"
CRASH = "crash"
HANG = "hang"
IMPORT = "import error"
NO_CARD = "no card"
KERNEL = "kernel error"
FITTING = "Take a wheel of {0} that is built for this torch, CUDA and Python: correct the stack, then run provision up."
INSTALL = "Install {0} as the stack has it: run provision up."
READ = "Import it by hand as the unit's user; then take another wheel of {0}, or correct the unit's environment."
ADVICE = {
    **dict.fromkeys(("absent", "another version", "damaged"), INSTALL),
    **dict.fromkeys(("hang", "import error"), READ),
    "requirement not met": "Take a version of {0} that fits the others: correct the stack, then run provision up.",
    "CPU torch": "Take a CUDA build of {0} (its label is such as +cu130): correct the stack, then run provision up.",
    "no card": "Give the container its GPU and the host its driver; see nvidia-smi.",
    "kernel error": "Take a build of {0} that has code for this card, for a CUDA that its driver knows.",
}
"""What to do by verdict; ``FITTING`` for all others."""
GOOD = ("ok", "unproved")
COMPILED = re.compile(r"\.so(?:\.\w+)*$")
OF_TORCH = re.compile(r"_Z\w*?N[KR]*(?:3c10|2at|5torch|6caffe2|4c10d)|_Z\d+THP|(?:aoti_)?torch_")
OF_CUDA = re.compile(r"_Z\w*?N[KR]*(?:3c10|2at|5torch)4cuda|lib(?:c10_cuda|torch_cuda\w*|cudart)\.so\b")
TORCH_S = re.compile(r"torch$|nvidia-")
"""What the import of torch itself proves; of NVIDIA's libraries, some are for hardware that few have."""
OF_STACK = re.compile(rf"lib(?:torch|c10)\w*\.so|libcud(?:art|a)\.so|{OF_TORCH.pattern}")
"""Libraries of torch and of CUDA, and functions of torch: a file that needs one of them belongs to the stack."""
DRIVER = "libcuda.so.1"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TAIL = 65536
BITS = 64
WEAK = 2
ASK = ("-I", "-S", "-c", "import platform; print(platform.python_version())")
CHILD = """
import os, sys
import torch
reached = lambda letter: os.write(int(sys.argv[1]), letter)
reached(b"t")
if sys.argv[2]:
    torch.cuda.is_available() or torch.cuda.init() or sys.exit("torch.cuda.is_available() says no")
    reached(b"c")
    one = torch.ones(64, 64, device=sys.argv[2])
    (one @ one).sum().item() == 64**3 or sys.exit("it multiplies two matrices wrongly")
    reached(b"k")
for name in sys.argv[3:]:
    __import__(name)
reached(b"d")
"""
"""Torch first: it loads the extensions' libraries. The letters say how far it came, whatever else it prints."""
ENDS = (
    (r"undefined symbol: (\w+)", "missing symbol", "needs {0}, which nothing here has"),
    (r"(\S+): cannot open shared object file", "missing library", "needs the library {0}, which nothing here has"),
    (r"(.*not compiled with CUDA.*)", "CPU torch", "is built for the CPU only: {0}"),
)
"""What the last line of a child that failed means; one that is none of these is the error of an import."""


@dataclass(frozen=True)
class Step:
    """What one look said: at which package and module, and which package is to blame, if one is."""

    step: str
    package: str
    module: str = ""
    verdict: str = "ok"
    said: str = ""
    change: str = ""


@dataclass(frozen=True)
class Elf:
    """What the loader reads of a compiled file."""

    name: str
    needed: tuple[str, ...] = ()
    undefined: frozenset[str] = frozenset()
    exports: frozenset[str] = frozenset()
    damage: str = ""


@dataclass(frozen=True)
class Torch:
    """The installed torch: which libraries come with it, what its own export, its CUDA's major (empty: it has none)."""

    libraries: frozenset[str]
    exports: frozenset[str]
    cuda: str


@dataclass(frozen=True)
class Ran:
    """How a child ended (None: not in time), the end of what it printed, and how far it came."""

    code: int | None
    said: str
    reached: str = ""

    @property
    def has_torch(self) -> bool:
        """Whether torch was imported."""
        return "t" in self.reached

    @property
    def has_card(self) -> bool:
        """Whether torch found a card, so that a kernel was started."""
        return "c" in self.reached

    @property
    def has_computed(self) -> bool:
        """Whether a kernel gave the right result."""
        return "k" in self.reached

    @property
    def is_done(self) -> bool:
        """Whether all modules were imported, and Python ended well."""
        return self.code == 0 and self.reached.endswith("d")

    @property
    def is_killed(self) -> bool:
        """Whether it did not end by itself."""
        return self.code is None or self.code < 0


@dataclass(frozen=True)
class Interpreter:
    """The venv's Python, started as the unit starts it; ``account`` says as whom."""

    path: str
    environment: Mapping[str, str]
    timeout_s: float
    account: Mapping[str, Any] = field(default_factory=dict)

    def load(self, *modules: str, device: str = "") -> Ran:
        """Import torch, have the device compute if one is named, then import these modules."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        try:
            ran = self.start(("-X", "faulthandler", "-c", CHILD, str(writer), device, *modules), writer)
            with contextlib.suppress(BlockingIOError):
                ran = replace(ran, reached=os.read(reader, 16).decode(errors="replace"))
        finally:
            os.close(reader)
            os.close(writer)
        return ran

    def start(self, arguments: Sequence[str], *pass_fds: int) -> Ran:
        """Run it; afterwards nothing of its process group is left, and the end of what it printed is kept."""
        output: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        call = {"env": self.environment, "cwd": "/", "start_new_session": True, "pass_fds": pass_fds, **self.account}
        try:
            process = subprocess.Popen([self.path, *arguments], **output, **call)
        except OSError as error:
            return Ran(error.errno, f"{self.path} cannot be started: {error.strerror}")
        code, said = None, bytearray()
        reading = threading.Thread(target=_keep_end, args=(process.stdout, said), daemon=True)
        reading.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(self.timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # what hangs in a driver cannot be killed
            process.wait(5)
        reading.join(5)
        return Ran(code, said.decode(errors="replace"))


def main() -> None:
    """Prove and answer."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "packages": {"type": "dict", "required": True},
            "modules": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": ""},
            "environment": {"type": "dict", "default": {}},
            "timeout_s": {"type": "int", "default": 120},
            "device": {"type": "str", "default": "", "choices": ["", "cuda"]},
        },
        supports_check_mode=True,
    )
    if LACKING:
        module.fail_json(msg=f"Unable to read the stack: Python lacks a library here. Run: apt install {LACKING}")
    try:
        steps = list(prove(module.params))
    except (OSError, LookupError, ValueError) as error:
        module.fail_json(msg=f"Unable to prove the stack of {module.params['python']}: {error}. Run: provision up")
    module.exit_json(changed=False, **answer_of(steps))


def answer_of(steps: Sequence[Step]) -> dict[str, Any]:
    """What the module returns: all steps, and of the first with a problem what it is and what to do."""
    told = []
    for step in steps:
        fields = asdict(step)
        del fields["change"]
        told.append(fields)
    bad = first_bad(steps)
    return {
        "steps": told,
        "problem": problem_of(bad) if bad else "",
        "advice": ADVICE.get(bad.verdict, FITTING).format(bad.change) if bad else "",
        "package": bad.change if bad else "",
        "unproved": [step.said for step in steps if step.verdict == "unproved"],
    }


def first_bad(steps: Iterable[Step]) -> Step | None:
    """The first step with a problem, None where all is well."""
    for step in steps:
        if step.verdict not in GOOD:
            return step
    return None


def problem_of(step: Step) -> str:
    """The package, its module if one was looked at, and what is wrong."""
    module = f"({step.module})" if step.module else ""
    return " ".join(filter(None, (step.package, module, step.said)))


def prove(wanted: Mapping[str, Any]) -> Iterator[Step]:
    """All looks in their order, up to the first with a problem; an error where there is no venv or no such account."""
    python = interpreter_of(wanted)
    for look in _looks(python, stack_of(python, wanted), wanted["device"]):
        steps = list(look())
        yield from steps
        if first_bad(steps):
            return
    yield from _left_out(wanted)


@dataclass(frozen=True)
class Stack:
    """What is to be proved: the packages that are there and those that are locked, by their canonical names."""

    site: Path
    version: str
    """Of Python, such as 3.12.3."""
    there: Mapping[str, Distribution]
    locked: Mapping[str, str]
    modules: Mapping[str, Sequence[str]]


def stack_of(python: Interpreter, wanted: Mapping[str, Any]) -> Stack:
    """The stack in the venv of this interpreter, beside what the options lock."""
    version = ask_version(python)
    site = Path(python.path).parents[1] / f"lib/python{version.rpartition('.')[0]}/site-packages"
    there: dict[str, Distribution] = {}
    for installed in distributions(path=[str(site)]):
        there[canonical(installed.name or "")] = installed
    return Stack(site, version, there, locked_in(wanted), modules_in(wanted))


def locked_in(wanted: Mapping[str, Any]) -> dict[str, str]:
    """The locked versions by canonical name."""
    return {canonical(name): str(version) for name, version in wanted["packages"].items()}


def modules_in(wanted: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """The compiled modules by canonical name."""
    return {canonical(name): modules for name, modules in wanted["modules"].items()}


def _looks(python: Interpreter, stack: Stack, device: str) -> Iterator[Callable[[], Iterable[Step]]]:
    """One after the other, each only once the one before found no problem."""
    yield lambda: _all_names(stack)
    yield lambda: _all_metadata(stack)
    yield lambda: _installed_symbols(stack, python.environment, device)
    yield lambda: _loaded(python, stack.modules, "")
    if device:
        yield lambda: _loaded(python, stack.modules, device)


def _all_names(stack: Stack) -> Iterator[Step]:
    for package, version in stack.locked.items():
        yield names(package, version, stack.there.get(package), stack.modules.get(package, ()))


def _all_metadata(stack: Stack) -> Iterator[Step]:
    for package in stack.locked:
        yield from metadata(package, stack.there, stack.locked, stack.version)


def _left_out(wanted: Mapping[str, Any]) -> Iterator[Step]:
    """What these options did not have proved."""
    step = Step("kernel", "torch", verdict="unproved")
    modules = modules_in(wanted)
    if wanted["device"]:
        for module in chain.from_iterable(modules.values()):
            yield replace(step, module=module, said=f"no kernel of {module} ran: it was loaded beside one of torch")
    else:
        yield replace(step, said="no kernel ran: no card was asked for")
    others = ", ".join(sorted({*locked_in(wanted)} - {"torch", *modules}))
    if others:
        yield replace(step, step="import", package="", said=f"nothing of {others} ran: no module of it was named")


def interpreter_of(wanted: Mapping[str, Any]) -> Interpreter:
    """The Python of the options, with an environment as systemd makes it for that account and unit."""
    mine = os.geteuid()
    who = pwd.getpwnam(wanted["user"]) if wanted["user"] else pwd.getpwuid(mine)
    groups = os.getgrouplist(who.pw_name, who.pw_gid)
    account = {} if who.pw_uid == mine else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": groups}
    environment = {"PATH": PATH, "HOME": who.pw_dir, "USER": who.pw_name, "LOGNAME": who.pw_name, "LANG": "C.UTF-8"}
    given = {name: str(value) for name, value in wanted["environment"].items()}
    quiet = {"PYTHONDONTWRITEBYTECODE": "1"}  # nothing is changed here
    return Interpreter(wanted["python"], {**environment, **given, **quiet}, wanted["timeout_s"], account)


def ask_version(python: Interpreter) -> str:
    """Its version, such as 3.12.3, without anything of the venv (-S); an error where it does not start."""
    answer = python.start(ASK)
    if answer.code != 0:
        raise OSError(answer.said.strip() or f"{python.path} does not start")
    return answer.said.strip()


def names(package: str, version: str, found: Distribution | None, modules: Iterable[str]) -> Step:
    """Whether it is installed, whole, in this version and with these compiled modules."""
    step = Step("names", package, verdict="absent", change=package)
    if found is None:
        return replace(step, said="is not installed")
    if Version(version) not in {Version(found.version), folder_version(found)}:
        said = f"is there in version {found.version}, and {version} is locked"
        return replace(step, verdict="another version", said=said)
    files = compiled(found)
    for name, path in files.items():
        if not path.is_file():
            return replace(step, said=f"is not whole: {name} is gone")
    for module in modules:
        file_start = f"{module.replace('.', '/')}."
        if not any(name.startswith(file_start) for name in files):
            said = f"has no {module}: a wheel of sources, which compiles at its first import and needs nvcc"
            return replace(step, said=f"{said}. Its release wheels have it compiled")
    return Step("names", package, said=found.version)


def folder_version(found: Distribution) -> Version | None:
    """The version in the wheel's own name: causal-conv1d's has a label there, and none in its metadata."""
    for file in found.files or ():
        if file.name == "METADATA":
            return _version_or_none(file.parts[0].removesuffix(".dist-info").partition("-")[2])
    return None


def _version_or_none(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def compiled(found: Distribution) -> dict[str, Path]:
    """The compiled files that it says it has, by their names in the wheel."""
    files = [file for file in found.files or () if COMPILED.search(file.name)]
    return {str(file): Path(str(found.locate_file(file))) for file in files}


def metadata(package: str, there: Mapping[str, Distribution], locked: Iterable[str], version: str) -> Iterator[Step]:
    """Whether what it requires of torch, triton and the others is there, for a Python of this version."""
    markers = {"python_version": version.rpartition(".")[0], "python_full_version": version, "extra": ""}
    judged = {"torch", "triton", *locked}
    for text in there[package].requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            yield Step("metadata", package, verdict="unproved", said=f"what {package} requires cannot be read: {error}")
            continue
        is_asked = requirement.marker is None or requirement.marker.evaluate(markers)
        if is_asked and canonical(requirement.name) in judged:
            yield _requirement_step(package, requirement, there)


def _requirement_step(package: str, requirement: Requirement, there: Mapping[str, Distribution]) -> Step:
    """Whether what is there meets the requirement; of those that torch has, the other package is to blame."""
    name = canonical(requirement.name)
    version = there[name].version if name in there else ""
    step = Step("metadata", package, said=f"requires {requirement}, and {version or 'none'} is there")
    if version and requirement.specifier.contains(version, prereleases=True):
        return step
    return replace(step, verdict="requirement not met", change=name if package == "torch" else package)


def _installed_symbols(stack: Stack, environment: Mapping[str, str], device: str) -> Iterator[Step]:
    torch, system = read_torch(stack.site), system_libraries(environment)
    for package in stack.locked:
        if TORCH_S.match(package):
            continue
        elves: list[Elf] = []
        for name, path in compiled(stack.there[package]).items():
            elves += read(path, name)
        yield from symbols(package, elves, torch, system, device)


def symbols(
    package: str, elves: Sequence[Elf], torch: Torch, system: Iterable[str], device: str = "cuda"
) -> list[Step]:
    """Whether the loader finds all libraries, and all symbols of torch, that these files need; nothing is executed.

    What a file lacks that has nothing of torch or CUDA, and without a device the driver's library, is unproved:
    packages bring files for libraries that few machines have, and load them only there.
    """
    steps = _damaged(package, elves)
    undecided: list[str] = []
    exports = torch.exports.union(*(elf.exports for elf in elves))
    libraries = torch.libraries.union(Path(elf.name).name for elf in elves)
    for elf in elves:
        for verdict, said in _misfits(_lacking(elf, libraries, exports), torch, frozenset(system)):
            if not _is_of_stack(elf) or (verdict == "no card" and not device):
                undecided.append(f"{package} ({elf.name}) {said}")
            else:
                steps.append(Step("symbols", package, elf.name, verdict, said, _blamed(verdict, package)))
    if undecided:
        steps.append(Step("symbols", package, verdict="unproved", said=_shown(undecided)))
    return steps or [Step("symbols", package, said=f"{len(elves)} compiled files fit")]


def _is_of_stack(elf: Elf) -> bool:
    """Whether it is linked with torch or CUDA, or calls torch."""
    return any(map(OF_STACK.match, chain(elf.needed, elf.undefined)))


def _damaged(package: str, elves: Iterable[Elf]) -> list[Step]:
    """A step for each file that cannot be read."""
    damaged = [elf for elf in elves if elf.damage]
    return [Step("symbols", package, elf.name, "damaged", elf.damage, package) for elf in damaged]


def _blamed(verdict: str, package: str) -> str:
    """The package to change: torch where it is the one for the CPU, none where only the driver is missing."""
    return {"CPU torch": "torch", "no card": ""}.get(verdict, package)


def _lacking(elf: Elf, libraries: frozenset[str], exports: frozenset[str]) -> list[str]:
    """The libraries that neither torch nor the package has, then the functions of torch that this torch lacks."""
    needed = [library for library in elf.needed if not library.startswith("libpython")]
    lacking = [library for library in needed if library not in libraries]
    return lacking + sorted(filter(OF_TORCH.match, elf.undefined - exports))


def _misfits(lacking: Sequence[str], torch: Torch, system: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The verdict and the words for what a file lacks; ``system``: the libraries that the system's loader finds."""
    of_cuda = [] if torch.cuda else list(filter(OF_CUDA.match, lacking))
    if of_cuda:
        yield "CPU torch", f"needs {_shown(of_cuda)}, and this torch is built for the CPU only"
    functions = []
    for name in lacking:
        if name in of_cuda:
            continue
        if COMPILED.search(name):
            yield from _library_misfit(name, torch, system)
        else:
            functions.append(name)
    if functions:
        yield _function_misfit(functions, torch)


def _function_misfit(functions: Sequence[str], torch: Torch) -> tuple[str, str]:
    of_old_abi = [name for name in functions if is_old_abi(name, torch.exports)]
    if of_old_abi:
        return "old C++ ABI", f"is built with the old C++ ABI (cxx11abi=FALSE): needs {_shown(of_old_abi)}"
    return "missing symbol", f"needs {_shown(functions)}, which this torch does not have"


def _library_misfit(library: str, torch: Torch, system: frozenset[str]) -> Iterator[tuple[str, str]]:
    if library == DRIVER and library not in system:
        yield "no card", f"needs the library {library}, which the driver has"
    elif library not in system:
        yield "missing library", f"needs the library {library}, which nothing here has"
    elif library.startswith("libcudart.so.") and not library.endswith(f".{torch.cuda}"):
        yield "another CUDA", f"needs {library}, which only the system has; torch computes with CUDA {torch.cuda}"


def is_old_abi(symbol: str, exports: Iterable[str]) -> bool:
    """Whether it takes or gives the old std::string, and one of the same name with the new one is exported."""
    end = _name_end(symbol)
    name, rest = symbol[:end], symbol[end:]
    if not name:
        return False
    with_new_string = [export for export in exports if export.startswith(name) and "cxx11" in export[end:]]
    if "Ss" in rest:
        return bool(with_new_string)
    return f"{name}B5cxx11{rest}" in with_new_string


def _name_end(symbol: str) -> int:
    """Where the nested name of a mangled symbol ends, after its parts with their lengths; 0 of any other symbol."""
    start = re.match(r"_ZNK?", symbol)
    if start is None:
        return 0
    end = start.end()
    digits = re.compile(r"\d+")
    while length := digits.match(symbol, end):
        end = length.end() + int(length[0])
    return end


def _shown(things: Sequence[str]) -> str:
    name = _readable(things[0])
    return f"{name} and {len(things) - 1} more" if things[1:] else name


def _readable(symbol: str) -> str:
    """The symbol as it was written in C++, where a program is here that tells it."""
    program = shutil.which("c++filt")
    if program is None or not symbol.startswith("_Z"):
        return symbol
    done = subprocess.run([program, symbol], capture_output=True, text=True, check=False)
    return done.stdout.strip() or symbol


def read_torch(site: Path) -> Torch:
    """Read the torch in this site-packages."""
    elves: dict[str, Elf] = {}
    for path in sorted(site.glob("torch/lib/lib*.so*")):
        for elf in read(path):
            elves[path.name] = elf
    libraries = {*elves, *(path.name for path in site.glob("nvidia/*/lib/*.so*"))}
    exports = frozenset[str]().union(*(elf.exports for elf in elves.values()))
    return Torch(frozenset(libraries), exports, _cuda_of(elves.get("libc10_cuda.so")))


def _cuda_of(elf: Elf | None) -> str:
    """The major version of the CUDA runtime that torch's CUDA library loads; empty where torch has no such library."""
    if elf is None:
        return ""
    for library in elf.needed:
        if "cudart" in library:
            return library.rpartition(".")[2]
    return "of its own"


def read(source: Path, name: str = "") -> Iterator[Elf]:
    """The compiled files of a wheel or a folder, or the one that this file is."""
    if source.suffix == ".whl":
        yield from _read_wheel(source)
    elif source.is_dir():
        for path in sorted(source.rglob("*.so*")):
            if COMPILED.search(path.name):
                yield from read(path, str(path.relative_to(source)))
    else:
        with source.open("rb") as file:
            yield _elf(file, name or source.name)


def _read_wheel(file: Path) -> Iterator[Elf]:
    with zipfile.ZipFile(file) as wheel:
        for entry in filter(COMPILED.search, wheel.namelist()):
            yield _elf(io.BytesIO(wheel.read(entry)), entry)


def _elf(file: IO[bytes], name: str) -> Elf:
    try:
        return _parsed(ELFFile(file), name)
    except (ELFError, struct.error, ValueError) as error:
        return Elf(name, damage=f"cannot be read as a compiled file: {error}")


def _parsed(elf: Any, name: str) -> Elf:
    dynamic, table = elf.get_section_by_name(".dynamic"), elf.get_section_by_name(".dynsym")
    if elf.elfclass != BITS or not dynamic or not table:  # nothing that this loader would look at
        return Elf(name)
    needed = tuple(tag.needed for tag in dynamic.iter_tags("DT_NEEDED"))
    undefined, exports = _symbols_in(table)
    return Elf(name, needed, undefined, exports)


def _symbols_in(table: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The symbols that have to come from elsewhere, without those that need not come at all, and its own ones."""
    undefined, exports = set(), set()
    strings = table.stringtable.data()
    for start, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", table.data()):
        symbol = strings[start : strings.index(b"\0", start)].decode(errors="replace")
        if section:
            exports.add(symbol)
        elif info >> 4 != WEAK:
            undefined.add(symbol)
    return frozenset(undefined), frozenset(exports)


def system_libraries(environment: Mapping[str, str]) -> frozenset[str]:
    """The names that the system's loader finds, in its cache and in the unit's LD_LIBRARY_PATH."""
    libraries = _cached_libraries()
    for folder in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            libraries.update(path.name for path in Path(folder).glob("*.so*"))
    return frozenset(libraries)


def _cached_libraries() -> set[str]:
    program = shutil.which("ldconfig", path=PATH)
    if program is None:
        return set()
    done = subprocess.run([program, "-p"], capture_output=True, text=True, check=False)
    return set(re.findall(r"^\s+(\S+) \(", done.stdout, re.MULTILINE))


def _loaded(python: Interpreter, modules: Mapping[str, Sequence[str]], device: str) -> Iterator[Step]:
    for package, module in _pairs(modules):
        step = Step("kernel" if device else "import", package, module)
        judged = judge(step, python.load(module, device=device), python.timeout_s)
        yield judged
        if judged.package != package:  # it was torch, and the next child says the same
            return


def _pairs(modules: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Package and module of each that is imported; torch itself where there is none."""
    pairs = []
    for package, package_modules in modules.items():
        pairs += [(package, module) for module in package_modules]
    return pairs or [("torch", "torch")]


def judge(step: Step, ran: Ran, timeout_s: float) -> Step:
    """What it says of a module that the child which had to load it ended like this; torch may be the one to blame."""
    if ran.is_done:
        return replace(step, said="is loaded" if step.step == "import" else "is loaded after a kernel of torch ran")
    at_kernel = step.step == "kernel" and not ran.has_computed
    if at_kernel or not ran.has_torch:
        step = replace(step, package="torch", module="torch")
    bad = replace(step, change=step.package)
    if ran.is_killed:
        return _killed(bad, ran, timeout_s, at_kernel=at_kernel)
    verdict, said = _meaning(_last_line(ran))
    if verdict == "import error" and at_kernel and ran.has_torch:
        return _without_kernel(bad, ran)
    return replace(bad, verdict=verdict, said=said)


def _killed(bad: Step, ran: Ran, timeout_s: float, *, at_kernel: bool) -> Step:
    """What it says of a child that did not end by itself; the letters say whether the card was asked by then."""
    where = "while the card computes" if at_kernel and ran.has_card else "at import"
    if ran.code is None:
        return replace(bad, verdict="hang", said=f"hangs {where}: it was ended after {timeout_s:.0f} s")
    name = signal.Signals(-ran.code).name
    return replace(bad, verdict="crash", said=f"crashes {where}: {name}{_fatal_error(ran)}")


def _lines(ran: Ran) -> list[str]:
    lines = [line.strip() for line in ran.said.splitlines()]
    return [line[:500] for line in lines if line]


def _last_line(ran: Ran) -> str:
    lines = _lines(ran)
    return lines[-1] if lines else f"it ended Python, exit code {ran.code}"


def _fatal_error(ran: Ran) -> str:
    """What Python itself said of the crash, in brackets; empty where it said nothing."""
    for line in _lines(ran):
        if line.startswith("Fatal Python error"):
            return f" ({line})"
    return ""


def _meaning(last: str) -> tuple[str, str]:
    """The verdict and the words for the last line of a child that failed."""
    for pattern, verdict, words in ENDS:
        match = re.search(pattern, last)
        if match:
            return verdict, words.format(_readable(match[1]))
    return "import error", f"cannot be imported: {_readable(last)}"


def _without_kernel(bad: Step, ran: Ran) -> Step:
    """What torch says that was imported and did not compute: there is no card, or its kernel failed."""
    last = _last_line(ran)
    if not ran.has_card:
        return replace(bad, verdict="no card", said=f"finds no card: {last}", change="")
    return replace(bad, verdict="kernel error", said=f"does not compute on the card: {last}")


def _keep_end(output: IO[bytes], kept: bytearray) -> None:
    for chunk in iter(lambda: os.read(output.fileno(), TAIL), b""):
        kept += chunk
        del kept[:-TAIL]


if __name__ == "__main__":
    main()
