"""Plays that Ansible runs in this process, and the facts that their tasks set.

Tasks, action plugins and modules are Ansible's own, without a fork for each task, a Python for each module and the
start of ``ansible-playbook``. ``tests/unit/test_plays.py`` compares the two.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import yaml
from ansible import constants
from ansible._internal._task import TaskContext
from ansible._internal._templating import _jinja_bits
from ansible._internal._templating._jinja_bits import AnsibleEnvironment, _TemplateCompileContext
from ansible._internal._templating._jinja_plugins import JinjaPluginIntercept
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_executor import TaskExecutor
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible.executor.task_result import _RawTaskResult
from ansible.inventory.manager import InventoryManager
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.plugins import strategy
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import Jinja2Loader, init_plugin_loader, lookup_loader, module_loader
from ansible.vars.manager import VariableManager

from provisioner.values.plain_data import yaml_value

SAID = "ansible_failed_result.results | default([ansible_failed_result]) | map(attribute='msg', default='') | join(' ')"
"""An expression for what failed said, of a loop what its items said."""
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_pipelining": "true"}
"""The variables of a host that is this machine."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
STREAMS = (0, 1, 2)
_run_command = ActionBase._low_level_execute_command
_compile = AnsibleEnvironment.compile
_codes: dict[tuple[object, ...], CodeType] = {}
_plugins: dict[str, JinjaPluginIntercept] = {}


class _Worker(WorkerProcess):  # type: ignore[misc]  # Ansible has no types
    """A worker that does its task in this process."""

    def start(self) -> None:
        """Do the task on a copy of it, as a forked worker does, and send the result."""
        task = self._task.copy(exclude_parent=True, exclude_tasks=True)
        task._parent = self._task._parent
        with TaskContext(task):
            result = TaskExecutor(
                self._host,
                task,
                self._task_vars,
                self._play_context,
                self._loader,
                self._shared_loader_obj,
                self._final_q,
                self._variable_manager,
            ).run()
        fields = task.dump_attrs()
        self._final_q.send_task_result(
            _RawTaskResult(host=self._host, task=task, return_data=result, task_fields=fields)
        )


def _module_here(_: ActionBase, module_name: str, module_args: dict[str, Any], task_vars: object) -> tuple[Any, str]:
    """Return in place of a module's payload a call that runs the module."""
    assert task_vars is not None
    path = str(module_loader.find_plugin_with_context(module_name).plugin_resolved_path)
    call = partial(printed_by, path, module_args)
    built = SimpleNamespace(module_style="new", shebang="#!here", b_module_data=call, serialization_profile="legacy")
    return built, path


def printed_by(path: str, arguments: dict[str, Any]) -> str:
    """Run a module as a program; return what it prints."""
    printed: list[str] = []
    folder = Path.cwd()
    program = SourceFileLoader("__main__", path)
    with patch_module_args(arguments), mock.patch.object(basic, "print", printed.append, create=True):
        try:
            with contextlib.suppress(SystemExit):
                program.exec_module(ModuleType("__main__"))
        finally:
            os.chdir(folder)
    return "\n".join(printed)


def _command_here(
    action: ActionBase, cmd: str, *arguments: Any, in_data: Callable[[], str] | bytes | None = None, **options: Any
) -> Mapping[str, Any]:
    """Run the call that stands for a module's payload, and anything else as Ansible does."""
    if callable(in_data):
        return {"rc": 0, "stdout": in_data(), "stderr": ""}
    result: Mapping[str, Any] = _run_command(action, cmd, *arguments, in_data=in_data, **options)
    return result


def _compile_once(environment: AnsibleEnvironment, source: object, *options: object) -> CodeType:
    """Compile a text as a template, which Ansible does anew for each host and task."""
    if not isinstance(source, str):
        return _compile(environment, source, *options)  # type: ignore[no-any-return]
    asked = _TemplateCompileContext.current(optional=True)
    key = (environment.lexer, bool(asked and asked.escape_backslashes), source, *options)
    if key not in _codes:
        _codes[key] = _compile(environment, source, *options)
    return _codes[key]


