"""Every role has the same skeleton: whoever has read one finds everything in another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog import Upkeep
from provisioner.generate import BEGIN, END
from provisioner.lab.fleet import managed_by
from provisioner.values import paths
from provisioner.values.plain_data import yaml_value
from provisioner.values.state import Managed
from tests.checkout import tracked_files

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in paths.roles().iterdir() if path.is_dir())
PAGES = {page.parents[1].name: page for page in paths.roles().glob("*/meta/service.yml")}
SERVICES = [role for role in ROLES if role in PAGES and "stage" in yaml_value(PAGES[role].read_text(encoding="utf-8"))]
RUNNING = [role for role in SERVICES if yaml_value(PAGES[role].read_text(encoding="utf-8"))["unit"]]
"""Services that have a process; others only install something."""
OUR_MODULES = {path.stem for path in (paths.plugins() / "modules").glob("*.py")}

EVERY_ROLE = (
    "meta/argument_specs.yml",
    "meta/main.yml",
    "meta/managed.yml",
    "defaults/main.yml",
    "tasks/main.yml",
    "README.md",
)
EVERY_SERVICE = ("meta/service.yml", "tasks/preflight.yml", "tasks/install.yml", "tasks/verify.yml")
EVERY_RUNNING = ("meta/opens.yml", "tasks/configure.yml", "tasks/service.yml", "handlers/main.yml")
ROUTER_LINES = 40
OPTIONAL_KINDS = ("reloaded", "watched", "passwords")
"""Left out where a role has none of these."""
MANAGED_KINDS = tuple(field.name for field in fields(Managed) if field.name not in (*OPTIONAL_KINDS, "helpers"))
WRITERS = {
    "provision_files",
    *(f"ansible.builtin.{name}" for name in ("assemble", "blockinfile", "copy", "file", "lineinfile", "template")),
}
FREE_FORM = {"ansible.builtin.command", "ansible.builtin.shell", "ansible.builtin.raw", "ansible.builtin.script"}
UNLIMITED = {
    "agent_team.coordinator.price.read": "services.agent_team refuses what is less than 0, and the preflight",
    "agent_team.coordinator.price.written": "ditto",
    "agent_team.members.price.read": "ditto",
    "agent_team.members.price.written": "ditto",
    "litellm.routes.deployments.timeout": "filled in; an alias has its limits in `spec.aliases.AliasOptions`",
    "litellm.routes.deployments.stream_timeout": "ditto",
    "litellm.routes.deployments.num_retries": "ditto",
    "litellm.routes.deployments.order": "filled in; counted",
    "litellm.routes.deployments.cooldown_time": "ditto",
    "litellm.routes.context_window_fallbacks.timeout": "filled in; an alias' own",
    "litellm.routes.context_window_fallbacks.stream_timeout": "ditto",
    "litellm.routes.max_fallbacks": "filled in; counted",
    "llama_cpp.models.context": "filled in; a model has its limits in `spec.models.Model`",
    "ollama.models.context": "filled in; a model has its limits in `spec.models.Model`",
    "oci.ports.port": "services.oci refuses what is no port, or below 1024 without need, and the preflight",
    "oci.ports.image_port": "ditto",
    "switch.former_keys.until": "filled in; a moment of the clock",
}
"""Numbers without a limit on their role's page, each with the reason."""
KEYWORDS = {
    *("action", "always", "any_errors_fatal", "args", "async", "become", "become_user", "block", "changed_when"),
    *("check_mode", "delay", "delegate_facts", "delegate_to", "diff", "environment", "failed_when", "ignore_errors"),
    *("listen", "loop", "loop_control", "name", "no_log", "notify", "poll", "register", "rescue", "retries"),
    *("run_once", "tags", "throttle", "timeout", "until", "vars", "when"),
}


REFUSED_OF_A_TABLE = "{{ __checks | rejectattr('holds') | map(attribute='otherwise') | list }}"
"""What a task with a table of checks refuses; a loop over the table would take as long as a task for each row."""


def load(path: Path) -> Any:
    return yaml_value(path.read_text(encoding="utf-8"))


