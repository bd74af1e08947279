"""A venv with exllamav2, exllamav3 and PyTorch for the processor, whose classes tell what they allocate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.processes import completed

TORCH = ("torch==2.13.0+cpu", "--extra-index-url", "https://download.pytorch.org/whl/cpu")
EXLLAMA2 = ("exllamav2==0.3.2", "tokenizers==0.23.3")
EXLLAMA3 = ("exllamav3==1.4.2", "triton==3.9.0")
"""The libraries' wheels of sources, whose native extensions are not compiled; and what each imports at once."""
TIMEOUT_S = 1800
ROOT = Path(__file__).parents[1]


def exllama_venv(folder: Path) -> Path:
    """The Python of a new venv in that folder, which has the libraries; takes minutes, and 2 GB of the disk."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=TIMEOUT_S)
    python = folder / "bin" / "python"
    for wanted in (TORCH, EXLLAMA2, EXLLAMA3):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True, timeout=TIMEOUT_S)
    return python


def answers_of(python: Path, program: str, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a module of these tests, run by that Python, answers to questions, in their order."""
    said = completed([python, "-m", program], given=json.dumps(questions), cwd=ROOT, timeout_s=TIMEOUT_S)
    assert said.returncode == 0, said.stderr[-4000:]
    return list(json.loads(said.stdout))
