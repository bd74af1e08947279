"""``managed_by``: what a role manages in one container, its page's templates filled in. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from provisioner.catalog import Upkeep
from provisioner.state import Managed, secrets_of

_VARIABLE = re.compile(r"\{\{ (\w+) \}\}")


def managed_by(upkeep: Upkeep, variables: Mapping[str, Any]) -> Managed:
    """The names of what the role manages when it gets ``variables``, one a line of a template; none is of a secret.

    Raises ``jinja2.UndefinedError`` for a template that names what is no variable of the role, or a secret.
    """
    public = {name: value for name, value in variables.items() if not secrets_of(value)}
    kinds = {}
    for field in fields(Managed):
        filled = (_filled(text, public) for text in getattr(upkeep.managed, field.name))
        kinds[field.name] = tuple(line for text in filled for line in text.split("\n") if line)
    return Managed(**kinds)


def _filled(text: str, public: Mapping[str, Any]) -> str:
    # jinja2 is the dearest import of a run that has nothing to do, and most templates only name a variable.
    plain = _VARIABLE.sub(lambda found: str(public.get(found[1], found[0])), text)
    if "{" not in plain:
        return plain

    from jinja2 import StrictUndefined, Template

    rendered: str = Template(text, undefined=StrictUndefined).render(public)
    return rendered
