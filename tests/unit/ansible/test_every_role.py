r"""What holds for the pages and templates of every role, playbook and scenario.

A backslash in a string of Jinja stands for one: Python warns of ``'\Z'``, and says that it will refuse it. In ``{{ }}``
of YAML Ansible doubles each backslash itself. In ``{% %}``, in a bare condition and in a file of templates it does not,
so it is written twice there: ``'\\Z'``.

A line's end in a template is one: only in double quotes does YAML make a line's end of ``\n`` before Ansible reads it.
In any other scalar, and as ``\\n`` in those, ``split('\n')`` parts a text where a backslash stands before an n: what
others say is not parted, or in words.

What a role's build says by ``include_vars`` holds for the rest of a play, over what tasks and vars/main.yml say; and no
role leaves a unit stopped because it was started often: systemd counts its starts with those after faults.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment
from yaml.nodes import MappingNode, Node, ScalarNode

from provisioner.values import paths
from tests.plays import run_cases

CONDITIONS = frozenset({"changed_when", "failed_when", "that", "until", "when"})
"""What takes an expression without braces."""
FILES = [
    file
    for name in ("inventory", "molecule", "playbooks", "roles")
    for file in sorted((paths.share() / name).rglob("*"))
    if file.suffix in {".j2", ".yml"} and "files" not in file.parts
]
LEXER = Environment(extensions=["jinja2.ext.do"], autoescape=True).lexer


class Loader(yaml.CSafeLoader):
    """Reads tags as the texts that they are on."""


Loader.add_multi_constructor("!", lambda _loader, _tag, node: node.value)


def templates(value: Any, key: str = "") -> Iterator[str]:
    """The templates in a page of YAML; a bare condition as Ansible reads it."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from templates(below, str(name))
    elif isinstance(value, list):
        for below in value:
            yield from templates(below, key)
    elif isinstance(value, str) and ("{{" in value or "{%" in value):
        yield value
    elif isinstance(value, str) and key in CONDITIONS:
        yield f"{{% if {value} %}}{{% endif %}}"


def strings(template: str, *, is_doubled: bool) -> Iterator[str]:
    """The strings of a template, as Python is to decode them; ``is_doubled``: Ansible doubles those in braces."""
    is_inside = False
    for _line, kind, text in LEXER.tokeniter(template, None):
        if kind in {"variable_begin", "variable_end"}:
            is_inside = kind == "variable_begin"
        elif kind == "string" and not (is_doubled and is_inside):
            yield text


def refused(text: str) -> bool:
    """Whether Python warns of a string's escapes, decoded as Jinja does it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        text[1:-1].encode("ascii", "backslashreplace").decode("unicode-escape")
    return bool(told)


def wrong_strings(text: str, *, is_page: bool) -> list[str]:
    """Strings of a page of YAML, or of a file of templates, that a later Python refuses."""
    sources = [text]
    if is_page:
        sources = [one for page in yaml.load_all(text, Loader) for one in templates(page)]
    return [one for source in sources for one in strings(source, is_doubled=is_page) if refused(one)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(Path(file).relative_to(paths.share())))
def test_no_string_of_a_template_is_one_that_a_later_python_refuses(file: Path) -> None:
    assert wrong_strings(file.read_text(encoding="utf-8"), is_page=file.suffix == ".yml") == []


CASES = [
    (r"when: x is match('[a-z]+\Z')", True, True),
    (r"that: [x is defined, 'x is match(''\d'')']", True, True),
    (r"a: '{% set y = x is match(''\Z'') %}'", True, True),
    (r"{{ x | regex_replace('\.', '') }}", False, True),
    (r"when: x is match('[a-z]+\\Z')", True, False),
    (r"a: '{{ x is match(''\Z'') }}'", True, False),
    (r"a: '{% set y = x is match(''\\Z'') %}'", True, False),
    (r"a: 'no template, such as \Z'", True, False),
    (r"{{ x | replace('\n', '') }}", False, False),
]


@pytest.mark.parametrize(("text", "is_page", "is_wrong"), CASES)
def test_a_wrong_one_is_found(text: str, *, is_page: bool, is_wrong: bool) -> None:
    assert bool(wrong_strings(text, is_page=is_page)) == is_wrong


def test_the_pages_are_there() -> None:
    assert {file.suffix for file in FILES} == {".j2", ".yml"}


PARTED = re.compile(r"\b(split|join|replace)\(\s*(['\"])\\[nrt]\2")
LAST_WORDS = re.compile(r"stderr\b[^}]*?\.splitlines\(\)(?! \| last \| default\('[^']+', true\))")
"""What a program said last, where nothing is put in the place of nothing."""
PAGES = [
    file
    for root in (paths.roles(), paths.roles().parent / "playbooks", paths.roles().parent / "molecule")
    for file in sorted(root.rglob("*.yml"))
]


def scalars(node: Node) -> Iterator[ScalarNode]:
    """All scalars below."""
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, MappingNode):
        for pair in node.value:
            for one in pair:
                yield from scalars(one)
    else:
        for one in node.value:
            yield from scalars(one)


def wrong_lines(text: str) -> list[int]:
    """Lines at which a template parts or joins by what is no line's end."""
    return [
        node.start_mark.line + 1
        for page in yaml.compose_all(text, yaml.CSafeLoader)
        for node in scalars(page)
        if PARTED.search(node.value)
    ]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(Path(file).relative_to(paths.roles().parent)))
