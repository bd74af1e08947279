"""The verb ``import``: an existing container as a block of the file, to be adopted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from provisioner.hosts import kind_of
from provisioner.hosts.base import Provider
from provisioner.lab.opening import Lab
from provisioner.lab.rules import RESERVED_PREFIX
from provisioner.lab.written import wanted_of, written_container
from provisioner.labfile.fields import LABEL
from provisioner.reconcile.observe import observe
from provisioner.reconcile.text import attribute_text
from provisioner.report.style import indent, safe_line
from provisioner.values.errors import InputError, PreflightError, ProviderError
from provisioner.values.plan import Change, differences
from provisioner.values.state import Instance, Status

# The container as the file would write it.

OS_RELEASE = ["cat", "/etc/os-release"]


@dataclass(frozen=True, slots=True)
class Imported:
    """A container as the file writes it.

    ``changes``: what ``up`` would change all the same, as (there, file); ``notes``: what else should be known.
    """

    name: str
    written: Mapping[str, Any]
    changes: Mapping[str, tuple[Any, Any]]
    notes: tuple[str, ...] = ()


def imported(lab: Lab, providers: Mapping[str, Provider], reference: str) -> Imported:
    """The container ``HOST/NAME`` as the lab's file would write it; nothing is touched.

    Raises ``InputError`` for a host that is not in the file, ``PreflightError`` for a container that cannot be had.
    """
    host, _, wanted = reference.partition("/")
    if host not in providers or not wanted:
        raise InputError(
            f"Unable to import {reference}: name a host of {lab.loaded.path} and a container on it",
            resolution=f"Write HOST/NAME. Hosts of this file: {', '.join(providers)}",
        )
    provider = providers[host]
    provider.check_available()
    there = _existing(provider, lab.name, wanted)
    _refuse_name(there.name)
    is_ours = there.lab == lab.name
    notes = [] if is_ours else _reviewed(there, lab.name, provider)
    there, told = _with_image(there, provider)
    written = written_container(there, lab.resolved, adopt=not is_ours)
    made = wanted_of(there.name, written, lab.resolved)
    if is_ours:
        notes.append("It bears this lab's mark already.")
    if there.name in lab.spec.containers:
        notes.append("The file has a container of this name already: put what is new here into its block.")
    for beyond in kind_of(provider.kind).beyond_the_file(provider, there):
        notes.append(f"No block can say this, and it stays as it is: {beyond}")
    obstacle = provider.snapshots.obstacle(there)
    if obstacle:
        notes.append(f"No snapshot holds all of it: {obstacle}.")
    changes = differences(replace(there, image=made.image), made)
    return Imported(there.name, written, changes, (*notes, *told))


def _existing(provider: Provider, lab: str, wanted: str) -> Instance:
    there = provider.read(wanted)
    what = f"Unable to import container {wanted} of host {provider.host}"
    if there is None:
        names = observe(lab, {provider.host: provider}, detailed=False)
        known = sorted({*names.hosts[provider.host].unmanaged, *(one.name for one in names.instances)})
        raise PreflightError(f"{what}: there is none", resolution=f"Containers there: {', '.join(known) or 'none'}")
    if there.lab not in ("", lab):
        raise PreflightError(
            f"{what}: it bears the mark of lab {there.lab}",
            resolution=f"Only the file of lab {there.lab} can name it; provision never takes over another lab's.",
        )
    return there


def _refuse_name(name: str) -> None:
    if not re.fullmatch(LABEL, name) or name.startswith(RESERVED_PREFIX):
        raise PreflightError(
            f"Unable to import container {name}: a file cannot name it so",
            details="A name has letters, digits and dashes, begins with a letter, ends with a letter or digit; "
            f'those that begin with "{RESERVED_PREFIX}" are provision\'s own.',
            resolution="Rename it on its host first.",
        )


def _reviewed(there: Instance, lab: str, provider: Provider) -> list[str]:
    """What its host says of its adoption; what would be refused is told, too: the block is right all the same."""
    adoption = Change("adopt", there.name, there, replace(there, lab=lab), "it is imported")
    try:
        return list(provider.review([adoption]))
    except PreflightError as error:
        return [f"up would refuse it: {' '.join(str(error).split())}"]


def _with_image(there: Instance, provider: Provider) -> tuple[Instance, tuple[str, ...]]:
    """The same with the distribution that runs in it, where its host does not know what it was made of."""
    if there.image:
        return there, ()
    why = "it does not run"
    if there.status is Status.RUNNING:
        try:
            found = provider.execute(there.name, OS_RELEASE)
        except (ProviderError, PreflightError) as error:
            why = error.message
        else:
            image = distribution(found.stdout.decode(errors="replace"))
            if image:
                return replace(there, image=image), ()
            why = "it does not say which distribution it is"
    return there, (f"Its image is not known ({' '.join(why.split())}): write image, such as debian/12.",)


def distribution(os_release: str) -> str:
    """The image's name of the distribution that ``/etc/os-release`` tells of: "debian/12"; "" when it does not."""
    words = dict(line.partition("=")[::2] for line in os_release.splitlines())
    name, version = (words.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    return f"{name}/{version}" if name and version else ""


# The block as text, ready to be pasted under `containers:` of a file.

_PLAIN = re.compile(r"[A-Za-z/][^\n]*|[0-9.]+(KiB|MiB|GiB|TiB)|[0-9.]+/[0-9]+", re.ASCII)


class _Dumper(yaml.SafeDumper):
    """Quotes what YAML 1.2 reads as a number and PyYAML does not, such as ``1e3``."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's signature
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def block_text(
    name: str, written: Mapping[str, Any], changes: Mapping[str, tuple[Any, Any]], notes: Iterable[str] = ()
) -> str:
    """YAML of the container, indented as it stands in a file, what cannot be said in it as comments above."""
    comments = [*notes, *(_change_text(option, *values) for option, values in changes.items())]
    body = yaml.dump({name: dict(written)}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    lines = [f"# {safe_line(comment)}" for comment in comments]
    return indent("\n".join([*lines, body.rstrip("\n")]))


def _change_text(option: str, there: Any, wanted: Any) -> str:
    before = attribute_text(option, there) or "none"
    after = attribute_text(option, wanted) or "none"
    return f"{option}: there it is {before}; up would make it {after}"
