"""Doors: what their certificate is made of, and whether a given one is for their sites."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from provisioner.services import base
from provisioner.services.base import ResolvedService
from provisioner.values.declared import Problem

CERTIFICATE_OPTION, KEY_OPTION = "certificate", "certificate_key"
ACME_OPTION, AGREE_OPTION = "acme_email", "acme_agree"
WAYS = (
    "Add authority: !secret NAME, or certificate: FILE with certificate_key: !secret NAME, or acme_email: ADDRESS with "
    "acme_agree: true"
)


class Knowledge(base.OnCpu):
    """Knowledge of doors."""

    def problems(self, service: ResolvedService) -> Iterator[Problem]:
        """Two certificates or none; one that is given and that no browser would take for the sites."""
        yield from _choice(service)
        chain = service.texts.get(CERTIFICATE_OPTION)
        if chain is None:
            return
        from provisioner.tls.certificates import flaws

        secret = service.written.get(KEY_OPTION)
        key = secret.reveal() if secret is not None and secret.is_known else None
        for flaw in flaws(chain, key, tuple(service.sites), datetime.now(UTC)):
            yield Problem(_place(service, flaw.part), flaw.message, flaw.hint)

    def warnings(self, service: ResolvedService) -> Iterator[Problem]:
        """A given certificate that ends soon, or lacks those above it."""
        chain = service.texts.get(CERTIFICATE_OPTION)
        if chain is None:
            return
        from provisioner.tls.certificates import remarks

        for remark in remarks(chain, datetime.now(UTC)):
            yield Problem(_place(service, remark.part), remark.message, remark.hint)


def _choice(service: ResolvedService) -> Iterator[Problem]:
    """A door has its certificate in one of three ways, and what belongs to that way."""
    written = service.written
    signed_by = [reference.signed_by for reference in service.page.references.values() if reference.signed_by]
    ways = [option for option in (*signed_by, CERTIFICATE_OPTION, ACME_OPTION) if option in written]
    if not ways:
        yield Problem(service.path, "needs an authority, or a certificate", WAYS)
    elif len(ways) > 1:
        message = f"{' and '.join(ways)} are both written, and one of them says where the certificate is from"
        yield service.problem(ways[-1], message, "Leave one of them out.")
    for option, other in ((CERTIFICATE_OPTION, KEY_OPTION), (KEY_OPTION, CERTIFICATE_OPTION)):
        if option in written and other not in written:
            yield service.problem(option, f"needs {other}: certificate and key belong together", f"Add {other}.")
    if ACME_OPTION in written and not service.option(AGREE_OPTION):
        message = f"nobody gets a certificate from {service.option('acme_directory')} without agreeing to its terms"
        yield service.problem(ACME_OPTION, message, f"Read them, and write {AGREE_OPTION}: true.")


def _place(service: ResolvedService, part: str) -> base.Path:
    """Where the option stands that has to do with this part of a certificate."""
    from provisioner.tls.certificates import CERTIFICATE, KEY

    options = {CERTIFICATE: CERTIFICATE_OPTION, KEY: KEY_OPTION}
    if part in options:
        return (*service.path, options[part])
    return (*service.path, next(iter(_site_options(service))), part)


def _site_options(service: ResolvedService) -> Iterator[str]:
    return (option for option, reference in service.page.references.items() if reference.kind == base.SITES)