def tasks_of(role: str, *folders: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every task of the role with its file's name, those in blocks included."""
    for folder in folders or ("tasks", "handlers"):
        for page in sorted((paths.roles() / role / folder).glob("**/*.yml")):
            for task in _flat(load(page) or []):
                yield f"{folder}/{page.name}", task


def _flat(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        inner = [task[part] for part in ("block", "rescue", "always") if part in task]
        if not inner:
            yield task
        for part in inner:
            yield from _flat(part)


def module_of(task: dict[str, Any]) -> str:
    modules = [key for key in task if key not in KEYWORDS]
    assert len(modules) == 1, f"not one module: {modules} in {task.get('name')!r}"
    return modules[0]


def options_of(role: str, entry: str = "main") -> dict[str, dict[str, Any]]:
    specs = load(paths.roles() / role / "meta/argument_specs.yml")["argument_specs"]
    return dict(specs.get(entry, {}).get("options") or {})


def code_of(role: str) -> str:
    """All that the role runs, as one text."""
    files = (
        path
        for folder in ("tasks", "handlers", "templates", "vars", "files")
        for path in sorted((paths.roles() / role / folder).rglob("*"))
        if path.is_file()
    )
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


def test_there_are_roles() -> None:
    assert {"base", "llama_cpp", "litellm", "model_store"} <= set(ROLES)
    assert {"llama_cpp", "litellm"} <= set(SERVICES)


def test_no_ansible_cfg_decides_anything() -> None:
    assert [name for name in tracked_files(ROOT) if Path(name).name in {"ansible.cfg", ".ansible.cfg"}] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_named_in_snake_case_and_has_its_pages(role: str) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", role)
    wanted = EVERY_ROLE + (EVERY_SERVICE if role in SERVICES else ()) + (EVERY_RUNNING if role in RUNNING else ())
    assert [name for name in wanted if not (paths.roles() / role / name).is_file()] == []


@pytest.mark.parametrize("role", ROLES)
def test_the_router_is_short(role: str) -> None:
    lines = (paths.roles() / role / "tasks/main.yml").read_text(encoding="utf-8").splitlines()
    assert len(lines) < ROUTER_LINES


@pytest.mark.parametrize("role", SERVICES)
def test_the_router_goes_through_the_phases_in_order(role: str) -> None:
    router = (paths.roles() / role / "tasks/main.yml").read_text(encoding="utf-8")
    before, between = ("preflight", "install"), ("configure", "service") if role in RUNNING else ()
    phases = (*before, *between, "verify")
    at = [router.find(f"{phase}.yml") for phase in phases]
    assert -1 not in at
    assert at == sorted(at)
    assert role not in RUNNING or at[3] < router.find("flush_handlers") < at[4]
    assert [phase for phase in phases[1:] if f"{role}_{phase}" not in router] == []


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_those_of_the_specs(role: str) -> None:
    wanted = {name: option["default"] for name, option in options_of(role).items() if "default" in option}
    assert (load(paths.roles() / role / "defaults/main.yml") or {}) == wanted


@pytest.mark.parametrize("role", ROLES)
def test_options_are_prefixed_typed_described_and_used(role: str) -> None:
    code = code_of(role)
    for name, option in options_of(role).items():
        assert name.startswith(f"{role}_"), name
        assert option.get("type"), f"{name} has no type"
        assert option.get("description"), f"{name} has no description"
        assert not (option.get("required") and "default" in option), f"{name} is required and has a default"
        assert re.search(rf"\b{name}\b", code), f"nothing in the role uses {name}"


@pytest.mark.parametrize("role", ROLES)
def test_every_number_has_a_limit_or_a_reason_why_not(role: str) -> None:
    limits = (load(PAGES[role]).get("limits") or {}) if role in PAGES else {}
    numbers = set(_numbers(options_of(role), f"{role}_"))
    assert numbers - set(limits) == {name.removeprefix(f"{role}.") for name in UNLIMITED if name.startswith(f"{role}.")}


def _numbers(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The options whose values are numbers or lists of numbers, those in mappings with a dot between."""
    for name, option in options.items():
        if {"int", "float"} & {option.get("type"), option.get("elements")}:
            yield name.removeprefix(prefix)
        yield from (f"{name.removeprefix(prefix)}.{inner}" for inner in _numbers(option.get("options") or {}))


@pytest.mark.parametrize("role", SERVICES)
def test_verify_takes_the_same_options(role: str) -> None:
    known = options_of(role)
    for name, option in options_of(role, "verify").items():
        assert name in known
        same = {key: (option.get(key), known[name].get(key)) for key in ("type", "default", "no_log")}
        assert {key: pair for key, pair in same.items() if pair[0] != pair[1]} == {}, name


@pytest.mark.parametrize("role", ROLES)
def test_internal_variables_say_so(role: str) -> None:
    for page in sorted((paths.roles() / role / "vars").glob("*.yml")):
        assert [name for name in load(page) or {} if not name.startswith(f"__{role}_")] == [], page.name


@pytest.mark.parametrize("role", ROLES)
def test_every_task_is_named_by_its_phase_and_uses_a_full_module_name(role: str) -> None:
    for file, task in tasks_of(role, "tasks"):
        name, stem = str(task.get("name", "")), Path(file).stem
        phase = r"(\w+ \| )?" if stem == "main" else rf"{stem} \| "
        assert re.match(phase + "[A-Z]", name), f"{file}: {name!r} is not '{stem} | What it does'"
        module = module_of(task)
        assert module.startswith("ansible.builtin.") or module in OUR_MODULES, f"{file}: {module}"


@pytest.mark.parametrize("role", ROLES)
def test_no_task_hides_a_failure_or_computes_in_yaml(role: str) -> None:
    for file, task in tasks_of(role):
        module = module_of(task)
        where = f"{file}: {task.get('name')}"
        assert "ignore_errors" not in task, where
        assert module != "ansible.builtin.set_fact", where
        arguments = task[module] if isinstance(task[module], dict) else {}
        assert arguments.get("state") != "latest", where
        assert not (module == "ansible.builtin.copy" and str(arguments.get("src", "")).endswith("/")), where
        if module in FREE_FORM:
            assert "changed_when" in task or {"creates", "removes"} & set(arguments), where


@pytest.mark.parametrize("role", ROLES)
def test_a_table_of_checks_is_asserted_and_each_row_is_computed(role: str) -> None:
    """A row whose ``holds`` is no template would be a text, which holds always."""
    for file, task in tasks_of(role, "tasks"):
        variables = task.get("vars", {})
        where = f"{file}: {task.get('name')}"
        for row in variables.get("__checks", []):
            assert set(row) == {"holds", "otherwise"}, where
            assert re.fullmatch(r"\{\{.*\}\}", row["holds"], re.DOTALL), f"{where}: {row['holds']}"
        if "__checks" in variables:
            assert task["ansible.builtin.assert"]["that"] == "__refused | length == 0", where
            assert variables["__refused"] == REFUSED_OF_A_TABLE, where


@pytest.mark.parametrize("role", ROLES)
def test_written_files_have_an_owner_and_a_mode(role: str) -> None:
    for file, task in tasks_of(role):
        module = module_of(task)
        if module in {"ansible.builtin.template", "ansible.builtin.copy"}:
            missing = {"owner", "group", "mode"} - set(task[module])
            assert not missing, f"{file}: {task.get('name')} has no {missing}"


@pytest.mark.parametrize("role", ROLES)
def test_handlers_only_restart(role: str) -> None:
    handlers = [task for _, task in tasks_of(role, "handlers")]
    names = [str(task.get("name")) for task in handlers]
    # What comes with a restart is told by its name, too.
    told = [str(task.get("listen", task.get("name"))) for task in handlers]
    assert [name for name in told if not name.startswith("Restart ")] == []
    notified = {one for _, task in tasks_of(role, "tasks") for one in _as_list(task.get("notify", []))}
    assert notified <= set(names)


@pytest.mark.parametrize("role", ROLES)
def test_templates_say_who_wrote_them_and_hold_no_dates(role: str) -> None:
    for template in sorted((paths.roles() / role / "templates").rglob("*.j2")):
        text = template.read_text(encoding="utf-8")
        assert "ansible_managed" in text, template.name
        assert not re.search(r"ansible_date_time|now\(|strftime", text), template.name


@pytest.mark.parametrize("role", ROLES)
def test_the_readme_has_the_table_of_options(role: str) -> None:
    text = (paths.roles() / role / "README.md").read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_manages_is_lists_of_names_or_a_reason(role: str) -> None:
    page = load(paths.roles() / role / "meta/managed.yml")
    assert set(page) - set(OPTIONAL_KINDS) in ({"stampable"}, set(MANAGED_KINDS), {*MANAGED_KINDS, "unknown"})
    kinds = (*MANAGED_KINDS, *OPTIONAL_KINDS)
    assert {kind: page[kind] for kind in kinds if not _are_things(page.get(kind, []))} == {}
    if "stampable" in page:
        assert len(str(page["stampable"]).split()) > 1, "why can it not be stamped?"


def _are_things(listed: list[Any]) -> bool:
    """Names, each alone or with ``when``, ``unless`` or ``each``."""
    mappings = [one for one in listed if isinstance(one, dict)]
    names = [one["name"] if isinstance(one, dict) else one for one in listed]
    known = [{"name", word} for word in ("when", "unless", "each")]
    return _are_texts(names) and all(set(one) in known for one in mappings)


def _stand_in(option: Mapping[str, Any]) -> Any:
    """A value that is a path wherever one could be asked of the option; of a list of mappings it has one."""
    if option.get("type") == "list" and option.get("elements") == "dict":
        return [dict.fromkeys(option.get("options", {}), "/a/b")]
    return "/a/b"


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_manages_is_named_by_public_options_alone(role: str) -> None:
    page = load(paths.roles() / role / "meta/managed.yml")
    upkeep = Upkeep("", {kind: tuple(page.get(kind, ())) for kind in MANAGED_KINDS})
    public = {name: _stand_in(option) for name, option in options_of(role).items() if not option.get("no_log")}
    assert [path for path in managed_by(upkeep, public).paths if not path.startswith("/")] == []


@pytest.mark.parametrize("role", ROLES)
def test_what_nobody_can_name_is_a_task_with_a_reason(role: str) -> None:
    unknown = load(paths.roles() / role / "meta/managed.yml").get("unknown", {})
    names = {str(task.get("name")) for _, task in tasks_of(role)}
    assert set(unknown) <= names
    assert _are_texts(list(unknown.values()))


@pytest.mark.parametrize("role", RUNNING)
def test_a_service_manages_its_unit(role: str) -> None:
    assert load(PAGES[role])["unit"] in load(paths.roles() / role / "meta/managed.yml")["units"]


@pytest.mark.parametrize("role", ROLES)
def test_a_task_that_writes_a_secret_is_followed_by_a_look_at_the_file(role: str) -> None:
    tasks = list(tasks_of(role))
    for (file, task), (_, following) in zip(tasks, [*tasks[1:], ("", {"name": "none"})], strict=True):
        if task.get("no_log") and module_of(task) in WRITERS:
            arguments = task[module_of(task)]
            entries = arguments.get("files", [arguments])
            written = [entry.get("dest", entry.get("path")) for entry in entries]
            looked_at = (following.get("ansible.builtin.stat") or {}).get("path")
            assert written == [looked_at], f"{file}: {task['name']}"
            assert not following.get("no_log"), f"{file}: {following['name']}"


@pytest.mark.parametrize("role", SERVICES)
def test_every_service_has_a_scenario(role: str) -> None:
    folder = ROOT / "molecule" / role
    assert [name for name in ("molecule.yml", "converge.yml") if not (folder / name).is_file()] == []
    assert list((folder / "tests").glob("test_*.py"))


def test_every_scenario_is_a_role_s() -> None:
    """It has the role's name, or begins with it where there is another one for what needs several containers."""
    scenarios = {page.parent.name for page in (ROOT / "molecule").glob("*/molecule.yml")}
    owned = {name for name in scenarios for role in ROLES if name == role or name.startswith(f"{role}_")}
    assert scenarios == owned


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)