def test_a_template_parts_text_at_the_end_of_a_line(file: Path) -> None:
    assert wrong_lines(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(Path(file).relative_to(paths.roles().parent)))
def test_a_program_that_ends_without_a_word_is_no_reason_to_pass(file: Path) -> None:
    """Of no lines there is no last one: a list of what is wrong would be empty, and a complaint none."""
    assert LAST_WORDS.findall(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "{{ (x.stderr | trim).splitlines()[-1:] }}",
        "{{ (x.stderr | default('', true) | trim).splitlines() | last | default('') }}",
        "{{ (x.stderr | trim).splitlines() | last }}",
        "{{ (x.stderr | trim).splitlines() | last | default('', true) }}",
    ],
)
def test_where_nothing_stands_for_nothing_is_found(text: str) -> None:
    assert LAST_WORDS.search(text)


LINE_ENDS = [
    (r"a: >-|  {{ x | split('\n') | last }}", True),
    (r"""a: "{{ x | split('\\n') }}" """, True),
    (r"a: '{{ x | join( ''\n'' ) }}'", True),
    (r"a: >-|  {{ x | replace('\t', '') }}", True),
    (r"""a: "{{ x | split('\n') | last }}" """, False),
    (r"a: >-|  {{ x.splitlines() | last }}", False),
    (r"a: >-|  {{ x | regex_replace('\n', '') }}", False),
]
"""Behind ``>-`` a ``|`` is a line's end."""


@pytest.mark.parametrize(("text", "is_wrong"), LINE_ENDS)
def test_a_wrong_end_of_a_line_is_found(text: str, *, is_wrong: bool) -> None:
    lines = text.replace(">-|", ">-\n")
    assert bool(wrong_lines(lines)) == is_wrong


BUILDS = sorted(paths.roles().glob("*/vars/build*.yml"))


def of_tasks(node: Any) -> Iterator[str]:
    """Each name that a task or a block says in its ``vars``, or registers."""
    for one in node if isinstance(node, list) else []:
        yield from one.get("vars") or {}
        yield from [one["register"]] if "register" in one else []
        for part in ("block", "rescue", "always"):
            yield from of_tasks(one.get(part))


def elsewhere(role: Path) -> set[str]:
    """The names that a role says beside its build."""
    beside = [path for path in (role / "tasks").glob("*.yml") if not path.name.startswith("build")]
    names = {name for path in beside for name in of_tasks(yaml.safe_load(path.read_text("utf-8")))}
    for path in (*(role / "vars").glob("main.yml"), *(role / "defaults").glob("main.yml")):
        names.update(yaml.safe_load(path.read_text("utf-8")) or {})
    return names


@pytest.mark.parametrize("build", BUILDS, ids=lambda path: f"{path.parents[1].name}/{path.name}")
def test_no_name_of_a_build_is_another_thing_elsewhere_in_its_role(build: Path) -> None:
    said = set(yaml.safe_load(build.read_text("utf-8")))
    assert said & elsewhere(build.parents[1]) == set()


def test_a_name_that_is_used_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/preflight.yml").write_text("- block:\n    - {vars: {__one: 1}, register: __two}\n")
    (tmp_path / "tasks/build.yml").write_text("- {vars: {__three: 1}}\n")
    assert elsewhere(tmp_path) == {"__one", "__two"}


LIMITED = sorted(
    {
        page.parents[1].name
        for page in paths.roles().glob("*/templates/*.j2")
        if "StartLimitBurst" in page.read_text("utf-8")
    }
)
FORGET = ["systemctl", "--all", "reset-failed"]
"""With a pattern systemctl passes over a unit that was stopped between two attempts, but for ``--all``."""


