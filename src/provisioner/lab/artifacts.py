"""What a lab needs on its hosts beside containers: built programs and stored models, each known by its digest. Pure.

And the containers in which they are made: their network cards, and where nobody knows who answers them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from provisioner.catalog import ArtifactType
from provisioner.lab.resolved import ResolvedContainer
from provisioner.labfile.hosts import DHCP
from provisioner.models.sources import ModelPart
from provisioner.services import knowledge_of
from provisioner.services.base import ResolvedService
from provisioner.values.declared import Secret

if TYPE_CHECKING:
    from provisioner.values.state import Artifact

BUILD_HINT = (
    "If no DHCP server answers there, write on the host's page: build: { network: { ip: ADDRESS/PREFIX, gateway: "
    "ADDRESS } }, with an address that nothing else has."
)
MODEL_ROLE = "model_store"
MODELS_PATH = "/srv/models"
CACHED_MODEL_BYTES = 64 << 20
"""Up to this size a stored model is copied into the cache, as a build is: to store it takes longer."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file: where it is, what it is called in the container, and its content's sha256.

    ``path`` is a file of the controller or an address; ``access`` what only the download may know; ``rest`` the other
    files of a model of several, which lie beside the first. ``is_folder``: engines read all of them by their names.
    ``sha256``, and that of a part: empty where nobody has read the whole file yet.
    """

    path: str
    filename: str
    sha256: str
    size: int | None = None
    access: Secret | None = None
    rest: tuple[ModelPart, ...] = ()
    is_folder: bool = False


def built(service: ResolvedService, artifact: ArtifactType, *, host: str, image: str, architecture: str) -> Artifact:
    """What the service's role builds once for that host and image, with the service's options."""
    values = {option: service.option(option) for option in artifact.options}
    for option in artifact.later:
        if service.option(option) != service.page.options[option].default:
            values[option] = service.option(option)
    variables = {f"{service.role}_{option}": value for option, value in values.items()}
    included = []
    for option, roles in artifact.includes.items():
        value = service.option(option)
        if value in roles:
            included.append(roles[value])
    digest = _digest(artifact.source_digest, variables, distribution_of(image), architecture, *included)
    from provisioner.values.state import Artifact, short_digest  # nothing that a file which is only checked needs

    mounted_at = f"{artifact.path}/{short_digest(digest)}"
    return Artifact(
        name=artifact.name,
        host=host,
        digest=digest,
        role=service.role,
        path=artifact.path,
        mounted_at=mounted_at,
        image=image,
        variables=variables,
        log=artifact.log,
        made_for=knowledge_of(service.role).made_for(service),
        minutes=artifact.minutes,
    )


def stored(model: str, file: ModelFile, host: str, image: str) -> Artifact:
    """The model's files in a volume of the host; a download that was ended goes on."""
    from provisioner.values.state import Artifact  # ditto

    path = f"{MODELS_PATH}/{model}"
    variables: dict[str, Any] = {
        f"{MODEL_ROLE}_source": file.path,
        f"{MODEL_ROLE}_sha256": file.sha256,
        f"{MODEL_ROLE}_path": path,
        f"{MODEL_ROLE}_filename": file.filename,
    }
    more = {f"{MODEL_ROLE}_size": file.size, f"{MODEL_ROLE}_access": file.access, f"{MODEL_ROLE}_rest": _rest(file)}
    variables |= {name: value for name, value in more.items() if value is not None}
    is_download = "://" in file.path
    return Artifact(
        name=f"model-{model}",
        host=host,
        digest=_digest_of(file),
        role=MODEL_ROLE,
        path=path,
        mounted_at=f"{folder_with(file)}/{model}",
        image=image,
        variables=variables,
        cacheable=not file.rest and file.size is not None and file.size <= CACHED_MODEL_BYTES,
        resumable=is_download,
        download=is_download * sum(filter(None, [file.size, *(one.size for one in file.rest)])),
    )


def manifest_digest(files: Iterable[tuple[str, str]]) -> str:
    """The SHA-256 of the list of a model's files that lies beside them: by it units and results say which it is.

    ``files``: the SHA-256 and the name of each, the first one first (``model_store``'s ``MANIFEST.sha256``).
    """
    lines = [f"{sha256}  {name}\n" for sha256, name in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _digest_of(file: ModelFile) -> str:
    return _digest(file.sha256, file.filename, *([one.filename, one.sha256] for one in file.rest))


def folder_with(file: ModelFile) -> str:
    """The folder in the container in which the model lies under its name.

    The digest is above the name and not below it: engines that know models by folders call them by the last one.
    """
    from provisioner.values.state import short_digest

    return f"{MODELS_PATH}/{short_digest(_digest_of(file))}"


def given_path(model: str, file: ModelFile) -> str:
    """What an engine in the container is given: the model's first file, or the folder."""
    folder = f"{folder_with(file)}/{model}"
    return folder if file.is_folder else f"{folder}/{file.filename}"


def given_options(artifact: Artifact, options: Mapping[str, str]) -> dict[str, str]:
    """What the options get that name something in a built artifact; ``options`` are its page's ``gives``."""
    mounted_at = PurePosixPath(artifact.mounted_at)
    return {option: str(mounted_at / below) for option, below in options.items()}


def _rest(file: ModelFile) -> list[dict[str, Any]] | None:
    entries = [
        {"source": one.file, "filename": one.filename, "sha256": one.sha256, "size": one.size} for one in file.rest
    ]
    return [{key: value for key, value in one.items() if value is not None} for one in entries] or None


def distribution_of(image: str) -> str:
    """The distribution and release of an image, whatever its variant: "debian/12" of "debian/12/cloud"."""
    found = re.match(r"[^/]+/[A-Za-z0-9.]+", image)
    return found[0] if found else image


def _digest(*inputs: Any) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def with_builder(artifact: Artifact, container: ResolvedContainer, earlier: Artifact | None) -> Artifact:
    """Return the artifact with its builder's network card, as it is for that container.

    ``earlier``: the same artifact for another container, whose card is taken where that one asks DHCP itself.
    """
    if container.page is None:
        return artifact
    if earlier is not None and not earlier.builder_beside:
        return replace(artifact, builder_settings=earlier.builder_settings, builder_address=earlier.builder_address)
    card = container.page.builder_card(container.written.block)
    beside = container.name * card.asks_in_vain
    return replace(artifact, builder_settings=card.settings, builder_address=card.address, builder_beside=beside)


def has_nobody_to_ask(copy: ResolvedContainer, original: ResolvedContainer) -> bool:
    """Whether a copy asks DHCP, unlike its original, on a host whose ``build:`` says that there is none."""
    page = copy.page
    if page is None or page.build is None or page.build.network.ip == DHCP:
        return False
    of_copy = page.settings_of(copy.written.block)["network"]["ip"]
    of_original = page.settings_of(original.written.block)["network"]["ip"]
    return bool(of_copy == DHCP != of_original)


def dhcp_doubts(artifacts: Iterable[Artifact]) -> list[str]:
    """Say of which networks it is not known whether DHCP answers there, on which builders ask for an address."""
    names: dict[str, list[str]] = {}
    for artifact in artifacts:
        if artifact.builder_beside:
            card = artifact.builder_settings["network"]
            vlan = f" with VLAN {card['vlan']}" if "vlan" in card else ""
            where = f"DHCP on {card['bridge']}{vlan}, where {artifact.builder_beside} has a fixed address"
            names.setdefault(where, []).append(artifact.name)
    return [f"{', '.join(made)}: made in containers that ask {where}" for where, made in names.items()]
