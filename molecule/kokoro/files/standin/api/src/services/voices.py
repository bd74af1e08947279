"""Voices, and mixes of them: ``af_bella(2)+af_sky(1)``."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import torch
from api.src.core.config import settings

PART = re.compile(r"(?P<name>[^()]+)(?:\((?P<weight>[^()]*)\))?")


def names() -> list[str]:
    """Every voice that is there."""
    return sorted(one.stem for one in Path(settings.voices_dir).glob("*.pt"))


def checked(voice: str) -> str:
    """The voice as it was asked for; ``ValueError`` where there is none of that name, or the mix is none."""
    voice = voice.replace(" ", "")
    if not voice or re.search(r"^[+-]|[+-]$|[+-]{2}", voice):
        raise ValueError("Voice combination contains empty combine items")
    for part in re.split(r"[-+]", voice):
        found = PART.fullmatch(part)
        if not found:
            raise ValueError(f"Voice '{part}' is not a valid voice or voice(weight)")
        if found["name"] not in names():
            raise ValueError(f"Voice '{found['name']}' not found. Available voices: {', '.join(names())}")
    return voice


def file_of(voice: str) -> str:
    """Where its tensor lies; that of a mix is made."""
    parts = re.split(r"([-+])", voice)
    if len(parts) == 1 and "(" not in voice:
        return str(Path(settings.voices_dir) / f"{voice}.pt")
    loaded = [_weighed(part) for part in parts[::2]]
    total = sum(weight for _, weight in loaded)
    mixed = loaded[0][0] * (loaded[0][1] / total)
    for sign, (tensor, weight) in zip(parts[1::2], loaded[1:], strict=True):
        mixed = mixed + (1 if sign == "+" else -1) * tensor * (weight / total)
    path = Path(tempfile.gettempdir()) / f"{voice}.pt"
    torch.save(mixed, path)
    return str(path)


def _weighed(part: str) -> tuple[torch.Tensor, float]:
    found = PART.fullmatch(part)
    assert found
    return torch.load(Path(settings.voices_dir) / f"{found['name']}.pt", weights_only=True), float(found["weight"] or 1)
