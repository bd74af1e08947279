"""A cache whose pages are all of one size, and which groups of a model's layers share. Pure.

So vLLM keeps it: read in its 0.32.0 (``v1/core/kv_cache_utils.py``, ``v1/kv_cache_interface.py``), and held against
what its own code says (``tests/integration/test_vllm_caches.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.loads.layers import Attention, Layer, Recurrent

STATE_BYTES = 4
NEARLY = 1.5
"""Where the largest kind of layers is less than so many times the smallest, groups are as large as it."""


@dataclass(frozen=True, slots=True)
class Pages:
    """How many ``tokens`` of a layer a page has at least, always a multiple of it.

    ``in_flight``: of how many tokens beside a window's own keys and values are kept while they are computed.
    ``states``: how many states a request keeps in each recurrent layer: its own, and those at which others may go on.
    """

    tokens: int
    in_flight: int
    states: int = 2


@dataclass(frozen=True, slots=True)
class Kept:
    """What one request takes of such a cache, in bytes: pages of tokens, and those of states."""

    cache: int
    state: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers of one kind, and how many pages a request has in each of them."""

    layers: int
    pages: int
    is_state: bool


def kept(layers: Sequence[Layer], token: int, context: int, pages: Pages) -> Kept:
    """What a request of ``context`` tokens takes, with the one block that is never given away.

    ``token``: bytes of a token in a layer that attends, the same in all of them; 0 where none does.
    """
    states = [layer.numbers * STATE_BYTES for layer in layers if isinstance(layer, Recurrent)]
    tokens = _tokens_of_page(max(states, default=0), token, pages)
    page = max(tokens * token, max(states, default=0))
    kinds = _kinds(layers, tokens, context, pages)
    if not kinds:
        return Kept(0, 0)
    size = _group_size([kind.layers for kind in kinds])
    cache = state = 0
    for kind in kinds:
        groups = -(-kind.layers // size)
        taken = groups * size * kind.pages * page
        cache += 0 if kind.is_state else taken
        state += taken if kind.is_state else 0
    return Kept(cache + size * page, state)


def _tokens_of_page(state: int, token: int, pages: Pages) -> int:
    """As many tokens as make a page that holds a state, too."""
    if not token:
        return pages.tokens
    fitting = -(-state // (pages.tokens * token)) * pages.tokens
    return max(pages.tokens, fitting)


def _kinds(layers: Sequence[Layer], tokens: int, context: int, pages: Pages) -> list[_Kind]:
    """The layers by what they keep: all tokens, a window of one length, or a state."""
    counts: dict[int | None, int] = {}
    for layer in layers:
        window = layer.window if isinstance(layer, Attention) else None
        counts[window] = counts.get(window, 0) + 1
    kinds: list[_Kind] = []
    for window, count in counts.items():
        if window is None:
            kinds.append(_Kind(count, pages.states, is_state=True))
        elif window:
            held = min(window - 1 + pages.in_flight, context)
            kinds.append(_Kind(count, -(-held // tokens) + 1, is_state=False))  # it may begin inside of a page
        else:
            kinds.append(_Kind(count, -(-context // tokens), is_state=False))
    return kinds


def _group_size(counts: Sequence[int]) -> int:
    """How many layers a group has; kinds of which some are left over fill up their last group."""
    least, most = min(counts), max(counts)
    return most if most < least * NEARLY else least
