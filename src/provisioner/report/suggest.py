"""Which file of a model a card is best given, as a table, and as what is written for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.loads.suggestions import Left, Way
from provisioner.report.style import PLAIN, Style, safe_line, table

HEAD = ("FILE", "QUANT", "BITS", "CONTEXT", "CACHE", "EXPERTS", "TAKES", "LEFT")
MIB = 2**20
LONGEST_NAME = 40


def suggest_text(ways: Sequence[Way], left: Sequence[Left], use: str, context: int, style: Style = PLAIN) -> str:
    """The ways, the best first; what is not suggested, and why; what is written for the best."""
    lines = []
    if ways:
        lines += [table(HEAD, [_row(one) for one in ways], style), ""]
        if ways[0].context < context:
            lines.append(f"None of them has the {context:,} tokens that {use} should have.")
    else:
        lines.append("Nothing of it fits.")
    lines += [f"{safe_line(one.candidate.name)}: {safe_line(one.why)}" for one in left]
    if ways:
        lines += ["", block_text(ways[0])]
    return "\n".join(lines)


def suggest_content(ways: Sequence[Way], left: Sequence[Left]) -> dict[str, Any]:
    """All of it as values; sizes in bytes."""
    return {
        "ways": [
            {
                "file": one.candidate.name,
                "written": dict(one.candidate.written),
                "quant": one.candidate.quant,
                "bits": one.candidate.header.bits,
                "context": one.context,
                "keys": one.keys,
                "values": one.values,
                "experts_away": one.experts,
                "total": one.total,
                "free": one.free,
            }
            for one in ways
        ],
        "left": [{"file": one.candidate.name, "why": one.why} for one in left],
    }


def block_text(way: Way) -> str:
    """What is written into a lab's file, so that ``up`` serves it so."""
    candidate, name = way.candidate, name_of(way.candidate.name)
    options = [f"model: {name}", f"context: {way.context}", f"kv_cache: {{ k: {way.keys}, v: {way.values} }}"]
    if way.experts:
        layers = candidate.load.count
        options.append("cpu_moe: true" if way.experts >= layers else f"n_cpu_moe: {way.experts}")
    models = [f"  {name}: {_mapping(candidate.written)}"]
    if candidate.eye:
        models.append(f"  {name}-eye: {_mapping(candidate.eye)}")
        options.append(f"mmproj: {name}-eye")
    served = f"      llama_cpp: {{ {', '.join(options)} }}"
    return "\n".join(["models:", *models, "containers:", f"  {name}:", "    gpu: any", "    services:", served])


def _mapping(said: Mapping[str, str]) -> str:
    """What is said of a model in one line; JSON's texts are YAML's, whatever is in them."""
    return f"{{ {', '.join(f'{word}: {json.dumps(value)}' for word, value in said.items())} }}"


def name_of(file: str) -> str:
    """A file's name as one of a model and a container."""
    plain = re.sub(r"[^a-z0-9]+", "-", file.lower()).strip("-")[:LONGEST_NAME].strip("-")
    return plain if plain[:1].isalpha() else f"m-{plain}"


def _row(way: Way) -> tuple[str, ...]:
    candidate = way.candidate
    return (
        safe_line(candidate.name),
        safe_line(candidate.quant) or "not told",
        f"{candidate.header.bits:.2f}" if candidate.header.bits else "not told",
        f"{way.context:,}",
        way.keys if way.keys == way.values else f"{way.keys}, {way.values}",
        f"{way.experts} of {candidate.load.count} away" if way.experts else "",
        f"{-(-way.total // MIB):,} MiB",
        f"{way.free // MIB:,} MiB",
    )
