"""Free arguments and variables of an engine of which no sum says what they take of its card."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

ARGUMENT = re.compile(r"--?[A-Za-z]")
QUIET_VARIABLES = re.compile(
    r"TZ|LANG|LANGUAGE|LC_\w+|\w*_PROXY|\w*_proxy|HF_\w+|SSL_CERT_\w+|PYTHON\w+|TOKENIZERS_PARALLELISM|OMP_\w+|MKL_\w+"
    r"|\w+_VISIBLE_DEVICES|\w*(LOG|LOGGING|DEBUG|VERBOSE|TELEMETRY|USAGE_STATS)\w*"
)
"""Variables that say where, how loudly and by which card an engine computes, and no more."""
OF_AN_ARGUMENT = "LLAMA_ARG_"
"""The beginning of variables that stand for an argument of llama.cpp."""


def words_of(reasons: Collection[str], words: Iterable[str], variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all free words of an engine by which a measurement is told from others; none without a reason."""
    if not reasons:
        return ()
    return (*words, *(f"{name}={value}" for name, value in sorted(variables.items())))


def uncounted(words: Iterable[str], variables: Iterable[str], free: Collection[str]) -> Iterator[str]:
    """Yield the reason why nobody knows what the engine takes, where one of these may change it.

    ``words``: of its command line; ``free``: arguments that take nothing. Of llama.cpp a variable is known by the
    argument that it stands for.
    """
    for word in dict.fromkeys(words):
        name = word.replace("_", "-")
        if ARGUMENT.match(word) and name not in free:
            yield f"what {name} among extra_arguments changes of it is not counted"
    for variable in variables:
        argument = "--" + variable.removeprefix(OF_AN_ARGUMENT).lower().replace("_", "-")
        if argument not in free and not QUIET_VARIABLES.fullmatch(variable):
            yield f"what {variable} in environment changes of it is not counted"
