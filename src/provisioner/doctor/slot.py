"""How fast data gets to a card: the lanes of its slot beside those that it could have, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.doctor.diagnosis import Verdict
from provisioner.gpus.cards import Link

X16_GB_S: Mapping[float, tuple[str, float]] = {
    2.5: ("1.0", 4),
    5.0: ("2.0", 8),
    8.0: ("3.0", 16),
    16.0: ("4.0", 32),
    32.0: ("5.0", 63),
    64.0: ("6.0", 121),
}
"""GT/s of a lane → the generation of PCIe, and about how many GB/s sixteen lanes carry one way."""
LANES = 16
MODEL_GB = 8
"""A model whose loading shows the difference: what is usual on the cards of homes."""
OFFLOAD_GB_S = 16.0
"""Below about this what stays in the machine's memory waits for the slot with every token."""


def slot_verdict(title: str, link: Link) -> Verdict:
    """Whether the card has all its lanes. Its speed is not judged: an idle card slows its link down by itself."""
    generation, _ = X16_GB_S.get(link.best_speed, ("", 0.0))
    name = f"PCIe {generation}" if generation else f"{link.best_speed:g} GT/s"
    now, best = _gb_s(link.best_speed, link.width), _gb_s(link.best_speed, link.best_width)
    if link.width >= link.best_width:
        slow = "; slow for experts or a KV cache in the machine's memory" if 0 < now < OFFLOAD_GB_S else ""
        rate = f", about {now:.0f} GB/s{slow}" if now else ""
        return Verdict(f"{title}: {name} x{link.width}{rate}")
    problem = f"{title} has x{link.width} of its x{link.best_width} lanes ({name})"
    if now:
        problem += (
            f": about {now:.0f} of {best:.0f} GB/s; {MODEL_GB} GB of model take {MODEL_GB / now:.1f} s to load, not "
            f"{MODEL_GB / best:.1f}, and what stays in the machine's memory is that much slower with every token"
        )
    return Verdict(
        "",
        problem,
        "Put it into a slot with all lanes (the board's manual says which, and which M.2 places take lanes away), or "
        "seat it anew. Where the maker wired fewer (laptops, adapters) keep everything in the card's own memory.",
    )


def _gb_s(speed: float, width: int) -> float:
    return X16_GB_S[speed][1] * width / LANES if speed in X16_GB_S else 0.0
