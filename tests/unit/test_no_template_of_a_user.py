"""What a user writes is data: a template in any key and any string of a file is refused, or Ansible never runs it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.catalog import load_catalog
from provisioner.eject.eject import Box, Source, ejected_texts
from provisioner.gpus.cards import Card
from provisioner.lab import Known, ModelFile, desired_fleet, problems, resolve
from provisioner.lab.written import host_variables, role_variables
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.schema import file_schema
from provisioner.labfile.spec import Spec
from provisioner.reconcile.inventory import render_builders, render_inventory, render_nodes, render_this_machine
from provisioner.reconcile.runner import ansible_environment
from provisioner.values import paths
from provisioner.values.address import Address
from provisioner.values.state import Fleet, Instance, Secret, Service
from tests.lab_files import spec_of
from tests.maximal_labs import LABS, Place, at, steps, with_key, with_value
from tests.processes import completed

COMMAND = "lookup('pipe', 'touch @FILE@')"
FORMS = {
    "expression": f"{{{{ {COMMAND} }}}}",
    "expression-without-blanks": "{{lookup('pipe','touch${IFS}@FILE@')}}",
    "statement": f"{{% if {COMMAND} %}}{{% endif %}}",
    "comment": "{# @FILE@ #}",
    "own-marks": f"#jinja2: variable_start_string:'[[', variable_end_string:']]'\n[[ {COMMAND} ]]",
}
WAYS = ("whole", "behind", "within")
CASES = [*((form, "whole") for form in FORMS), *(("expression-without-blanks", way) for way in ("behind", "within"))]
CARD = Card("0000:01:00.0", "nvidia", "RTX", driver="nvidia", driver_version="580.95.05")
PLAYBOOKS = {name: (paths.playbooks() / name).read_text(encoding="utf-8") for name in ("site.yml", "containers.yml")}


def planted(value: str, form: str, way: str, number: int = 0) -> str:
    """A string with a template in it."""
    template = FORMS[form].replace("@FILE@", f"touched-{number}")
    if way == "whole":
        return template
    if way == "behind":
        return f"{value}{template}"
    middle = value.rfind("/") + 1
    return f"{value[:middle]}{template}{value[middle:]}"


def _file_strings(lab: Mapping[str, Any]) -> list[Place]:
    return [place for place in steps(lab) if isinstance(at(lab, place), str)]


def _schema_places(schema: Mapping[str, Any], part: Mapping[str, Any], place: Place = ()) -> Iterator[Place]:
    """The place of every key that a schema names; ``*`` stands for one that a user chooses."""
    if "$ref" in part:
        yield from _schema_places(schema, schema["$defs"][part["$ref"].rpartition("/")[2]], place)
    for alternative in part.get("anyOf", ()):
        yield from _schema_places(schema, alternative, place)
    for key, inner in part.get("properties", {}).items():
        yield (*place, key)
        yield from _schema_places(schema, inner, (*place, key))
    free = [*part.get("patternProperties", {}).values(), part.get("additionalProperties"), part.get("items")]
    for inner in free:
        if isinstance(inner, dict):
            yield (*place, "*")
            yield from _schema_places(schema, inner, (*place, "*"))


def _free_keys(schema: Mapping[str, Any], part: Mapping[str, Any], place: Place = ()) -> Iterator[Place]:
    """The place of every mapping whose keys a user chooses."""
    if "$ref" in part:
        yield from _free_keys(schema, schema["$defs"][part["$ref"].rpartition("/")[2]], place)
    for alternative in part.get("anyOf", ()):
        yield from _free_keys(schema, alternative, place)
    for key, inner in part.get("properties", {}).items():
        yield from _free_keys(schema, inner, (*place, key))
    may_be_mapping = part.get("type") == "object" or part.get("type") == ["object", "null"]
    if may_be_mapping and "properties" not in part:
        yield place
    for inner in [*part.get("patternProperties", {}).values(), part.get("additionalProperties"), part.get("items")]:
        if isinstance(inner, dict):
            yield from _free_keys(schema, inner, (*place, "*"))


def _matches(place: Place, pattern: Place) -> bool:
    return len(place) == len(pattern) and all(b in ("*", a) for a, b in zip(place, pattern, strict=True))


@cache
def _schema() -> dict[str, Any]:
    return file_schema(load_catalog())


@cache
def _user_keys(name: str) -> tuple[Place, ...]:
    """The places of all keys of a lab that its user chose."""
    mappings = set(_free_keys(_schema(), _schema()))
    return tuple(place for place in steps(LABS[name]) if any(_matches(place[:-1], one) for one in mappings))


def test_the_labs_say_everything_that_a_file_can_say() -> None:
    said = [place for lab in LABS.values() for place in steps(lab)]
    missing = [
        place for place in set(_schema_places(_schema(), _schema())) if not any(_matches(one, place) for one in said)
    ]
    assert missing == []


def test_every_key_that_a_user_chooses_has_a_form_that_the_schema_knows() -> None:
    mappings = set(_free_keys(_schema(), _schema()))
    assert ("containers", "*", "services", "litellm", "aliases") in mappings
    assert ("containers", "*", "services", "llama_cpp", "environment") in mappings
    for place in mappings:
        part = _part(_schema(), place)
        assert "propertyNames" in part or part.get("additionalProperties") is False, place


def _part(part: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    for step in place:
        while "$ref" in part:
            part = _schema()["$defs"][part["$ref"].rpartition("/")[2]]
        inner = part.get("patternProperties", {}).values() if step == "*" else [part["properties"][step]]
        part = next(iter(inner))
    return part


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LABS)
def test_a_key_with_a_template_is_refused(name: str, form: str) -> None:
    taken = [
        place
        for place in _user_keys(name)
        for way in WAYS
        if not _refusal(with_key(LABS[name], place, planted(str(place[-1]), form, way)))
    ]
    assert _user_keys(name)
    assert taken == []


def _refusal(lab: Mapping[str, Any]) -> list[Any]:
    parsed = parse_spec(lab, load_catalog())
    return [*parsed.problems, *(problems(resolve(parsed.spec, load_catalog())) if parsed.spec else ())]


@cache
def _accepted(name: str, form: str, way: str) -> dict[str, Any]:
    """The lab with a template in each of its strings in which one alone is not refused, all at once."""
    whole = LABS[name]
    for place in _file_strings(LABS[name]):
        new = planted(at(LABS[name], place), form, way)
        if not _refusal(with_value(LABS[name], place, new)):
            whole = with_value(whole, place, new)
    return whole


@pytest.mark.parametrize(("form", "way"), CASES)
@pytest.mark.parametrize("name", LABS)
def test_a_string_with_a_template_is_refused_or_marked(name: str, form: str, way: str) -> None:
    lab = _accepted(name, form, way)
    assert _refusal(lab) == []
    made = _made(lab)
    assert [text for text in made.texts if _trusted_templates(text)] == []
    # The gate itself: without the marks each of these texts would be run.
    if made.has_template:
        assert [text for text in made.texts if _trusted_templates(text.replace("!unsafe ", ""))]


@dataclass(frozen=True)
class Made:
    """What is given to Ansible for a lab."""

    texts: tuple[str, ...]

    @property
    def has_template(self) -> bool:
        """Whether something of the user's that looks like one reached Ansible at all."""
        return any("touched-" in text for text in self.texts)


