# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ansible module: looks at a checkout of tabbyAPI, by git and by its syntax trees; runs none of it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: provision_tabby_checkout
short_description: Look at a checkout of tabbyAPI
description:
  - Says which commit it is, whether files differ from it, which keys its configuration knows and which backends it has.
  - Says whether it asks exllamav3 for n-gram drafts itself. Commits before 2026-06-13 do not, and can be helped.
  - Changes nothing, so it does the same in check mode.
options:
  path: {type: path, required: true, description: [The checkout; it may be missing.]}
author: [provisioner (!UNKNOWN)]
"""
EXAMPLES = r"""
- name: install | Look at the checkout
  provision_tabby_checkout:
    path: /opt/tabbyapi
"""
RETURN = r"""
commit: {type: str, returned: always, description: What is checked out; empty where there is no checkout.}
clean: {type: bool, returned: always, description: Whether every file is the commit's and no other is there.}
config: {type: dict, returned: always, description: "The keys that config.yml may have, by section."}
backends: {type: list, returned: always, description: What it can load models with.}
ngram: {type: str, returned: always, description: "upstream, needed or unknown: who has to ask for n-gram drafts."}
reason: {type: str, returned: always, description: Why that is unknown.}
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

MODELS = "common/config_models.py"
ROOT_MODEL = "TabbyConfigModel"
BACKEND = "backends/exllamav3/model.py"
GENERATOR = "AsyncGenerator"
OPTION = "ngram_match_min"


def main() -> None:
    """Answer with what was found."""
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    checkout = Path(module.params["path"])
    try:
        module.exit_json(changed=False, **look(checkout))
    except (OSError, SyntaxError, ValueError) as error:
        module.fail_json(msg=f"Unable to read the checkout {checkout}: {error}. Delete it, and run the role again.")


def look(checkout: Path) -> dict[str, Any]:
    """What the module returns about the checkout. Raises ``SyntaxError`` for a file that is no Python."""
    known = known_keys(parsed(checkout / MODELS))
    ngram, reason = ngram_drafts(parsed(checkout / BACKEND), asked=OPTION in known.get("draft_model", []))
    return {
        "commit": git(checkout, "rev-parse", "HEAD").strip(),
        "clean": git(checkout, "status", "--porcelain", "--ignored") == "",
        "config": known,
        "backends": sorted(page.parent.name for page in checkout.glob("backends/exllama*/model.py")),
        "ngram": ngram,
        "reason": reason,
    }


def git(checkout: Path, *arguments: str) -> str:
    """What git says of the checkout, or nothing where there is none; a folder above it is not asked."""
    if not (checkout / ".git").is_dir():
        return ""
    command = ["git", f"--git-dir={checkout}/.git", f"--work-tree={checkout}", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout)
    return answer.stdout if answer.returncode == 0 else "?"


def parsed(file: Path) -> ast.Module:
    """The file's syntax tree; an empty one where there is no file."""
    return ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "", str(file))


def known_keys(models: ast.Module) -> dict[str, list[str]]:
    """The keys of ``config.yml`` by section, from the classes that it is checked by."""
    fields = {node.name: dict(annotated(node)) for node in models.body if isinstance(node, ast.ClassDef)}
    keys = {}
    for section, annotation in fields.get(ROOT_MODEL, {}).items():
        for name in names_in(annotation):
            if name in fields:
                keys[section] = sorted(fields[name])
    return keys


def annotated(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """The class's own fields, each with its type; what begins with an underscore is none."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if not name.startswith("_"):
                yield name, statement.annotation


def names_in(annotation: ast.expr) -> Iterator[str]:
    """The names that a type is put together of, such as ``Optional[NetworkConfig]``."""
    return (node.id for node in ast.walk(annotation) if isinstance(node, ast.Name))


def ngram_drafts(backend: ast.Module, *, asked: bool) -> tuple[str, str]:
    """Who has to ask exllamav3 for n-gram drafts, and why that is unknown; ``asked``: the configuration has the option.

    Judged by the one call that makes the generator. "needed": it takes named arguments and passes no n-grams, so that
    adding that one has the same effect as the option of later commits.
    """
    calls = [node for node in ast.walk(backend) if isinstance(node, ast.Call) and called(node) == GENERATOR]
    if len(calls) != 1:
        return "unknown", f"{BACKEND} calls {GENERATOR} {len(calls)} times, not once"
    names = [keyword.arg for keyword in calls[0].keywords]
    passed = OPTION in names
    if asked:
        return ("upstream", "") if passed else ("unknown", f"{OPTION} is an option that is not used")
    if passed:
        return "unknown", f"{OPTION} is used and is no option"
    if None in names or calls[0].args:
        return "unknown", f"{BACKEND} passes arguments to {GENERATOR} that are not named"
    return "needed", ""


def called(call: ast.Call) -> str:
    """The last part of the name that is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return getattr(function, "id", "")


if __name__ == "__main__":
    main()
