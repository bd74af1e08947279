"""Graphics cards of the fake."""

from __future__ import annotations

from provisioner.gpus.cards import Card
from provisioner.hosts import base


class Cards(base.Cards):
    """The cards of one host: those that are ``there``."""

    _host: base.Provider
    there: tuple[Card, ...] = ()

    def read(self) -> tuple[Card, ...]:
        """The host's cards."""
        self._host.check_available()
        return self.there