def _made(lab: Mapping[str, Any]) -> Made:
    spec = spec_of(lab)
    fleet = _fleet(spec)
    templates = paths.inventory_templates()
    resolved = resolve(spec, load_catalog())
    hosts = {name: host_variables(host) for name, host in resolved.hosts.items()}
    connections = {one.name: {"ansible_connection": "local"} for one in fleet.instances}
    boxes = [Box(one, connections[one.name], role_variables(one, resolved)) for one in fleet.instances]
    ejected = ejected_texts(Source(spec.name, boxes, hosts, PLAYBOOKS, "2.19.0"))
    builders: dict[str, dict[str, str]] = {one.builder: {} for one in fleet.artifacts}
    return Made(
        (
            render_inventory(fleet.instances, connections, templates),
            render_builders(fleet.artifacts, builders, templates),
            *(text for name, text in ejected.items() if name.endswith(".yml")),
        )
    )


def _fleet(spec: Spec) -> Fleet:
    files = {
        name: ModelFile(model.source, model.source.rpartition("/")[2], "a" * 64, is_folder=model.format != "gguf")
        for name, model in spec.models.items()
    }
    cards = {name: CARD for name, container in spec.containers.items() if container.gpu is not None}
    texts = _texts(spec)
    return desired_fleet(resolve(spec, load_catalog(), Known(cards=cards, texts=texts)), files)


