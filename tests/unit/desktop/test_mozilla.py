"""What apt makes of the files for Mozilla's repository: its own programs read them, nothing is fetched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from provisioner.values import paths

ROLE = paths.roles() / "desktop"
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
needs_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt reads these files")


def rendered(name: str) -> str:
    templates = Environment(loader=FileSystemLoader(ROLE / "templates"), undefined=StrictUndefined, autoescape=True)
    return templates.get_template(name).render(VARIABLES, ansible_managed="ours")


def stanzas(text: str) -> list[dict[str, str]]:
    lines = [[line for line in one.splitlines() if not line.startswith("#")] for one in text.strip().split("\n\n")]
    return [dict(line.split(": ", 1) for line in one) for one in lines]


def apt(program: str, *arguments: str, folder: Path) -> str:
    """What it says when it knows only what lies in the folder."""
    options = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": folder,
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": folder,
        "Dir::State": folder / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": folder / "cache",
    }
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    command = [program, *(f"-o{name}={value}" for name, value in options.items()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}, timeout=60).stdout


@needs_apt
def test_apt_would_ask_the_repository_for_its_packages(tmp_path: Path) -> None:
    (tmp_path / "mozilla.sources").write_text(rendered("mozilla.sources.j2"), encoding="utf-8")
    asked = apt("/usr/bin/apt-get", "--print-uris", "update", folder=tmp_path)
    assert "'https://packages.mozilla.org/apt/dists/mozilla/InRelease'" in asked
    assert "'https://packages.mozilla.org/apt/dists/mozilla/main/binary-" in asked
    key = "/etc/apt/keyrings/packages.mozilla.org.asc"
    assert [one["Signed-By"] for one in stanzas(rendered("mozilla.sources.j2"))] == [key]


@needs_apt
def test_apt_prefers_it_to_everything_and_refuses_ubuntus_stub(tmp_path: Path) -> None:
    # Ubuntu's transitional package is 1:1snap1-...: only a priority of 1000 or more goes below its version
    (tmp_path / "mozilla.pref").write_text(rendered("mozilla.pref.j2"), encoding="utf-8")
    assert "Package files:" in apt("/usr/bin/apt-cache", "policy", folder=tmp_path)
    assert stanzas(rendered("mozilla.pref.j2")) == [
        {"Package": "*", "Pin": "origin packages.mozilla.org", "Pin-Priority": "1000"},
        {"Package": "firefox*", "Pin": "release o=Ubuntu", "Pin-Priority": "-1"},
    ]


@needs_apt
def test_apt_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    broken = rendered("mozilla.sources.j2").replace("Suites: mozilla\n", "")
    (tmp_path / "mozilla.sources").write_text(broken, encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        apt("/usr/bin/apt-get", "--print-uris", "update", folder=tmp_path)
    assert "Suite" in refused.value.stderr


def test_the_key_is_known_by_its_whole_fingerprint() -> None:
    assert VARIABLES["__desktop_mozilla_fingerprint"] == "35BAA0B33E9EB396F59CA838C0BA5CE6DC6315A3"
