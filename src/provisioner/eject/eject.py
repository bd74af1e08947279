"""The verb ``eject``: a folder of plain Ansible that configures the lab without this program; whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from provisioner.hosts import kind_of, kinds
from provisioner.hosts.base import Kind
from provisioner.lab import desired_fleet
from provisioner.lab.cards import TAKING_TURNS, one_by_one, takes_turns
from provisioner.lab.opening import Lab, find_files, with_wheels
from provisioner.lab.written import host_variables, role_variables
from provisioner.labfile.loader import environment_name
from provisioner.reconcile.addresses import look_at_addresses
from provisioner.reconcile.effects import Effects
from provisioner.reconcile.inventory import CONTAINER_PYTHON
from provisioner.reconcile.observe import cards_of, kept_images, observe
from provisioner.reconcile.runner import ansible_version
from provisioner.values import paths
from provisioner.values.errors import PreflightError, ProvisionError
from provisioner.values.state import Fleet, Instance, Secret, secrets_of

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


# Values as YAML that a person could have written for Ansible: text of a file is no template; secrets are lookups.

_STR = "tag:yaml.org,2002:str"
_TEMPLATE_MARKS = ("{{", "{%", "{#")
_OWN_MARKS = "#jinja2:"
"""What a text begins with that says itself which marks its template has."""


class _Template(str):
    """A string of ours that Ansible has to template."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, without anchors; text that looks like a template gets ``!unsafe``."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
        """Anchors would hide which host has which value."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's signature
        """Indent lists, as ansible-lint wants them."""
        super().increase_indent(flow, indentless=False)


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if text.startswith(_OWN_MARKS) or any(mark in text for mark in _TEMPLATE_MARKS):
        return dumper.represent_scalar("!unsafe", text, style='"')
    return dumper.represent_scalar(_STR, text)


_Dumper.add_representer(str, _represent)
_Dumper.add_representer(_Template, lambda dumper, text: dumper.represent_scalar(_STR, str(text), style='"'))


def plain_yaml(value: Any) -> str:
    """``value`` as YAML for Ansible."""
    return str(yaml.dump(_marked(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000))


def reference(secret: Secret) -> str:
    """The template by which Ansible finds a secret's value; without one, the task that needs it fails and says so."""
    name = environment_name(secret.name)
    return f"{{{{ lookup('ansible.builtin.env', '{name}', default=undef(hint='Set {name}.')) }}}}"


def _marked(value: Any) -> Any:
    """The value made of YAML's own types, and of templates where there are secrets."""
    if isinstance(value, Secret):
        return _Template(reference(value))
    if isinstance(value, Mapping):
        return {str(key): _marked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_marked, value))
    if isinstance(value, str):
        return str(value)
    return value


# Texts that are no data: the configuration of Ansible, and the README.

CONFIGURATION = """\
[defaults]
inventory = hosts.yml
roles_path = roles
library = library
connection_plugins = connection_plugins
callback_plugins = callback_plugins
gathering = explicit
forks = 10
retry_files_enabled = False

[connection]
pipelining = True
"""

PLUGIN = "provision_"
"""With this the name of a connection plugin of ours begins; its kind of host follows."""


def kind_of_plugin(plugin: str) -> Kind | None:
    """The kind of host whose containers a connection plugin of ours reaches; None where the plugin is not ours."""
    name = plugin.removeprefix(PLUGIN)
    return kind_of(name) if plugin.startswith(PLUGIN) and name in kinds() else None


@dataclass(frozen=True, slots=True)
class About:
    """What a README tells of; ``variables`` of the environment give secrets (True: to ``containers.yml`` only)."""

    lab: str
    variables: Mapping[str, bool]
    plugins: Sequence[str]
    playbooks: Sequence[str]


def readme(about: About) -> str:
    """The README: the three commands, then what lies where and what is needed."""
    lab = about.lab
    needed = [name for name, is_for_making in about.variables.items() if not is_for_making]
    for_making = [name for name, is_for_making in about.variables.items() if is_for_making]
    proofs = " `ansible-playbook verify.yml` only proves;" if "verify.yml" in about.playbooks else ""
    playbooks = _quoted(name for name in about.playbooks if name != "containers.yml")
    secrets = f" It needs {_quoted(for_making)}, too." if for_making else ""
    return f"""\
# {lab}

Ansible that configures the containers of the lab `{lab}` and proves that they work. It was written by
`provision eject` and needs `ansible-core` and nothing else: no collection, and not provision.

```sh
python3 -m venv .venv && .venv/bin/pip install --requirement requirements.txt
{_export(needed)}
.venv/bin/ansible-playbook site.yml
```

A second run changes nothing.{proofs} `--limit NAME` takes one container.

| here | what |
|---|---|
| `hosts.yml`, `host_vars/`, `group_vars/` | the containers, how they are reached, and every option of their services |
| {playbooks} | the plays |
| `roles/` | copies of the roles, each with its options in `README.md` |
| `library/`, `connection_plugins/`, `python/` | modules of the roles; the way into the containers |
| `callback_plugins/` | has ready what tasks load; modules as Ansible packs them are kept in `~/.cache/provisioner` |
| `containers.yml` | makes the containers themselves; see below |

## Secrets

No value is in this folder. Each is looked up in a variable of the environment; one that is not set is an error of the
task that needs it.{_listed(needed)}

## How the containers are reached

{_ways(about.plugins)}

## What stays provision's

* `containers.yml` (role `container`) makes, changes and starts the containers. It alone runs provision's own code:
  install the package into the same virtual environment first.{secrets}
* Programs and models that are mounted read-only (`/opt/…`, `/srv/models`) are built and stored by `provision up`. They
  are on the hosts as long as nobody deletes their volumes; `container_devices` names them.
* The containers bear the mark of the lab `{lab}`: `provision` goes on managing them where its file is used again.
"""