def _texts(spec: Spec) -> dict[Address, dict[str, str]]:
    """What is in the files that services name: here their own names."""
    catalog = load_catalog()
    found: dict[Address, dict[str, str]] = {}
    for name, container in spec.containers.items():
        for role, service in container.services.items():
            references = catalog.services[role].references.items()
            texts: dict[str, str] = {}
            for option, reference in references:
                written = service.options.get(option)
                if reference.kind == "file":
                    texts[option] = str(written)
                elif reference.kind == "files":
                    texts |= {f"{option}.{place}": text for place, text in enumerate(written or ())}
            if texts:
                found[Address(f"{name}/{role}")] = texts
    return found


def _trusted_templates(text: str) -> list[str]:
    """The strings and keys that Ansible would take for templates, but for the lookups of ours."""
    from ansible._internal._datatag._tags import TrustedAsTemplate
    from ansible.parsing.utils.yaml import from_yaml

    strings = _strings(from_yaml(TrustedAsTemplate().tag(text)))
    suspicious = [one for one in strings if TrustedAsTemplate.is_tagged_on(one) and _looks_like_a_template(one)]
    return [one for one in suspicious if not one.startswith(("{{ lookup('provision_secret'", OUR_LOOKUP))]


OUR_LOOKUP = "{{ lookup('ansible.builtin.env', 'PROVISION_SECRET_"


