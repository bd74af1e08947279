"""``Address``: the name of a container, or of a service in it. The only place that takes one apart."""

from __future__ import annotations

SEPARATOR = "/"


class Address(str):
    """``container`` or ``container/service``, as the file and every message write it."""

    __slots__ = ()

    @classmethod
    def of(cls, container: str, service: str = "") -> Address:
        """The address of a container, or of the service of that role in it."""
        return cls(f"{container}{SEPARATOR}{service}" if service else container)

    @property
    def container(self) -> str:
        """The container's name."""
        return self.partition(SEPARATOR)[0]

    @property
    def service(self) -> str:
        """The service's role; empty where the address is a container's."""
        return self.partition(SEPARATOR)[2]
