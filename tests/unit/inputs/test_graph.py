"""What leads from a test to a file of the checkout, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.inputs.graph import Graph
from tests.inputs.tree import Tree

TEST = "tests/integration/test_it.py"
BOX = "class Box:\n    def run(self):\n        import provisioner.plan\n"
CHECKOUT = {
    "tests/conftest.py": "import pytest\n@pytest.fixture\ndef shared():\n    from tests.lab import machine\n",
    "tests/lab/__init__.py": "def up():\n    from tests.lab import other\n",
    "tests/lab/machine.py": "ROLE = 'engine'\n",
    "tests/lab/other.py": "",
    "tests/data/pictures/one.png": "",
    "tests/requirements.txt": "",
    "src/provisioner/__init__.py": "",
    "src/provisioner/__main__.py": "from provisioner.cli import main\n",
    "src/provisioner/paths.py": "",
    "src/provisioner/cli/__init__.py": "def main():\n    from provisioner.cli.app import run\n",
    "src/provisioner/cli/app.py": "VERBS = {'up': ('provisioner.cli.life', 'Make')}\n",
    "src/provisioner/cli/life.py": "from provisioner import plan\n",
    "src/provisioner/cli/effects.py": "",
    "src/provisioner/plan.py": "if TYPE_CHECKING:\n    from provisioner import typed\n",
    "src/provisioner/typed.py": "",
    "src/provisioner/scripts.py": "from provisioner import paths\nTEXT = (paths.data() / 'cluster' / 'look.sh')\n",
    "src/provisioner/data/cluster/look.sh": "",
    "src/provisioner/data/stacks/one.yml": "",
    "src/provisioner/services/__init__.py": "import_module(name)\n",
    "src/provisioner/services/engine.py": "",
    "src/provisioner/catalog/__init__.py": "from provisioner import paths\npaths.roles()\n",
    "src/provisioner/ansible/modules/provision_fetch.py": "def main():\n    from provisioner.plan import make\n",
    "src/provisioner/ansible/modules/provision_other.py": "",
    "src/provisioner/ansible/connection/provision_box.py": BOX,
    "src/provisioner/ansible/callback/provision_changes.py": "",
    "src/provisioner/building.py": "def build(run):\n    run('host.yml')\n",
    "src/provisioner/driver.py": "VARIABLES = {'ansible_connection': 'provision_box'}\n",
    "roles/base/tasks/main.yml": "[]",
    "roles/model_store/tasks/build.yml": "[]",
    "roles/engine/tasks/main.yml": "- include_role:\n    name: toolkit\n# - name: gateway\n- provision_fetch: {}\n",
    "roles/engine/meta/service.yml": "",
    "roles/engine/README.md": "",
    "roles/toolkit/tasks/main.yml": "[]",
    "roles/gateway/tasks/main.yml": "- debug: {msg: the engine of it}\n",
    "roles/gateway/meta/service.yml": "",
    "roles/gateway/programs/start.py": "from guard import Guard\n",
    "roles/gateway/programs/guard.py": "",
    "roles/host/tasks/main.yml": "[]",
    "inventory/hosts.yml.j2": "",
    "src/provisioner/carried/__init__.py": "FOLDER = Path(__file__).parent\n",
    "src/provisioner/carried/program.txt": "",
    "playbooks/site.yml": "- roles:\n    - base\n- roles:\n    - gateway\n",
    "playbooks/host.yml": "- roles:\n    - role: host\n",
    "examples/quickstart.yml": "containers: {one: {services: {engine: {}}}}\n",
    "molecule/engine/part.yml": "[]",
}


def reached(folder: Path, text: str, more: Mapping[str, str] | None = None) -> frozenset[str]:
    """What a test file with that text reaches in the checkout."""
    for name, content in (CHECKOUT | {TEST: text} | dict(more or {})).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return Graph(Tree(folder)).reached_by_test(TEST)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("from provisioner.cli import life", "src/provisioner/plan.py"),
        ("def test():\n    import provisioner.plan", "src/provisioner/plan.py"),
        ("from .helper import x", "tests/integration/helper.py"),
        ("def test(shared): pass", "tests/lab/machine.py"),
        ("def test(shared): pass", "roles/engine/tasks/main.yml"),
        ("def test(request): request.getfixturevalue('shared')", "tests/lab/machine.py"),
        ("CODE = 'import sys; from provisioner.plan import make'", "src/provisioner/plan.py"),
        ("CALL = [sys.executable, '-m', 'tests.lab.other']", "tests/lab/other.py"),
        ("CALL = [str(BIN / 'provision'), 'up']", "src/provisioner/cli/life.py"),
        ("CALL = [python, '-m', 'provisioner', 'up']", "src/provisioner/cli/life.py"),
        ("CALL = ['provision', 'up']", "src/provisioner/plan.py"),
        ("CALL = ['provision', 'up']", "roles/model_store/tasks/build.yml"),
        ("FILE = 'services: { engine: {} }'", "roles/engine/tasks/main.yml"),
        ("FILE = 'services: { engine: {} }'", "roles/toolkit/tasks/main.yml"),
        ("FILE = 'services: { engine: {} }'", "src/provisioner/ansible/modules/provision_fetch.py"),
        ("FILE = 'services: { engine: {} }'", "src/provisioner/plan.py"),
        ("TASK = {'provision_fetch': {}}", "src/provisioner/ansible/modules/provision_fetch.py"),
        ("HOST = {'ansible_connection': 'provision_box'}", "src/provisioner/ansible/connection/provision_box.py"),
        ("import provisioner.driver", "src/provisioner/ansible/connection/provision_box.py"),
        ("HOST = {'ansible_connection': 'provision_box'}", "src/provisioner/plan.py"),
        ("PLAY = ['ansible-playbook']", "src/provisioner/ansible/connection/provision_box.py"),
        ("PLAY = ['ansible-playbook']", "src/provisioner/ansible/callback/provision_changes.py"),
        ("FILE = ROOT / 'examples/quickstart.yml'", "roles/engine/tasks/main.yml"),
        ("FILE = 'quickstart.yml'", "examples/quickstart.yml"),
        ("PLAY = ROOT / 'playbooks/host.yml'", "roles/host/tasks/main.yml"),
        ("PLAY = ROOT / 'playbooks/site.yml'", "roles/base/tasks/main.yml"),
        ("import provisioner.building", "playbooks/host.yml"),
        ("import provisioner.building", "roles/host/tasks/main.yml"),
        ("HERE = ROOT / 'molecule/engine'", "molecule/engine/part.yml"),
        ("PICTURES = DATA / 'pictures'", "tests/data/pictures/one.png"),
        ("import provisioner.scripts", "src/provisioner/data/cluster/look.sh"),
        ("import provisioner.services", "src/provisioner/services/engine.py"),
        ("from tests import lab\npkgutil.iter_modules(lab.__path__)", "tests/lab/other.py"),
        ("import provisioner.catalog", "roles/gateway/meta/service.yml"),
        ("REACHES = ('src/provisioner/data',)", "src/provisioner/data/stacks/one.yml"),
        ("REACHES = ('.',)", "playbooks/site.yml"),
        ("FILE = 'gateway/programs/start.py'", "roles/gateway/programs/guard.py"),
        ("paths.inventory_templates()", "inventory/hosts.yml.j2"),
        ("import provisioner.carried", "src/provisioner/carried/program.txt"),
        ("", "tests/requirements.txt"),
    ],
)
def test_it_is_reached(tmp_path: Path, text: str, target: str) -> None:
    assert target in reached(tmp_path, text, {"tests/integration/helper.py": ""})


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("from provisioner.cli import effects", "src/provisioner/cli/app.py"),
        ("from provisioner import plan", "src/provisioner/typed.py"),
        ("from tests.lab import machine", "tests/lab/other.py"),
        ("def test(): pass", "tests/lab/machine.py"),
        ('"""It is about engine."""', "roles/engine/tasks/main.yml"),
        ("# engine", "roles/engine/tasks/main.yml"),
        ("FILE = 'services: { engine: {} }'", "roles/gateway/tasks/main.yml"),
        ("FILE = 'services: { gateway: {} }'", "roles/engine/tasks/main.yml"),
        ("FILE = 'services: { engine: {} }'", "roles/engine/README.md"),
        ("FILE = 'services: { engine: {} }'", "src/provisioner/ansible/modules/provision_other.py"),
        ("PLAY = ['ansible-playbook']", "src/provisioner/plan.py"),
        ("WORDS = 'at the base'", "roles/base/tasks/main.yml"),
        ("PLAY = ROOT / 'playbooks/site.yml'", "roles/gateway/tasks/main.yml"),
        ("import provisioner.catalog", "roles/gateway/tasks/main.yml"),
        ("import provisioner.scripts", "src/provisioner/data/stacks/one.yml"),
        ("FILE = 'part.yml'", "molecule/engine/part.yml"),
    ],
)
def test_it_is_not_reached(tmp_path: Path, text: str, target: str) -> None:
    assert target not in reached(tmp_path, text)


def test_a_program_for_another_python_leads_nowhere(tmp_path: Path) -> None:
    found = reached(tmp_path, "HERE = 'tests/data/old.py'\nPLAIN = 'lab/old.py'", {"tests/lab/old.py": "print 'x'\n"})
    assert "tests/lab/old.py" in found