def _looks_like_a_template(text: str) -> bool:
    return text.startswith("#jinja2:") or any(mark in text for mark in ("{{", "{%", "{#"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, Iterable):
        for inner in value:
            yield from _strings(inner)


# --- what is not checked by a file's form: every key and string of what Ansible gets, through a real run ---

FAKES: dict[str, Any] = {
    "__litellm_seen": {"paths": "{{ dict([__litellm_manifest] | product([{'sha256': 'x'}])) }}"},
    "__kokoro_seen": {"paths": "{{ dict([__kokoro_manifest] | product([{'sha256': 'x'}])) }}"},
    "__llama_cpp_seen": {
        "paths": (
            "{{ dict(([__llama_cpp_manifest, __llama_cpp_unit_file] + __llama_cpp_model_manifests)"
            " | product([{'sha256': 'x'}])) }}"
        )
    },
    "__tabbyapi_prefix": {"stdout": "/opt/x"},
    "__gpu_userspace_before": {"offered": []},
    "item": {"name": "penny"},
}
"""What tasks register that are not run here, as far as templates use it."""


USED = """
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **options):
        made = []
        for name in terms:
            try:
                made.append(f"<{name}>{self._templar.template(variables[name])}")
            except AnsibleError as error:
                made.append(f"<{name}> cannot be made: {error}")
        return made
"""
"""Evaluates variables one by one: what cannot be made here, for want of a container, does not keep the rest from it."""


def _play(role: str) -> dict[str, Any]:
    """Every text of a role that is made of its variables: its templates, its internals, what its tasks say of them."""
    folder = paths.roles() / role
    internal = yaml.safe_load((folder / "vars" / "main.yml").read_text(encoding="utf-8"))
    files = {
        _made_name(file): f"{{{{ lookup('template', '{file}') }}}}" for file in (folder / "templates").glob("*.j2")
    }
    told = {f"told_{number}": text for number, text in enumerate(dict.fromkeys(_texts_of_tasks(folder)))}
    names = [*internal, *told, *files]
    look = {
        "ansible.builtin.debug": {"msg": "{{ query('used', *names) }}"},
        "vars": FAKES | told | files | {"names": names},
    }
    tasks = [{"ansible.builtin.include_vars": str(folder / "vars" / "main.yml")}, look]
    return {"hosts": f"service_{role}", "gather_facts": False, "tasks": tasks}


def _made_name(template: Path) -> str:
    return "made_" + re.sub("[^a-z]", "_", template.stem)


def _texts_of_tasks(folder: Path) -> Iterator[str]:
    for file in sorted((folder / "tasks").glob("*.yml")):
        for text in _strings(yaml.safe_load(file.read_text(encoding="utf-8")) or []):
            if "{{" in text:
                yield text


def _sown(value: Any, known: dict[str, int]) -> Any:
    """The value with a template behind each string and each key in it; equal strings stay equal."""
    if isinstance(value, Secret | bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {_sown(key, known): _sown(inner, known) for key, inner in value.items()}
    if isinstance(value, str):
        return planted(value, "expression", "behind", known.setdefault(value, len(known)))
    return [_sown(inner, known) for inner in value]


KEYS_OF_OURS = {"litellm_routes", "litellm_speech", "desktop_users"}


def _sown_instance(instance: Instance, known: dict[str, int]) -> Instance:
    services: list[Service] = []
    for service in instance.services:
        variables = {
            name: _sown_values(value, known) if name in KEYS_OF_OURS else _sown(value, known)
            for name, value in service.variables.items()
        }
        services.append(replace(service, variables=variables))
    return replace(instance, services=tuple(services))


def _sown_values(value: Any, known: dict[str, int]) -> Any:
    """A value whose keys are of our own make, at any depth: without their names no role could read it."""
    if isinstance(value, Mapping):
        return {key: _sown_values(inner, known) for key, inner in value.items()}
    if isinstance(value, list):
        return [_sown_values(inner, known) for inner in value]
    return _sown(value, known)


def _run(text: str, folder: Path) -> list[str]:
    """The files that commands in templates touched while a real ansible-playbook used every value of the inventory."""
    (folder / "lookup_plugins").mkdir()
    (folder / "lookup_plugins" / "used.py").write_text(USED, encoding="utf-8")
    inventory, playbook, secrets = folder / "hosts.yml", folder / "play.yml", folder / "secrets.json"
    inventory.write_text(text, encoding="utf-8")
    plays = [_play(role) for role in load_catalog().services if f"service_{role}:" in text]
    playbook.write_text(yaml.safe_dump(plays, sort_keys=False), encoding="utf-8")
    secrets.write_text(json.dumps(dict.fromkeys(SECRETS, "sk-0123456789abcdef")), encoding="utf-8")
    done = completed(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(playbook)],
        cwd=folder,
        env=os.environ | ansible_environment(secrets) | {"ANSIBLE_NOCOLOR": "1"},
        timeout_s=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name in MADE:
        assert f"<{name}>" in done.stdout
        assert f"<{name}> cannot be made" not in done.stdout, done.stdout.partition(f"<{name}>")[2][:500]
    return sorted(one.name for one in folder.glob("touched-*"))


TWICE = ("several",)
"""Containers whose services another one has as well: a run takes seconds for each."""
GATEWAY = ("gateway",)
MADE = ("made_config_yaml", "__litellm_deployed_names")
SECRETS = ("master", "llama", "tabby", "tabby_admin", "cloud", "house", "penny", "guest", "certificate")


@pytest.fixture(scope="module")
def sown() -> tuple[Instance, ...]:
    spec = spec_of(LABS["everything"])
    known: dict[str, int] = {}
    return tuple(_sown_instance(one, known) for one in _fleet(spec).instances if one.name not in TWICE)


@pytest.mark.parametrize("without_marks_of", ["", "keys", "values"])
def test_a_real_run_with_a_template_in_every_key_and_string_runs_none(
    without_marks_of: str, sown: tuple[Instance, ...], tmp_path: Path
) -> None:
    """Without the marks of keys alone, or of values alone, the same run does run commands: so this test can fail."""
    reached = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    used = [one for one in sown if not without_marks_of or one.name in GATEWAY]  # one is enough to see that it fails
    text = render_inventory(used, {one.name: reached for one in used}, paths.inventory_templates())
    if without_marks_of == "keys":
        text = re.sub(r'^(\s*(?:- |\? )?)!unsafe (?="(?:[^"\\]|\\.)*"(?::|$))', r"\1", text, flags=re.MULTILINE)
    if without_marks_of == "values":
        text = re.sub(r"(?<=[:-] )!unsafe (?!.*:)", "", text)
    touched = _run(text, tmp_path)
    assert bool(touched) == bool(without_marks_of), touched


def test_what_a_machine_or_a_node_says_is_marked_as_well() -> None:
    template = planted("x", "expression", "behind")
    for text in (
        render_this_machine(
            {"incus_host_bridge": template, "incus_host_images": [template]}, paths.inventory_templates()
        ),
        render_nodes({"lead": {"pve1": {"repair_plan": {template: [template]}}}}, paths.inventory_templates()),
    ):
        assert "touched-0" in text
        trusted = [one for one in _trusted_templates(text) if "touched-0" in one]
        assert trusted == []
