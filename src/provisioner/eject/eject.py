"""The verb ``eject``: a folder of plain Ansible that configures the lab without this program; whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from provisioner.eject.texts import Box, Source, connection_plugins, ejected_texts, kind_of_plugin, roles_of
from provisioner.lab import desired_fleet
from provisioner.lab.opening import Lab, find_files, with_wheels
from provisioner.lab.written import host_variables, role_variables
from provisioner.reconcile.addresses import look_at_addresses
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.observe import cards_of, kept_images, observe
from provisioner.reconcile.runner import ansible_version
from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProvisionError
from provisioner.values.state import Fleet

# The modules that plugins of ours import, and how a copy of a plugin in an ejected folder finds them.

PRELOAD = "provision_preload"
"""The callback that has ready what tasks load, as one process for each of them would load it again."""
PRELOADED = ("inside/module_server/packed_modules", "values/paths")
"""The modules below ``provisioner`` that it imports; a test runs each plugin with its own alone."""
FOLDER = "python"
_TAIL = f"""

# Ejected: what this plugin imports lies beside it.
import sys  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "{FOLDER}"))
"""


def plugin_text(text: str) -> str:
    """The text of a plugin that finds its imports, which stand inside functions, in the folder beside it."""
    return text.rstrip("\n") + "\n" + _TAIL


def modules_of(plugin: str) -> tuple[str, ...]:
    """The modules below ``provisioner`` that a plugin imports; none where the plugin is not ours."""
    if plugin == PRELOAD:
        return PRELOADED
    kind = kind_of_plugin(plugin)
    return kind.plugin_modules if kind else ()


def packages_of(modules: tuple[str, ...]) -> set[str]:
    """The folders that need an ``__init__.py``, each below ``FOLDER``."""
    folders = set()
    for module in modules:
        for parent in PurePosixPath("provisioner", module).parents:
            folders.add(str(parent))
    return folders - {"."}


# The folder, which is written whole or not at all.

PLAYBOOKS = ("site.yml", "verify.yml", "containers.yml")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def eject(lab: Lab, effects: Effects, folder: Path) -> tuple[str, ...]:
    """Write the folder, and give the names of its files; raises ``PreflightError`` when there is anything in it.

    Hosts are looked at, for their processors and for how their containers are reached; nothing is changed there.
    """
    _require_room(folder)
    source = _source(lab, effects)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.resolve().parent) as private:
            made = Path(private) / "lab"
            made.mkdir()
            _write(made, source)
            _copy(made, source)
            names = tuple(sorted(str(one.relative_to(made)) for one in made.rglob("*") if one.is_file()))
            _move(made, folder)
    except OSError as error:
        raise ProvisionError(f"Unable to write {folder}", details=str(error)) from error
    return names


def _require_room(folder: Path) -> None:
    what = f"Unable to write {folder}"
    if folder.exists() and not folder.is_dir():
        raise PreflightError(f"{what}: it is a file", resolution="Name a folder that is empty, or not there yet.")
    if folder.is_dir() and any(folder.iterdir()):
        raise PreflightError(f"{what}: there is something in it", resolution="Name an empty folder, or a new one.")
    if not folder.resolve().parent.is_dir():
        raise PreflightError(f"{what}: {folder.parent} is no folder", resolution=f"Run: mkdir -p {folder.parent}")


def _source(lab: Lab, effects: Effects) -> Source:
    providers = effects.providers
    actual = observe(lab.name, providers, detailed=False)
    cards = cards_of(lab, providers)
    addresses = look_at_addresses(lab, providers, actual).known
    resolved = with_wheels(lab, lab.on_hosts(cards, addresses=addresses, images=kept_images(lab, actual)), actual.hosts)
    fleet = desired_fleet(resolved, find_files(lab).hashed(effects.emit).files, actual.hosts)
    _require_there(lab, fleet, actual)
    boxes = [
        Box(one, providers[one.host].connection_variables(one.name), role_variables(one, lab.resolved))
        for one in fleet.instances
    ]
    used = {one.host for one in fleet.instances}
    hosts = {name: host_variables(host) for name, host in lab.resolved.hosts.items() if name in used}
    plays = {name: (paths.playbooks() / name).read_text(encoding="utf-8") for name in PLAYBOOKS}
    return Source(lab.name, boxes, hosts, plays, ansible_version())


def _require_there(lab: Lab, wanted: Fleet, there: Fleet) -> None:
    missing = sorted({one.name for one in wanted.instances} - {one.name for one in there.instances})
    reasons = {name: there.absence(name, lab.loaded.path) for name in missing}
    if missing:
        raise PreflightError(
            f"Unable to eject container {', '.join(missing)}",
            details="\n".join(
                [
                    *(f"{name}: {why}" for name, (why, _) in reasons.items()),
                    "What is ejected configures containers; it does not make what is mounted in them.",
                ]
            ),
            resolution="\n".join(hint for _, hint in reasons.values()),
        )


def _write(made: Path, source: Source) -> None:
    for name, text in ejected_texts(source).items():
        target = made / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _copy(made: Path, source: Source) -> None:
    roles = roles_of(source.boxes)
    for role in roles:
        shutil.copytree(paths.roles() / role, made / "roles" / role, ignore=_LEFT_OUT)
    tasks = "\n".join(one.read_text(encoding="utf-8") for one in (made / "roles").glob("*/*/*.yml"))
    for module in (paths.plugins() / "modules").glob("*.py"):
        if f"{module.stem}:" in tasks:
            _copy_file(module, made / "library" / module.name)
    for name in connection_plugins(source.boxes):
        plugin = paths.plugins() / "connection" / f"{name}.py"
        if plugin.is_file():
            _copy_plugin(plugin, made)
    _copy_plugin(paths.plugins() / "callback" / f"{PRELOAD}.py", made)


def _copy_plugin(plugin: Path, made: Path) -> None:
    target = made / f"{plugin.parent.name}_plugins" / plugin.name
    modules = modules_of(plugin.stem)
    _copy_file(plugin, target)
    if modules:
        target.write_text(plugin_text(plugin.read_text(encoding="utf-8")), encoding="utf-8")
    for module in modules:
        _copy_file(paths.PACKAGE / f"{module}.py", made / FOLDER / "provisioner" / f"{module}.py")
    for package in packages_of(modules):
        (made / FOLDER / package / "__init__.py").touch()


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _move(made: Path, folder: Path) -> None:
    """Give it its name; into a folder that is there, one thing after the other, and back when that fails."""
    if not folder.exists():
        made.rename(folder.resolve())
        return
    with ExitStack() as undo:
        for one in sorted(made.iterdir()):
            there = one.rename(folder.resolve() / one.name)
            undo.callback(there.rename, one)
        undo.pop_all()
