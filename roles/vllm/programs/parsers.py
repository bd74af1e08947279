"""Says as JSON which parsers of thoughts and of calls the vLLM of this interpreter has, without importing it.

Exit code 1 with a sentence where there is no vLLM, or none that lists them as it is known to.
"""

from __future__ import annotations

import ast
import json
import sys
import sysconfig
from pathlib import Path

LISTS = {
    "reasoning": ("reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER"),
    "tool": ("tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER"),
}
"""The file below vLLM's package, and the mapping in it whose keys are the names."""


def names_in(source: str, mapping: str) -> list[str]:
    """The keys of a mapping that a module assigns to a name; ``LookupError`` where it assigns none."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        if any(isinstance(target, ast.Name) and target.id == mapping for target in node.targets):
            return sorted(str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))
    raise LookupError(f"{mapping} is not assigned there")


def parsers_of(package: Path) -> dict[str, list[str]]:
    """The names of each kind."""
    found = {}
    for kind, (file, mapping) in LISTS.items():
        found[kind] = names_in((package / file).read_text(encoding="utf-8"), mapping)
    return found


def main() -> None:
    """Tell."""
    package = Path(sysconfig.get_path("purelib")) / "vllm"
    if not package.is_dir():
        sys.exit("there is no vLLM in it")
    try:
        json.dump(parsers_of(package), sys.stdout)
    except (OSError, SyntaxError, LookupError) as error:
        why = f"its vLLM does not say which parsers it has: {error}"
        sys.exit(" ".join(why.split()))  # of what it ended with, the last line is told


if __name__ == "__main__":
    main()
