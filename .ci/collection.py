"""``make collection``: this tree as the Ansible collection ``provisioner.inference``, one file in ``dist/``.

Roles, modules and plugins are the very files of the tree, links followed. Few lines become others: imports of this
package in what Ansible sends along, the names of our lookups in roles, which a collection has to say in full, and the
version.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
FULL_NAME = "provisioner.inference"
PACKAGE = "src/provisioner"
LEFT_OUT = {"__pycache__", ".ansible", "module_utils"}
"""The roles' own ``module_utils`` are links into the package: its files lie in ``plugins/module_utils`` once."""
COMPARED = "values/one_version.py"
"""What refuses a package of another version than the collection's, which the build writes into it."""
SENT_ALONG = (
    "cuda/__init__.py",
    "cuda/driver.py",
    "cuda/glibc.py",
    "cuda/headers.py",
    "cuda/look.py",
    "cuda/overlay.py",
    "cuda/places.py",
    "cuda/probe.py",
    "cuda/toolkit.py",
    "gpus/__init__.py",
    "gpus/cards.py",
    "gpus/health.py",
    "gpus/look.py",
    "values/__init__.py",
    "values/errors.py",
    COMPARED,
    "values/regular_files.py",
)
"""What modules import of the package; Ansible sends it to the managed machine with them."""
BESIDE_PLUGINS = ("tls/authority.py", "services/gateway_routes.py")
"""What lookups import of the package, on the controller."""
FOLDERS = {
    ".ci/collection": ".",
    "roles": "roles",
    f"{PACKAGE}/ansible/modules": "plugins/modules",
    f"{PACKAGE}/ansible/lookup": "plugins/lookup",
    f"{PACKAGE}/ansible/connection": "plugins/connection",
    f"{PACKAGE}/ansible/inventory": "plugins/inventory",
}
"""Folder of this tree → folder of the collection. Our callbacks are of no use without ``provision``."""
FILES = {
    "CHANGELOG.md": "CHANGELOG.md",
    **{f"{PACKAGE}/{name}": f"plugins/module_utils/{name}" for name in SENT_ALONG},
    **{f"{PACKAGE}/{name}": f"plugins/plugin_utils/{name}" for name in BESIDE_PLUGINS},
}
NEED_THE_PACKAGE = (
    "lab.py",
    "provision_container.py",
    "provision_incus.py",
    "provision_proxmox.py",
    "provision_secret.py",
)
"""Plugins that run on the controller alone, and only where the package is installed; their pages say so.

They import of it alone, but for the comparison of both versions, which raises nothing: an error of the package is none
of the collection's classes, which nobody would catch.
"""
WITHOUT_THE_PACKAGE = """try:  # noqa: SIM105  # only this form may stand before imports
    import ansible.module_utils.provisioner  # noqa: F401  # in a container: sent along by the role
except ImportError:  # here is the whole package
    pass

"""
"""How a module finds the package's files without a collection."""
LOOKUP = re.compile(r"\blookup\('(provision_\w+)'")
OF_THE_PACKAGE = re.compile(r"^\s*(?:from|import) provisioner\b.*", re.MULTILINE)


def files() -> Iterator[tuple[PurePosixPath, PurePosixPath]]:
    """Each file of the collection: its path in this tree, and that in the collection. Only what belongs to the tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for path in map(PurePosixPath, sorted(filter(None, listed.split("\0")))):
        place = place_of(path)
        if place is not None:
            yield path, place


def place_of(path: PurePosixPath) -> PurePosixPath | None:
    """Where a file of this tree lies in the collection; ``None`` where it is none of its files."""
    if LEFT_OUT.intersection(path.parts):
        return None
    if str(path) in FILES:
        return PurePosixPath(FILES[str(path)])
    for folder, target in FOLDERS.items():
        if path.is_relative_to(folder):
            return target / path.relative_to(folder)
    return None


def text_of(place: PurePosixPath, text: str, version: str) -> str:
    """The text that a file has in the collection, of what it has in this tree."""
    if place == PurePosixPath("galaxy.yml"):
        return re.sub(r"^version: .*$", f"version: {version}", text, flags=re.MULTILINE)
    if place == PurePosixPath("plugins/module_utils", COMPARED):
        return _with_version(place, text, version)
    if place.suffix == ".py" and place.parts[0] == "plugins":
        return _imported(place, text.replace(WITHOUT_THE_PACKAGE, ""))
    if place.suffix == ".yml" and place.parts[0] == "roles":
        return LOOKUP.sub(rf"lookup('{FULL_NAME}.\1'", text)
    return text


def _imported(place: PurePosixPath, text: str) -> str:
    """Each import of one of the package's files that lies in the collection, by the name that it has there."""
    if place.name in NEED_THE_PACKAGE:
        return _of_the_collection(text, "module_utils", (COMPARED,))
    text = _of_the_collection(text, "module_utils", SENT_ALONG)
    text = _of_the_collection(text, "plugin_utils", BESIDE_PLUGINS)
    left = OF_THE_PACKAGE.search(text)
    if left is not None:
        raise SystemExit(f"Unable to put {place} into the collection, which lacks what it imports: {left[0].strip()}")
    return text


def _of_the_collection(text: str, folder: str, names: tuple[str, ...]) -> str:
    """The text, which imports these files of the package from a folder of the collection."""
    for name in names:
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        new = f"from ansible_collections.{FULL_NAME}.plugins.{folder}.{module} import "
        old = rf"^(\s*)from provisioner\.{re.escape(module)} import "
        text = re.sub(old, rf"\1{new}", text, flags=re.MULTILINE)
    return text


def _with_version(place: PurePosixPath, text: str, version: str) -> str:
    """The text of what compares versions, with the collection's; ``SystemExit`` where it has no line for it."""
    written, count = re.subn(r'^COLLECTION = ""$', f'COLLECTION = "{version}"', text, flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f'Unable to write the version into {place}: it has {count} lines COLLECTION = "".')
    return written


def version_of(root: Path) -> str:
    """The package's version, which is the collection's."""
    found = re.search(r'^__version__ = "(.+)"$', (root / PACKAGE / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"Unable to find __version__ in {PACKAGE}/__init__.py.")
    return found[1]


def write(folder: Path, version: str = "") -> None:
    """Write the collection's files below ``folder``, each with its mode in this tree; the version is the package's."""
    version = version or version_of(ROOT)
    for path, place in files():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
        if target.suffix in {".py", ".yml"}:
            target.write_text(text_of(place, target.read_text("utf-8"), version), encoding="utf-8")
        shutil.copymode(ROOT / path, target)


def build(output: Path) -> None:
    """Build the collection's file in ``output``; one of the same version is replaced."""
    with tempfile.TemporaryDirectory(prefix="provisioner-collection-") as folder:
        tree = Path(folder, "ansible_collections", *FULL_NAME.split("."))
        write(tree)
        program = Path(sys.executable).parent / "ansible-galaxy"
        subprocess.run(
            [program, "collection", "build", tree, "--output-path", output, "--force"], check=True, timeout=600
        )


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
