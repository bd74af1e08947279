"""The checks of downloads that a host has still to make: whether they can be had, asked for from this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from provisioner.doctor.diagnosis import Diagnosis, Verdict, diagnosed
from provisioner.lab.artifacts import MODEL_ROLE
from provisioner.lab.resolved import ResolvedLab, host_name
from provisioner.models.pulled import MEDIA_TYPE, model_name
from provisioner.models.remote import NoHeadError, reach
from provisioner.services.base import ResolvedService, models_fetched
from provisioner.values.state import Artifact, Fleet

DEADLINE_S = 10.0
MOST_AT_ONCE = 16
ABSENT = (401, 403, 404, 410)
"""Answers of a server that does not give a thing, or not to us; other troubles pass."""
LOGIN = 401
"""The answer of a registry of images to everybody who has not logged in."""
ADDRESS = re.compile(r"(?P<git>git\+)?(?P<url>https?://[^\s@]+)(@[0-9a-f]{40})?")
"""An address as files and pages of roles write it, with the commit of a repository of git."""
SUFFIXES = {None: "", "git+": "/info/refs?service=git-upload-pack"}
"""Added to an address: of a repository, that for which git asks first."""
IMAGE_ROLE, DOCKER_HUB = "oci", {"docker.io": "registry-1.docker.io"}
ABSENT_HINT = "Correct the file; of a model that is given to few, set HF_TOKEN to a token of who may have it."
SILENT_HINT = "Is that the network, or the name? What is downloaded is asked for by the host itself."


@dataclass(frozen=True, slots=True)
class Download:
    """One address that is asked for; ``known_by``: the refusal by which a server is known as the right one."""

    url: str
    token: str | None = None
    accept: str = "*/*"
    known_by: int = -1


def download_diagnoses(resolved: ResolvedLab, desired: Fleet, there: Fleet, host: str) -> Iterator[Diagnosis]:
    """Yield what was seen of each download of the host, all asked for at once."""
    downloads: dict[Download, None] = {}
    for artifact in desired.artifacts:
        is_needed = artifact.host == host and artifact.volume not in there.hosts[host].volumes
        if is_needed:
            downloads |= dict.fromkeys(_of_artifact(artifact))
    for service in resolved.services.values():
        if host_name(resolved.containers[service.container]) == host:
            downloads |= dict.fromkeys(_of_service(service))
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        for verdict in pool.map(_asked, downloads):
            yield diagnosed(host, "download", verdict)


def _of_artifact(artifact: Artifact) -> Iterator[Download]:
    """Yield what its build takes from addresses in the file and in defaults; with a mirror all of it lies there."""
    variables = artifact.variables
    if variables.get(f"{artifact.role}_mirror"):
        return
    access = variables.get(f"{MODEL_ROLE}_access")
    token = json.loads(access.reveal())["token"] if access else None
    for value in variables.values():
        found = ADDRESS.fullmatch(str(value))
        if found is not None:
            yield Download(found["url"] + SUFFIXES[found["git"]], token)


def _of_service(service: ResolvedService) -> Iterator[Download]:
    """Yield the manifests of models that it fetches by itself, or the registry of its image."""
    for _, wanted in models_fetched(service.page, service.written):
        name = model_name(wanted.model)
        if name is not None:
            yield Download(name.manifest, accept=MEDIA_TYPE)
    if service.role == IMAGE_ROLE and not service.written.get("registry_ca"):
        registry, _, _ = str(service.option("image")).partition("/")
        yield Download(f"https://{DOCKER_HUB.get(registry, registry)}/v2/", known_by=LOGIN)


def _asked(download: Download) -> Verdict:
    """Return what came of asking a server for a download, of which nothing is read.

    What a server refuses for good is in the way; one that gives this machine no answer may give the host one.
    """
    parts = urlsplit(download.url)
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"  # what follows may hold a token
    try:
        reach(download.url, download.token, {"Accept": download.accept}, DEADLINE_S)
    except NoHeadError as error:
        status = getattr(error.__cause__, "code", 0)
        if status == download.known_by:
            return Verdict(f"{shown} is there")
        if status in ABSENT:
            return Verdict("", f"{shown} is not given: {status} {error}", ABSENT_HINT)
        return Verdict(f"{shown} gives this machine no answer: {error}", warning=SILENT_HINT)
    return Verdict(f"{shown} is there")
