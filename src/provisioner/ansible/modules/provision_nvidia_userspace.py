"""Ansible module: looks at the user space of NVIDIA's driver: what is loaded, what is left over, what apt has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

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
author: [provisioner]
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
    offered = _offered(module, entries) if module.params["look_up"] and not matches else []
    module.exit_json(
        changed=False,
        kernel=kernel_version(KERNEL_MODULE.read_text(encoding="utf-8") if KERNEL_MODULE.is_file() else ""),
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
    names = {Path(line).name: line for line in mapped.splitlines()}
    stems = {library: library.removesuffix(".1") for library in LIBRARIES}
    return {
        library: next((path for name, path in sorted(names.items()) if name.startswith(stem)), "")
        for library, stem in stems.items()
    }


def version_of(file: str) -> str:
    """The version in "libcuda.so.535.261.03"; empty in the name of what is no driver's."""
    found = re.search(r"\.so\.(\d+(?:\.\d+)+)$", file)
    return found[1] if found else ""


def kernel_version(text: str) -> str:
    """The version in the first line of /proc/driver/nvidia/version."""
    found = re.search(r"\s(\d+(?:\.\d+)+)\s", text.partition("\n")[0])
    return found[1] if found else ""


def other_versions(root: Path, wanted: str) -> Iterator[Path]:
    """The driver's libraries below the loader's folders that are of another version."""
    for folder in FOLDERS:
        for library in LIBRARIES:
            for file in sorted(root.glob(f"{folder}/{library.removesuffix('1')}*")):
                if not file.is_symlink() and version_of(file.name) not in {"", wanted}:
                    yield file


def driver_packages(listed: str) -> list[str]:
    """Of the lines that dpkg-query prints by ``INSTALLED``, the installed packages that are built from the driver."""
    lines = (line.split("\t") for line in listed.splitlines())
    return sorted(
        name for status, name, source in lines if status.startswith("ii") and source.startswith("nvidia-graphics")
    )


def codename(os_release: Path) -> str:
    """The word for this release in apt's sources, such as bookworm."""
    found = re.search(r'^VERSION_CODENAME="?(\w+)', os_release.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def read_sources(folder: Path, besides: Path) -> list[Source]:
    """All that the machine's files name ``besides`` one, both formats, in their order."""
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]
    lines = [one for file in files if file.is_file() for one in lines_in(file.read_text(encoding="utf-8"))]
    stanzas = [
        one
        for file in sorted(folder.glob("sources.list.d/*.sources"))
        if file != besides
        for one in stanzas_in(file.read_text(encoding="utf-8"))
    ]
    return lines + stanzas


def lines_in(text: str) -> Iterator[Source]:
    """The entries of one line each: ``deb [options] URI suite components``."""
    for line in text.splitlines():
        found = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if found:
            pairs = (option.partition("=") for option in (found[1] or "").split())
            options = tuple((key.title(), value.replace(",", " ")) for key, _, value in pairs)
            options = tuple(("Architectures" if key == "Arch" else key, value) for key, value in options)
            yield Source((found[2],), (found[3],), tuple(found[4].split()), options)


def stanzas_in(text: str) -> Iterator[Source]:
    """The entries of deb822: fields, a stanza each; an embedded key stays as it is written."""
    for stanza in re.split(r"\n\s*\n", "\n".join(line for line in text.splitlines() if not line.startswith("#"))):
        found = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        fields = {name.title(): value for name, value in found}
        if "deb" in fields.pop("Types", "").split() and fields.pop("Enabled", "yes").strip() != "no":
            uris, suites, components = (tuple(fields.pop(one, "").split()) for one in ("Uris", "Suites", "Components"))
            yield Source(uris, suites, components, tuple(fields.items()))


def debian_entries(sources: Iterable[Source], release: str) -> Iterator[Source]:
    """Each archive and suite of Debian itself that the machine uses, with the components that it has there."""
    plain = [
        Source((uri.rstrip("/"),), (suite,), one.components, one.options)
        for one in sources
        for uri in one.uris
        for suite in one.suites
    ]
    # Others publish for Debian under its suites' names, too; only Debian has updates beside them.
    debian = {one.uris for one in plain if one.suites == (f"{release}-updates",)} | {
        one.uris for one in plain if one.suites == (f"{release}-security",)
    }
    wanted = {release, f"{release}-updates", f"{release}-security"}
    merged: dict[tuple[str, str], Source] = {}
    for one in plain:
        if one.uris in debian and one.suites[0] in wanted:
            key = (one.uris[0], one.suites[0])
            known = merged.get(key, Source(one.uris, one.suites, (), one.options))
            merged[key] = Source(one.uris, one.suites, (*known.components, *one.components), known.options)
    yield from (one for one in merged.values() if "main" in one.components)


def sources_text(entries: Iterable[Source], *, lacking: bool) -> str:
    """deb822 for the driver's components: of ``lacking`` ones only, else all. What an archive is trusted by stays."""
    stanzas = []
    for one in entries:
        components = [name for name in COMPONENTS if not (lacking and name in one.components)]
        if components:
            fields = {"Types": "deb", "URIs": one.uris[0], "Suites": one.suites[0], "Components": " ".join(components)}
            stanzas.append("".join(f"{key}: {value}\n" for key, value in [*fields.items(), *one.options]))
    return "\n".join(stanzas)


def versions_in(listed: str) -> list[str]:
    """The driver's versions in what ``apt-cache madison`` lists, each once, in its order, which is the newest first."""
    columns = (line.split("|") for line in listed.splitlines() if line.count("|") > 1)
    return list(dict.fromkeys(re.sub(r"^\d+:|-[^-]*$", "", one[1].strip()) for one in columns))


def _offered(module: AnsibleModule, entries: Iterable[Source]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="provision-apt-") as folder:
        place = Path(folder)
        place.chmod(0o755)  # apt fetches as a user of its own
        for one in ("parts", "lists/partial", "cache/archives/partial"):
            (place / one).mkdir(parents=True)
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
        options = [word for key, value in ours.items() for word in ("-o", f"{key}={value}")]
        done = _run(["apt-get", *options, "--quiet", "update"])
        if done.returncode:
            module.fail_json(
                msg=f"Unable to ask apt for NVIDIA's packages: {done.stdout.strip()} Mend /etc/apt, or the network."
            )
        return versions_in(_output(["apt-cache", *options, "madison", "libcuda1"]))


def _output(command: list[str]) -> str:
    return str(_run(command).stdout)


def _run(command: list[str], variables: Mapping[str, Any] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**variables, "LC_ALL": "C.UTF-8"},
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
