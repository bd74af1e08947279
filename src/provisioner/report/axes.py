"""Where numbers stand on the axis of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator

TICKS = 6
"""So many at the most stand on an axis."""


def ticks(longest: float) -> Iterator[float]:
    """Round numbers up to ``longest``, few enough to be read: 1, 2 or 5 times a power of ten apart."""
    least = longest / (TICKS - 1)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    yield from (number * step for number in range(math.floor(longest / step) + 1))
