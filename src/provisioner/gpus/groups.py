"""The numbers of a container's groups: each image gives them as it likes, and device files belong to numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.values.errors import ProviderError

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
