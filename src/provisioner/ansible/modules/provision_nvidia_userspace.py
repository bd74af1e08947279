# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: looks at the user space of NVIDIA's driver: what is loaded, what is left over, what apt has."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_nvidia_userspace
short_description: Find which versions of the user space of NVIDIA's driver there are
description:
  - Asks the loader for the driver's libraries, the kernel for its module, dpkg for packages, and apt for versions.
  - Changes nothing, in check mode neither; apt is asked with lists of its own, which are thrown away.
options:
  version: {type: str, required: true, description: [The version that should be there.]}
  look_up: {type: bool, default: false, description: [Whether apt's archives are asked where another one is there.]}
  sources_file: {type: path, required: true, description: [The file for I(sources); it counts as none of them.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: preflight | Look at the user space
  provision_nvidia_userspace:
    version: 535.261.03
    look_up: true
    sources_file: /etc/apt/sources.list.d/nvidia-userspace.sources
"""
RETURN = r"""
kernel: {type: str, returned: always, description: The version of the host's kernel module; empty where it is not seen.}
libraries: {type: dict, returned: always, description: The version of each library that programs load; or an empty one.}
files: {type: dict, returned: always, description: The file of each library that programs load.}
matches: {type: bool, returned: always, description: Whether exactly I(version) is there.}
leftovers: {type: list, returned: always, description: Libraries of other versions that lie in the loader's folders.}
packages: {type: list, returned: always, description: Packages of the driver that are installed.}
kernel_packages: {type: list, returned: always, description: Those of them that would build kernel modules.}
sources: {type: str, returned: always, description: "apt's sources (deb822) for what the machine's own ones leave out."}
offered: {type: list, returned: always, description: "The versions that apt has, the newest first; where it was asked."}
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
KERNEL_MODULE = Path("/proc/driver/nvidia/version")
COMPONENTS = ("contrib", "non-free")
"""Where Debian has the driver, and the packages that it depends on."""
APT_TIMEOUT_S = 300
FOLDERS = ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/nvidia/*", "usr/lib", "usr/lib64", "usr/local/lib")
LOADED = """
import ctypes, sys
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        print(error, file=sys.stderr)
print(*{line.split()[-1] for line in open("/proc/self/maps") if "/" in line}, sep="\\n")
"""
"""The files are those that are mapped: links and the loader's cache say only what was meant."""
INSTALLED = "${db:Status-Abbrev}\t${Package}\t${source:Package}\n"


@dataclass(frozen=True)
class Source:
    """An entry of apt's sources: where it leads, what it has, and the fields that say how it is trusted."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()


def main() -> None:
    """Look and answer."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "look_up": {"type": "bool", "default": False},
            "sources_file": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params["version"]
    files = loaded_files(_output([sys.executable, "-c", LOADED, *LIBRARIES]))
    libraries = {name: version_of(files[name]) for name in LIBRARIES}
    packages = driver_packages(_output(["dpkg-query", "--show", "--showformat", INSTALLED]))
    leftovers = [str(file) for file in other_versions(Path("/"), wanted)]
    matches = set(libraries.values()) == {wanted} and not leftovers
    own = read_sources(Path("/etc/apt"), besides=Path(module.params["sources_file"]))
    entries = list(debian_entries(own, codename(Path("/etc/os-release"))))
    looks_up = module.params["look_up"] and not matches
    offered = _offered(module, entries) if looks_up else []
    kernel = KERNEL_MODULE.read_text(encoding="utf-8") if KERNEL_MODULE.is_file() else ""
    module.exit_json(
        changed=False,
        kernel=kernel_version(kernel),
        libraries=libraries,
        files=files,
        matches=matches,
        leftovers=leftovers,
        packages=packages,
        kernel_packages=[name for name in packages if re.search(r"dkms|kernel-source", name)],
        sources=sources_text(entries, lacking=True),
        offered=offered,
    )


def loaded_files(mapped: str) -> dict[str, str]:
    """Of the files that a process has mapped, the one of each library; empty where it could not be loaded."""
    paths = {Path(path).name: path for path in mapped.splitlines()}
    return {library: _mapped_file(library, paths) for library in LIBRARIES}


def _mapped_file(library: str, paths: Mapping[str, str]) -> str:
    """The first path, by the names of the files, whose name is the library's with any version."""
    for name in sorted(paths):
        if name.startswith(library.removesuffix(".1")):
            return paths[name]
    return ""


def version_of(file: str) -> str:
    """The version in "libcuda.so.535.261.03"; empty in the name of what is no driver's."""
    match = re.search(r"\.so\.(\d+(?:\.\d+)+)$", file)
    return match[1] if match else ""


def kernel_version(text: str) -> str:
    """The version in the first line of /proc/driver/nvidia/version."""
    match = re.search(r"\s(\d+(?:\.\d+)+)\s", text.partition("\n")[0])
    return match[1] if match else ""


def other_versions(root: Path, wanted: str) -> Iterator[Path]:
    """The driver's libraries below the loader's folders that are of another version."""
    for folder, library in product(FOLDERS, LIBRARIES):
        for file in sorted(root.glob(f"{folder}/{library.removesuffix('1')}*")):
            is_another = version_of(file.name) not in {"", wanted}
            if is_another and not file.is_symlink():
                yield file


def driver_packages(listed: str) -> list[str]:
    """Of the lines that dpkg-query prints by ``INSTALLED``, the installed packages that are built from the driver."""
    packages = []
    for line in listed.splitlines():
        status, name, source = line.split("\t")
        if status.startswith("ii") and source.startswith("nvidia-graphics"):
            packages.append(name)
    return sorted(packages)


def codename(os_release: Path) -> str:
    """The word for this release in apt's sources, such as bookworm."""
    match = re.search(r'^VERSION_CODENAME="?(\w+)', os_release.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def read_sources(folder: Path, besides: Path) -> list[Source]:
    """All that the machine's files name ``besides`` one, both formats, in their order."""
    sources: list[Source] = []
    for file in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))):
        if file.is_file():
            sources += lines_in(file.read_text(encoding="utf-8"))
    for file in sorted(folder.glob("sources.list.d/*.sources")):
        if file != besides:
            sources += stanzas_in(file.read_text(encoding="utf-8"))
    return sources


def lines_in(text: str) -> Iterator[Source]:
    """The entries of one line each: ``deb [options] URI suite components``."""
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if match:
            options = tuple(map(_option, (match[1] or "").split()))
            yield Source((match[2],), (match[3],), tuple(match[4].split()), options)


def _option(written: str) -> tuple[str, str]:
    """An option of a line, such as "arch=amd64,i386", as deb822 has it."""
    key, _, value = written.partition("=")
    name = "Architectures" if key.lower() == "arch" else key.title()
    return name, value.replace(",", " ")


def stanzas_in(text: str) -> Iterator[Source]:
    """The entries of deb822: fields, a stanza each; an embedded key stays as it is written."""
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", without_comments):
        written = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        fields = {name.title(): value for name, value in written}
        has_packages = "deb" in fields.pop("Types", "").split()
        is_enabled = fields.pop("Enabled", "yes").strip() != "no"
        if has_packages and is_enabled:
            uris, suites = fields.pop("Uris", "").split(), fields.pop("Suites", "").split()
            components = fields.pop("Components", "").split()
            yield Source(tuple(uris), tuple(suites), tuple(components), tuple(fields.items()))


def debian_entries(sources: Iterable[Source], release: str) -> Iterator[Source]:
    """Each archive and suite of Debian itself that the machine uses, with the components that it has there."""
    plain = list(_single(sources))
    beside_release = ((f"{release}-updates",), (f"{release}-security",))
    # Others publish for Debian under its suites' names, too; only Debian has updates beside them.
    debian = {source.uris for source in plain if source.suites in beside_release}
    merged: dict[tuple[str, str], Source] = {}
    for source in plain:
        if source.uris not in debian or source.suites not in ((release,), *beside_release):
            continue
        key = (source.uris[0], source.suites[0])
        known = merged.get(key, replace(source, components=()))
        merged[key] = replace(known, components=(*known.components, *source.components))
    for source in merged.values():
        if "main" in source.components:
            yield source


def _single(sources: Iterable[Source]) -> Iterator[Source]:
    """An entry for each address and suite."""
    for source in sources:
        for uri, suite in product(source.uris, source.suites):
            yield Source((uri.rstrip("/"),), (suite,), source.components, source.options)


def sources_text(entries: Iterable[Source], *, lacking: bool) -> str:
    """deb822 for the driver's components: of ``lacking`` ones only, else all. What an archive is trusted by stays."""
    stanzas = []
    for entry in entries:
        there = entry.components if lacking else ()
        components = [component for component in COMPONENTS if component not in there]
        if components:
            stanzas.append(_stanza(entry, components))
    return "\n".join(stanzas)


def _stanza(entry: Source, components: Iterable[str]) -> str:
    fields = [("Types", "deb"), ("URIs", entry.uris[0]), ("Suites", entry.suites[0])]
    fields += [("Components", " ".join(components)), *entry.options]
    return "".join(f"{key}: {value}\n" for key, value in fields)


def versions_in(listed: str) -> list[str]:
    """The driver's versions in what ``apt-cache madison`` lists, each once, in its order, which is the newest first."""
    versions: dict[str, None] = {}
    for line in listed.splitlines():
        if line.count("|") > 1:
            version = line.split("|")[1].strip()
            versions[re.sub(r"^\d+:|-[^-]*$", "", version)] = None
    return list(versions)


def _offered(module: AnsibleModule, entries: Iterable[Source]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="provision-apt-") as folder:
        place = Path(folder)
        place.chmod(0o755)  # apt fetches as a user of its own
        for name in ("parts", "lists/partial", "cache/archives/partial"):
            (place / name).mkdir(parents=True)
        (place / "parts/nvidia.sources").write_text(sources_text(entries, lacking=False), encoding="utf-8")
        ours = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": f"{folder}/parts",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": f"{folder}/lists",
            "Dir::Cache": f"{folder}/cache",
            "APT::Update::Error-Mode": "any",
            "Acquire::Retries": "3",
            "Acquire::Languages": "none",
        }
        options: list[str] = []
        for key, value in ours.items():
            options += ["-o", f"{key}={value}"]
        done = _run(["apt-get", *options, "--quiet", "update"])
        if done.returncode:
            module.fail_json(
                msg=f"Unable to ask apt for NVIDIA's packages: {done.stdout.strip()} Mend /etc/apt, or the network."
            )
        return versions_in(_output(["apt-cache", *options, "madison", "libcuda1"]))


def _output(command: list[str]) -> str:
    return str(_run(command).stdout)


def _run(command: list[str], variables: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**(os.environ if variables is None else variables), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if command[0] == "apt-get" else subprocess.DEVNULL,
        text=True,
        errors="replace",
        timeout=APT_TIMEOUT_S,
        check=False,
    )


if __name__ == "__main__":
    main()