def _export(variables: Sequence[str]) -> str:
    if not variables:
        return ": # no secret is needed"
    return " ".join(["export", *(f"{name}=…" for name in variables)])


def _ways(plugins: Sequence[str]) -> str:
    """How each connection plugin reaches the containers, a line each."""
    lines = [f"* {kind.plugin_words}" for kind in map(kind_of_plugin, plugins) if kind]
    return "\n".join(lines) or "* by `ansible_connection` in `hosts.yml`."


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    return "\n" + "".join(f"\n* `{name}`" for name in names)


# The files of the folder, all of them by their paths.

MAKING_ROLE = "container"
"""The role that makes containers; it alone needs this program."""


@dataclass(frozen=True, slots=True)
class Box:
    """One container: what it is, how Ansible reaches it, and the variables of the role that makes it."""

    instance: Instance
    connection: Mapping[str, str]
    making: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """What the ejected lab is made of: its containers, variables of whole hosts, our playbooks, Ansible's version."""

    lab: str
    boxes: Sequence[Box]
    hosts: Mapping[str, Mapping[str, Any]]
    playbooks: Mapping[str, str]
    ansible: str


def ejected_texts(source: Source) -> dict[str, str]:
    """The files of the folder, by their path in it; secrets are references in all of them."""
    groups = _groups(source.boxes)
    plays = _playbooks(source.playbooks, groups)
    about = About(source.lab, _variables(source), sorted(connection_plugins(source.boxes)), sorted(plays))
    pages = {"hosts.yml": plain_yaml({"all": {"children": groups}}), **plays}
    for box in source.boxes:
        pages[f"host_vars/{box.instance.name}.yml"] = _host_page(box)
    for host, variables in source.hosts.items():
        if variables:
            pages[f"group_vars/{host_group(host)}.yml"] = plain_yaml(variables)
    head = f"# Ejected from the lab {source.lab} by provision; yours from now on.\n"
    texts = {
        "ansible.cfg": CONFIGURATION,
        "requirements.txt": f"ansible-core~={source.ansible}\n",
        "README.md": readme(about),
    }
    texts |= {path: head + page for path, page in pages.items()}
    return texts


def roles_of(boxes: Sequence[Box]) -> tuple[str, ...]:
    """The roles that the folder needs."""
    names = {MAKING_ROLE}
    for box in boxes:
        names.update(role.role for role in box.instance.roles)
        names.update(service.behind for service in box.instance.services if service.behind)
    return tuple(sorted(names))


def connection_plugins(boxes: Sequence[Box]) -> set[str]:
    """The connection plugins that reach the containers."""
    return {box.connection["ansible_connection"] for box in boxes}


def host_group(host: str) -> str:
    """The group of the containers that live on a host; no dash may stand in a group's name."""
    return f"host_{host.replace('-', '_')}"


def _groups(boxes: Sequence[Box]) -> dict[str, Any]:
    groups: dict[str, Any] = {"containers": {"hosts": {}}}
    for box in boxes:
        instance = box.instance
        groups["containers"]["hosts"][instance.name] = {
            "ansible_python_interpreter": CONTAINER_PYTHON,
            **box.connection,
        }
        names = [host_group(instance.host), *(f"service_{service.role}" for service in instance.services)]
        if any(takes_turns(service) for service in instance.services):
            names.append(TAKING_TURNS)
        for name in names:
            group = groups.setdefault(name, {"hosts": {}})
            group["hosts"][instance.name] = {}
    return groups


def _host_page(box: Box) -> str:
    parts = ["# How it is made (containers.yml).\n" + plain_yaml(box.making)]
    with_options = [service for service in box.instance.services if service.variables]
    parts += [f"# Role {service.role}.\n{plain_yaml(service.variables)}" for service in with_options]
    return "\n".join(parts)


def _playbooks(playbooks: Mapping[str, str], groups: Mapping[str, Any]) -> dict[str, str]:
    """The playbooks with the plays for which there is anything to do here; Ansible takes no playbook without any."""
    texts = {}
    for name, text in playbooks.items():
        kept = [play for play in yaml.safe_load(text) if play["hosts"] in groups]
        plays = one_by_one(kept, {group: members["hosts"] for group, members in groups.items()})
        if plays:
            texts[name] = "\n".join(plain_yaml([play]) for play in plays)
    return texts


def _variables(source: Source) -> dict[str, bool]:
    """The environment variables that give the secrets' values; whether only ``containers.yml`` needs them."""
    of_services: list[Any] = []
    for box in source.boxes:
        of_services += [service.variables for service in box.instance.services]
    services = secrets_of(of_services)
    hosts = secrets_of(list(source.hosts.values()))
    return {environment_name(name): name not in services for name in sorted({**services, **hosts})}
