"""Which card a container gets: the one that it describes, unless that is too little, or another one has it alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from provisioner.gpus.cards import Card
from provisioner.values.errors import ProviderError
from provisioner.values.quantities import size_text


@dataclass(frozen=True, slots=True)
class CardRequest:
    """What a container says of the card that it wants; nothing at all is any card."""

    vendor: str | None = None
    pci: str | None = None
    uuid: str | None = None
    vram: int | None = None
    exclusive: bool = False

    @property
    def names_one(self) -> bool:
        """Whether it names one certain card."""
        return self.pci is not None or self.uuid is not None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a container gets no card, and what to write instead."""

    message: str
    hint: str


def chosen(request: CardRequest, cards: Sequence[Card]) -> Card | Refusal:
    """The one card that the request means; equal ones are as good as one, the first of them is taken."""
    fitting = [card for card in cards if _fits(request, card)]
    usable = _usable(fitting)
    if not usable:
        return _nothing(request, cards, fitting)
    if request.vram is None and _are_different(usable):
        hint = f'Write which one: gpu: {{ pci: "{usable[0].pci}" }}'
        return Refusal(f"there are several different cards: {_titles(usable)}", hint)
    return min(usable, key=lambda card: (card.memory, card.pci))


def _usable(cards: Sequence[Card]) -> list[Card]:
    """Those that can be given to a container."""
    return [card for card in cards if not card.obstacle()]


def _are_different(cards: Sequence[Card]) -> bool:
    kinds = {(card.vendor, card.name, card.memory) for card in cards}
    return len(kinds) > 1


def choices(requests: Mapping[str, CardRequest], cards: Sequence[Card]) -> dict[str, Card | Refusal]:
    """The card of each container of one host. One that is wanted exclusively is nobody else's."""
    given: dict[str, Card | Refusal] = {}
    users: dict[str, str] = {}
    those_that_name_one_first = sorted(requests, key=lambda name: (not requests[name].names_one, name))
    for name in those_that_name_one_first:
        card = _choice(name, requests, cards, users)
        if isinstance(card, Card):
            users.setdefault(card.pci, name)
        given[name] = card
    return given


def _choice(
    name: str, requests: Mapping[str, CardRequest], cards: Sequence[Card], users: Mapping[str, str]
) -> Card | Refusal:
    """The card of one container; ``users`` are the containers that have one already, by its address."""
    request = requests[name]
    free = [card for card in cards if _can_share(request, requests, users.get(card.pci))]
    card = chosen(request, free)
    if isinstance(card, Card) or len(free) == len(cards):
        return card
    wanted = chosen(request, cards)
    if isinstance(wanted, Refusal):
        return card
    message = f"{wanted.title} is given to container {users[wanted.pci]}, and one of the two wants it alone"
    return Refusal(message, "Leave `exclusive` out, or name another card.")


def _can_share(request: CardRequest, requests: Mapping[str, CardRequest], user: str | None) -> bool:
    """Whether the request agrees with the container that has the card, None for nobody."""
    if user is None:
        return True
    return not request.exclusive and not requests[user].exclusive


def _fits(request: CardRequest, card: Card) -> bool:
    """Whether the card is one that the request describes, and has the memory that it asks for."""
    for wanted, own in ((request.vendor, card.vendor), (request.pci, card.pci), (request.uuid, card.uuid)):
        if wanted not in {None, own}:
            return False
    needed = request.vram or 0
    return max(card.memory, card.shared_memory) >= needed


def _titles(cards: Sequence[Card]) -> str:
    return ", ".join(card.title for card in cards)


def _nothing(request: CardRequest, cards: Sequence[Card], fitting: Sequence[Card]) -> Refusal:
    """Why no card can be used: the first obstacle of those that fit, too little memory, or no such card."""
    if fitting:
        card = fitting[0]
        return Refusal(f"{card.title} cannot be given to a container: {card.obstacle()}", "See: provision doctor")
    if not cards:
        return Refusal("it has no graphics card that can be given to a container", "See: lspci -nn")
    if request.vram is not None:
        return _too_small(request.vram, cards)
    message = f"there is no such card on the host; there are: {_titles(cards)}"
    return Refusal(message, "Write one of these, or gpu: any.")


def _too_small(vram: int, cards: Sequence[Card]) -> Refusal:
    largest = max(cards, key=lambda card: card.memory)
    memory = size_text(largest.memory) if largest.memory else "memory that nobody tells"
    message = f"no card has {size_text(vram)}: {largest.title} has {memory}"
    return Refusal(message, "Ask for less, or leave it out.")


# The numbers of a container's groups: each image gives them as it likes, and device files belong to numbers.

FILE = "/etc/group"


def numbers_in(file: str, names: Iterable[str]) -> dict[str, int]:
    """The numbers of the named groups in a container's ``FILE``; ``ProviderError`` for one that it does not have."""
    there = _all_numbers(file)
    missing = sorted(set(names) - there.keys())
    if missing:
        raise ProviderError(
            f"Unable to give device files to group {', '.join(missing)}: the container has no such group",
            resolution="Take an image with udev in it, such as debian/12, or add the group: groupadd --system render",
        )
    return {name: there[name] for name in names}


def _all_numbers(file: str) -> dict[str, int]:
    """The numbers of all groups, of lines such as "render:x:106:"."""
    numbers = {}
    for line in file.splitlines():
        name, _, rest = line.partition(":")
        number = rest.partition(":")[2].partition(":")[0]
        if number.isdigit():
            numbers[name] = int(number)
    return numbers
