"""Open WebUI: the images that have a Python for it, and who signs in on its page."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.services import base
from provisioner.services.base import ResolvedService, WebPage
from provisioner.values.declared import Problem

IMAGE = "debian/12"
"""The release whose Python is from 3.11 on and before 3.13; an image of it may say more behind that."""


class Knowledge(base.OnCpu):
    """Knowledge of Open WebUI."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """An image whose Python is too new for it."""
        if not service.image.startswith(IMAGE):
            path = ("containers", service.container, "image")
            message = f"Open WebUI cannot run on {service.image}: it needs a Python before 3.13"
            yield Problem(path, message, f"Write image: {IMAGE}.")

    def web_page(self, service: ResolvedService) -> WebPage:
        """Its chat, in which the administrator of the file signs in."""
        return WebPage(user=str(service.option("admin") or ""))