def _plugins_once(builtins: Mapping[str, object], loader: Jinja2Loader) -> JinjaPluginIntercept:
    """Return the filters or tests, which Ansible looks for anew in each of its environments."""
    return _plugins.setdefault(loader.type, JinjaPluginIntercept(builtins, loader))


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Have Ansible do tasks and their modules in this process; modules need pipelining."""
    with (
        mock.patch.object(_jinja_bits, "JinjaPluginIntercept", _plugins_once),
        mock.patch.object(AnsibleEnvironment, "compile", _compile_once),
        mock.patch.object(strategy, "WorkerProcess", _Worker),
        mock.patch.object(ActionBase, "_configure_module", _module_here),
        mock.patch.object(ActionBase, "_low_level_execute_command", _command_here),
    ):
        yield


@cache
def _know_plugins(root: Path) -> None:
    """Have Ansible find our modules and lookups, once."""
    init_plugin_loader()
    module_loader.add_directory(str(root / "src/provisioner/ansible/modules"))
    lookup_loader.add_directory(str(root / "src/provisioner/ansible/lookup"))


@contextlib.contextmanager
def _process_as_before() -> Iterator[None]:
    """Give back what Ansible's queue takes for itself: the signals, and that children inherit the streams."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    inherited = {stream: os.get_inheritable(stream) for stream in STREAMS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for stream, is_inherited in inherited.items():
            os.set_inheritable(stream, is_inherited)


def run_play(
    root: Path, folder: Path, play: Mapping[str, Any], inventory: Mapping[str, Any] | str
) -> dict[str, dict[str, Any]]:
    """Run a play in which no host may fail; return by host the facts that its tasks set."""
    _know_plugins(root)
    pages = {"hosts.yml": inventory, "play.yml": [{"gather_facts": False, **play}]}
    for page, content in pages.items():
        text = content if isinstance(content, str) else yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False)
        (folder / page).write_text(text, encoding="utf-8")
    loader = DataLoader()
    with mock.patch.object(constants, "INVENTORY_ENABLED", ["yaml"]):
        hosts = InventoryManager(loader=loader, sources=[str(folder / "hosts.yml")])
    variables = VariableManager(loader=loader, inventory=hosts)
    printed = io.StringIO()
    with (
        _process_as_before(),
        contextlib.redirect_stdout(printed),
        mock.patch.object(constants, "DEFAULT_ROLES_PATH", [str(root / "roles")]),
        in_this_process(),
    ):
        queue = TaskQueueManager(hosts, variables, loader, passwords={}, forks=1)
        try:
            (entry,) = Playbook.load(str(folder / "play.yml"), variables, loader).get_plays()
            code = queue.run(entry)
        finally:
            queue.cleanup()
            loader.cleanup_all_tmp_files()
    assert code == queue.RUN_OK, printed.getvalue()[-3000:]
    facts = {host.name: variables._nonpersistent_fact_cache[host.name] for host in hosts.get_hosts()}
    # What a failed task leaves has values of Ansible's own types.
    plain: dict[str, dict[str, Any]] = json.loads(json.dumps(facts, default=str))
    return plain


def run_tasks(root: Path, folder: Path, tasks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Run tasks on this machine, which know ``folder``; return the facts that they set."""
    inventory = {"all": {"hosts": {"localhost": {**HERE, "folder": str(folder)}}}}
    return run_play(root, folder, {"hosts": "all", "tasks": list(tasks)}, inventory)["localhost"]


def run_cases(
    root: Path, folder: Path, role: str, cases: Mapping[str, Mapping[str, Any]], tasks: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Run tasks for each case, a host with these variables beside the role's; return by case the facts that are set."""
    known: dict[str, Any] = {}
    for folder_of_role in ("defaults", "vars"):
        page = root / "roles" / role / folder_of_role / "main.yml"
        if page.is_file():
            known |= yaml_value(page.read_text(encoding="utf-8")) or {}
    numbers = {case: f"case{number}" for number, case in enumerate(cases)}
    inventory = {"all": {"vars": known, "hosts": {numbers[case]: {**HERE, **cases[case]} for case in cases}}}
    facts = run_play(root, folder, {"hosts": "all", "tasks": list(tasks)}, inventory)
    return {case: facts[number] for case, number in numbers.items()}


def rendered(template: Path) -> str:
    """Return an expression for what a template renders to, byte for byte what module ``template`` writes."""
    return f"{{{{ lookup('ansible.builtin.template', '{template}') }}}}"


def rescued(*tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block in which a task may fail; what it says then is the fact ``said``."""
    return {"block": list(tasks), "rescue": [{"set_fact": {"said": f"{{{{ {SAID} }}}}"}}]}


def refusals(
    root: Path, folder: Path, role: str, tasks_from: str, cases: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """What a role's tasks say to each case's options, by the case's name; no entry where they take them."""
    include = {"include_role": {"name": role, "tasks_from": tasks_from}}
    variables = {
        case: {f"{role}_{option}": value for option, value in options.items()} for case, options in cases.items()
    }
    facts = run_cases(root, folder, role, variables, [rescued(include)])
    return {case: found["said"] for case, found in facts.items() if "said" in found}
