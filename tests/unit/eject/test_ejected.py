"""The texts of an ejected folder: text stays text, secrets are references, what plugins import lies beside them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.eject.eject import (
    PRELOAD,
    Box,
    Source,
    connection_plugins,
    ejected_texts,
    modules_of,
    packages_of,
    plain_yaml,
    plugin_text,
    roles_of,
)
from provisioner.values import paths
from provisioner.values.state import Instance, Secret, Service

TEMPLATE = "{{ lookup('pipe', 'touch /tmp/injected') }}"
KEY = Secret("api-key", "canary-4711")
PLAYS = {
    "site.yml": "- {hosts: containers, roles: [base]}\n- {hosts: service_web, roles: [web]}\n- {hosts: service_x}\n",
    "verify.yml": "- {hosts: service_x}\n",
}


class Loader(yaml.SafeLoader):
    """Reads what Ansible reads; ``!unsafe`` is told apart."""


Loader.add_constructor("!unsafe", lambda _loader, node: ("unsafe", node.value))


def load(text: str) -> Any:
    return yaml.load(text, Loader=Loader)  # noqa: S506  # a SafeLoader


def source(**variables: Any) -> Source:
    web = Service("web", "one", "engine", variables)
    base = Service("base", "one", "base", {})
    instance = Instance("one", "pve-1", "lab", "debian/12", services=(web,), base=base)
    box = Box(
        instance, {"ansible_connection": "provision_incus", "provision_instance": "one"}, {"container_lab": "lab"}
    )
    host = {"container_host": {"proxmox": "https://x:8006", "token": {"id": "t", "secret": Secret("pve", "canary-1")}}}
    return Source("lab", [box], {"pve-1": host}, PLAYS, "2.19.4")


def test_hosts_groups_and_variables_are_where_ansible_looks_for_them() -> None:
    texts = ejected_texts(source(web_port=80, web_names=["a", "b"]))
    groups = load(texts["hosts.yml"])["all"]["children"]
    assert set(groups) == {"containers", "host_pve_1", "service_web"}
    assert groups["containers"]["hosts"]["one"]["ansible_connection"] == "provision_incus"
    assert load(texts["host_vars/one.yml"]) == {"container_lab": "lab", "web_port": 80, "web_names": ["a", "b"]}
    assert load(texts["group_vars/host_pve_1.yml"])["container_host"]["proxmox"] == "https://x:8006"
    assert texts["requirements.txt"] == "ansible-core~=2.19.4\n"


def test_only_plays_with_something_to_do_are_kept() -> None:
    texts = ejected_texts(source())
    assert [play["hosts"] for play in load(texts["site.yml"])] == ["containers", "service_web"]
    assert "verify.yml" not in texts, "Ansible refuses a playbook without plays"
    assert "verify.yml" not in texts["README.md"]


def test_no_secret_has_a_value_and_each_is_named() -> None:
    texts = ejected_texts(source(web_key=KEY, web_more=[{"key": KEY}]))
    assert not [name for name, text in texts.items() if "canary" in text]
    lookup = load(texts["host_vars/one.yml"])["web_key"]
    assert lookup.startswith("{{ lookup('ansible.builtin.env', 'PROVISION_SECRET_API_KEY'")
    assert "undef(" in lookup, "a variable that is not set must not become an empty key"
    readme = texts["README.md"]
    assert "export PROVISION_SECRET_API_KEY=…\n" in readme
    assert "It needs `PROVISION_SECRET_PVE`, too." in readme


@pytest.mark.parametrize(
    "text", [TEMPLATE, "{% raw %}", "a {# b", "yes", "1e3", "0x1f", " lead", "a: b", "two\nlines", "#"]
)
def test_what_a_user_wrote_is_never_a_template_nor_another_type(text: str) -> None:
    found = load(plain_yaml({"value": text, "list": [text], "deep": {"more": text}}))
    wanted = ("unsafe", text) if "{" in text else text
    assert found == {"value": wanted, "list": [wanted], "deep": {"more": wanted}}


def test_the_roles_and_plugins_are_those_that_are_used() -> None:
    boxes = source().boxes
    assert roles_of(boxes) == ("base", "container", "web")
    assert connection_plugins(boxes) == {"provision_incus"}


def ejected_plugins() -> dict[str, str]:
    """Return the text of each plugin of ours that may be ejected, by its name."""
    files = [*(paths.plugins() / "connection").glob("*.py"), paths.plugins() / "callback" / f"{PRELOAD}.py"]
    return {file.stem: file.read_text(encoding="utf-8") for file in files}


def test_every_plugin_that_is_ejected_is_told_what_it_imports() -> None:
    plugins = ejected_plugins()
    for name, text in plugins.items():
        assert bool(modules_of(name)) == ("from provisioner" in text)
        top = [line for line in text.splitlines() if line.startswith(("from provisioner", "import provisioner"))]
        assert top == [], "imports of ours stand inside functions"


@pytest.mark.parametrize("plugin", [PRELOAD, "provision_incus", "provision_proxmox"])
def test_what_is_ejected_with_a_plugin_is_all_that_it_imports(plugin: str, tmp_path: Path) -> None:
    modules = modules_of(plugin)
    for module in modules:
        target = tmp_path / "provisioner" / f"{module}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(paths.PACKAGE / f"{module}.py", target)
    for package in packages_of(modules):
        (tmp_path / package / "__init__.py").touch()
    wanted = [
        line.strip() for line in ejected_plugins()[plugin].splitlines() if line.strip().startswith("from provisioner")
    ]
    names = [f"import provisioner.{module.replace('/', '.')}" for module in modules]
    program = "; ".join([f"import sys; sys.path.insert(0, {str(tmp_path)!r})", *names, *wanted])
    # -S: no other package than these and the standard library's is to be found.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_copy_of_a_plugin_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "connection_plugins").mkdir()
    (tmp_path / "python" / "beside.py").write_text("ANSWER = 42\n")
    plugin = tmp_path / "connection_plugins" / "plugin.py"
    plugin.write_text(
        plugin_text("from pathlib import Path\n\n\ndef answer():\n    from beside import ANSWER\n    return ANSWER\n")
    )
    program = f"import sys; sys.path.insert(0, {str(plugin.parent)!r}); import plugin; print(plugin.answer())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "42\n"
