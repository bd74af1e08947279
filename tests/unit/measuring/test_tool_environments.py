"""Lists of the packages of tools: each is named with its hashes."""

from __future__ import annotations

import re

from provisioner.measuring import tools
from provisioner.values import paths


def test_lists_of_ours_name_each_package_with_its_hashes_and_no_place() -> None:
    lists = [*(paths.data() / tools.LISTS).glob("*.txt")]
    assert lists
    for file in lists:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        for line in lines:
            assert re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.+]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