def written(file: Path) -> list[Mapping[str, Any]]:
    """The tasks or handlers of a file."""
    return yaml.safe_load(file.read_text("utf-8")) or []


def unit_forgotten(task: Mapping[str, Any]) -> str:
    """The unit whose starts it has systemd forget; nothing where it does something else."""
    words = task.get("ansible.builtin.command", {}).get("argv", [])
    return str(words[3]) if words[:3] == FORGET else ""


def restarts(handlers: Iterable[Mapping[str, Any]], timers: frozenset[str] = frozenset()) -> dict[str, str]:
    """The units that handlers restart, each by its handler's name; a timer has no limit of starts."""
    services = {one["name"]: one.get("ansible.builtin.systemd_service", {}) for one in handlers}
    restarted = {name: service["name"] for name, service in services.items() if service.get("state") == "restarted"}
    return {name: unit for name, unit in restarted.items() if unit not in timers}


def restarts_that_count(handlers: list[Mapping[str, Any]], timers: frozenset[str] = frozenset()) -> list[str]:
    """The handlers that restart a unit whose earlier starts are not forgotten before."""
    wanted = restarts(handlers, timers)
    counted, forgotten = [], set()
    for one in handlers:
        if unit_forgotten(one):
            forgotten.add((one.get("listen"), unit_forgotten(one)))
        name = one["name"]
        if name in wanted and (name, if_known(wanted[name])) not in forgotten:
            counted.append(name)
    return counted


def if_known(unit: str) -> str:
    """The pattern by which a role means a unit where systemd knows it."""
    return unit.replace(" }}", "_if_known }}")


def timers_of(role: str) -> frozenset[str]:
    """The role's units that are timers."""
    names = yaml.safe_load((paths.roles() / role / "vars/main.yml").read_text("utf-8"))
    return frozenset(f"{{{{ {name} }}}}" for name, value in names.items() if str(value).endswith(".timer"))


def test_roles_with_such_units_are_found() -> None:
    assert {"door", "kokoro", "llama_cpp", "open_webui", "switch", "vllm"} <= set(LIMITED)


@pytest.mark.parametrize("role", LIMITED)
def test_a_changed_service_is_started_however_often_it_was_before(role: str) -> None:
    handlers = written(paths.roles() / role / "handlers/main.yml")
    assert restarts(handlers, timers_of(role))
    assert restarts_that_count(handlers, timers_of(role)) == []


@pytest.mark.parametrize("role", LIMITED)
def test_so_is_one_that_failed_too_often(role: str) -> None:
    files = (paths.roles() / role / "tasks").glob("*.yml")
    forgotten = {unit_forgotten(task) for file in files for task in written(file)}
    units = restarts(written(paths.roles() / role / "handlers/main.yml"), timers_of(role)).values()
    assert {if_known(unit) for unit in units} <= forgotten


@pytest.mark.parametrize(("before", "idle", "count"), [(False, "5m", 0), (True, "5m", 2), (True, "0s", 0)])
def test_a_keeper_is_started_again_only_where_there_was_one(
    tmp_path: Path, before: bool, idle: str, count: int
) -> None:
    (unit,) = [one for one in written(paths.roles() / "switch/tasks/keeper.yml") if "notify" in one]
    handlers = written(paths.roles() / "switch/handlers/main.yml")
    notified = [one for one in handlers if unit["notify"] in (one["name"], one.get("listen"))]
    tasks = [{"set_fact": {"did": "{{ did + 1 }}"}, "when": one["when"]} for one in notified]
    there = {"/etc/systemd/system/switch-engine-keeper.service": {"exists": before}}
    case = {"did": 0, "ansible_check_mode": False, "switch_name": "engine", "switch_idle": idle}
    case["__switch_there"] = {"paths": there}
    assert run_cases(paths.roles().parent, tmp_path, "switch", {"case": case}, tasks)["case"].get("did", 0) == count


def test_a_restart_without_it_is_found() -> None:
    restart = {
        "name": "Restart it",
        "ansible.builtin.systemd_service": {"name": "{{ __it_unit }}", "state": "restarted"},
    }
    forget = {"name": "Forget", "ansible.builtin.command": {"argv": [*FORGET, "{{ __it_unit_if_known }}"]}}
    assert restarts_that_count([restart]) == ["Restart it"]
    assert restarts_that_count([{**forget, "listen": "Restart another"}, restart]) == ["Restart it"]
    assert restarts_that_count([restart, {**forget, "listen": "Restart it"}]) == ["Restart it"]
    assert restarts_that_count([{**forget, "listen": "Restart it"}, restart]) == []
