"""Which card a container gets: the one that it describes, unless that is too little, or another one has it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.gpus.cards import Card
from provisioner.sizes import size_text


@dataclass(frozen=True, slots=True)
class Wish:
    """What a container says of the card that it wants; nothing at all is any card."""

    vendor: str | None = None
    pci: str | None = None
    uuid: str | None = None
    vram: int | None = None
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a container gets no card, and what to write instead."""

    message: str
    hint: str


def chosen(wish: Wish, cards: Sequence[Card]) -> Card | Refusal:
    """The one card that the wish means; equal ones are as good as one, the first of them is taken."""
    fitting = [card for card in cards if _fits(wish, card)]
    usable = [card for card in fitting if not card.obstacle()]
    if not usable:
        return _nothing(wish, cards, fitting)
    kinds = {(card.vendor, card.name, card.memory) for card in usable}
    if len(kinds) > 1 and wish.vram is None:
        names = ", ".join(card.title for card in usable)
        return Refusal(
            f"there are several different cards: {names}", f'Write which one: gpu: {{ pci: "{usable[0].pci}" }}'
        )
    return min(usable, key=lambda card: (card.memory, card.pci))


def choices(wishes: Mapping[str, Wish], cards: Sequence[Card]) -> dict[str, Card | Refusal]:
    """The card of each container of one host. One that is wanted exclusively is nobody else's."""
    found: dict[str, Card | Refusal] = {}
    taken: dict[str, str] = {}
    order = sorted(wishes, key=lambda name: (wishes[name].pci is None and wishes[name].uuid is None, name))
    for name in order:
        wish = wishes[name]
        users = {pci for pci in taken if wish.exclusive or wishes[taken[pci]].exclusive}
        card = chosen(wish, [one for one in cards if one.pci not in users])
        blocked = chosen(wish, cards) if users else card
        if isinstance(card, Refusal) and isinstance(blocked, Card):
            other = taken[blocked.pci]
            message = f"{blocked.title} is given to container {other}, and one of the two wants it alone"
            card = Refusal(message, "Leave `exclusive` out, or name another card.")
        if isinstance(card, Card):
            taken.setdefault(card.pci, name)
        found[name] = card
    return found


def _fits(wish: Wish, card: Card) -> bool:
    return (
        wish.vendor in {None, card.vendor}
        and wish.pci in {None, card.pci}
        and wish.uuid in {None, card.uuid}
        and (wish.vram is None or max(card.memory, card.shared_memory) >= wish.vram)
    )


def _nothing(wish: Wish, cards: Sequence[Card], fitting: Sequence[Card]) -> Refusal:
    there = ", ".join(card.title for card in cards)
    if fitting:
        card = fitting[0]
        return Refusal(f"{card.title} cannot be given to a container: {card.obstacle()}", "See: provision doctor")
    if wish.vram is not None and cards:
        largest = max(cards, key=lambda card: card.memory)
        has = size_text(largest.memory) if largest.memory else "memory that nobody tells"
        return Refusal(
            f"no card has {size_text(wish.vram)}: {largest.title} has {has}", "Ask for less, or leave it out."
        )
    if not cards:
        return Refusal("it has no graphics card that can be given to a container", "See: lspci -nn")
    return Refusal(f"there is no such card on the host; there are: {there}", "Write one of these, or gpu: any.")
