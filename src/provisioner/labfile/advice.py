"""Advice for common mistakes: files of other programs, other names of keys, services and images; only for errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from provisioner.catalog import Catalog, ServiceType
from provisioner.labfile.spec import Container, Model, Spec, Upstream
from provisioner.values.declared import Problem
from provisioner.values.refusals import KeyPath, did_you_mean

_BEGIN = "a lab's file begins with `name:` and has `containers:`; provision init NEW.yml writes one"
_FOREIGN: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"services"}),
        "this is a file of docker compose, and no lab",
        "write `containers:`, in each of them `services:`; an image of a registry is service oci (docs/oci.md)",
    ),
    (frozenset({"apiVersion", "kind"}), "this is a manifest of Kubernetes, and no lab", _BEGIN),
    (frozenset({"model_list"}), "this is a configuration of LiteLLM, and no lab", _BEGIN),
    (frozenset({"all"}), "this is an inventory of Ansible, and no lab", _BEGIN),
)
"""The keys by which files of other programs are known, what each is, and what to do."""
_OF_A_LAB = frozenset({"containers", "hosts", "models"})

_ALSO_CALLED = {
    "kokoro": ("tts", "speech", "voice", "text-to-speech", "kokoro-fastapi", "piper"),
    "llama_cpp": ("llama", "llama-server", "llamacpp", "gguf", "lmstudio", "koboldcpp"),
    "litellm": ("gateway", "router", "proxy", "llm-proxy", "openai-proxy"),
    "open_webui": ("webui", "chat", "ui", "web-ui", "ollama-webui"),
    "tabbyapi": ("tabby", "exllama", "exllamav2", "exllamav3", "exl2", "exl3"),
    "desktop": ("rdp", "xrdp", "vnc", "mate", "remote-desktop"),
    "door": ("caddy", "nginx", "traefik", "reverse-proxy", "haproxy", "ingress", "tls"),
    "agent_team": ("agents", "agent", "team", "crewai", "autogen"),
    "oci": ("docker", "podman", "image", "compose"),
}
"""By a service's name what people call what it does."""
# fmt: off
_IMAGES_ONLY = frozenset({
    "a1111", "anythingllm", "audiobookshelf", "automatic1111", "chromadb", "comfyui", "dify", "docling",
    "easydiffusion", "faster-whisper", "flowise", "forge", "gitea", "grafana", "home-assistant", "homeassistant",
    "immich", "invokeai", "jellyfin", "langflow", "langfuse", "librechat", "localai", "mosquitto", "n8n",
    "nextcloud", "perplexica", "postgres", "prometheus", "qdrant", "redis", "sd-webui", "searxng", "sglang",
    "speaches", "stable-diffusion", "stablediffusion", "text-generation-webui", "weaviate", "whisper",
    "wyoming-whisper",
})
# fmt: on
"""Programs that people look for and that have no role of their own."""
_RUN_IMAGE = 'no role is made for it: run its image, oci: { image: "REGISTRY/NAME@sha256:…", … } (docs/oci.md)'
_SERVICE_HINTS = dict.fromkeys(_IMAGES_ONLY, _RUN_IMAGE) | {
    other: f"write {name}" for name, others in _ALSO_CALLED.items() for other in others
}

_ANCHORS = "an anchor needs no key of its own: write &NAME behind the first key that has these values, *NAME at others"
_OTHER_KEYS = {
    "x": _ANCHORS,
    **dict.fromkeys(("ram", "mem", "mem_limit", "memory_limit", "mem_gb"), "write memory: SIZE, such as memory: 4GiB"),
    **dict.fromkeys(("cpus", "cores", "vcpu", "vcpus", "cpu_count"), "write cpu: NUMBER"),
    **dict.fromkeys(("storage", "rootfs", "size", "disk_size"), "write disk: SIZE, such as disk: 20GiB"),
    **dict.fromkeys(("gpus", "device", "devices", "runtime", "nvidia"), "write gpu: any"),
    **dict.fromkeys(("os", "template", "distribution", "ostemplate", "distro"), "write image: debian/13"),
    **dict.fromkeys(("node", "server", "target"), "write host: NAME, one of the file's hosts"),
    **dict.fromkeys(
        ("ports", "expose", "publish", "networks"),
        "a service opens its own port: write port: NUMBER and expose: lan below the service",
    ),
    **dict.fromkeys(
        ("volumes", "environment", "env_file", "env", "command", "restart", "depends_on", "build"),
        "it is a key of docker compose: what runs in a container stands below its services:, each with its own options",
    ),
    **dict.fromkeys(("version", "kind"), "leave it out: a lab's file has no version"),
}
"""By a key of a container or of the file that there is not, what people meant by it."""
MISSING: Mapping[tuple[object, object], str] = {
    ("", "name"): "begin with `name: homelab`",
    ("", "containers"): "add `containers:`, and below it a name and what is in it",
    ("models", "source"): 'add source: "hf:ORG/REPO:QUANT", or another one of docs/models.md',
    ("hosts", "user"): 'add user: NAME, such as "root@pam"',
}
"""What to write for a key that is missing, by the part of the file that it is in; "" is the file's top."""
_BY_PART = {
    "Secret": "write `!secret NAME`",
    "Model": 'write { source: "hf:ORG/REPO:QUANT" }, or another source of docs/models.md',
    "Container": "write { services: { … } }, or {} for none",
    "Upstream": "write { model: PROVIDER/MODEL, api_key: !secret NAME }",
    "Gpu": "write gpu: any, or which one: { vendor: nvidia }, { vram: 8GiB }",
}
"""By the class of a part that is no mapping, how it is written."""
_NOTHING = "write a value behind its colon, or leave the key out"
_KINDS = ("string", "int", "float", "bool", "list", "dict", "model")
_BY_KINDS: dict[tuple[str, type], str] = {
    **dict.fromkeys(((f"{kind}_type", type(None)) for kind in _KINDS), _NOTHING),
    ("dict_type", list): "write each item under its own name, without the dash: `NAME: { … }`",
    ("model_type", list): 'write its keys without the dash ("- ")',
    ("dict_type", str): "write a name, a colon and what it has: `NAME: { … }`",
    ("list_type", str): "put it in brackets: [NAME], or [NAME, NAME]",
    ("list_type", dict): "write each item in brackets, or on a line of its own that begins with a dash: `- NAME`",
    ("string_type", bool): "put it in quotes",
    ("string_type", int): "put it in quotes",
    ("string_type", float): "put it in quotes",
    ("string_type", list): "write one of them, without brackets and dashes",
    ("int_type", float): "leave out the point and what stands behind it",
}
"""By pydantic's error and the kind that was written, what to write."""
_BY_FORM = (
    (
        r"\s*\$\{?[A-Za-z_][A-Za-z0-9_]*([:?+=-].*)?\}?\s*",
        ".*",
        "variables are not filled in here: write the value itself",
    ),
    (r"(?i:yes|on|y)", "bool_type", "write true"),
    (r"(?i:no|off|n)", "bool_type", "write false"),
    (r"(?i:true|false)", "bool_type", "write it without quotes"),
    (r"[0-9.]{1,20}", "(int|float)_type", "write the number without quotes"),
    (r"[0-9.:]+:[0-9]+(/[a-z]+)?", "int_type", "write one number: a container has its own ports, and none is mapped"),
)
"""Forms of a text, the errors of pydantic with which each counts, and what to write."""
_LEVELS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("the file's top, beside name", Spec),
    ("an upstream: upstreams: NAME:", Upstream),
    ("a model: models: NAME:", Model),
    ("a container: containers: NAME:", Container),
)
"""Places of a file, and what is written there."""

_REFERENCE = "write `!secret NAME` here, without quotes, and NAME=VALUE in secrets.env"
_SECRET_FORMS = (
    (
        "!?secret +[A-Za-z_][A-Za-z0-9_-]*",
        'text that looks like a secret\'s name: "!" or its place is wrong',
        _REFERENCE,
    ),
    (r"\$[A-Z_][A-Z0-9_]+|\$\{.+\}|\{\{.+\}\}", "a variable, and none is filled in here", _REFERENCE),
)
"""Forms of a secret in clear that is no value, what is wrong, and what to do."""

_OTHER_IMAGES = {
    **dict.fromkeys(("debian", "trixie", "debian-13", "debian13"), "debian/13"),
    **dict.fromkeys(("bookworm", "debian-12", "debian12"), "debian/12"),
    **dict.fromkeys(("ubuntu", "noble", "ubuntu-24.04", "ubuntu2404"), "ubuntu/24.04"),
    **dict.fromkeys(("jammy", "ubuntu-22.04", "ubuntu2204"), "ubuntu/22.04"),
}
_IMAGES = 'images here are named "debian/12", "debian/13", "ubuntu/24.04"'


def foreign_file(data: Mapping[str, Any]) -> tuple[KeyPath, str, str] | None:
    """Return where a file says that it is another program's, what it is, and what to do; None where it does not."""
    for keys, message, hint in _FOREIGN:
        if data.keys() >= keys and data.keys().isdisjoint(_OF_A_LAB):
            return (min(keys),), message, hint
    return None


def kind_hint(kind: str, context: Mapping[str, Any], value: object) -> str:
    """Return what to write in the place of a value of another kind; ``kind`` and ``context`` are pydantic's."""
    part = context.get("class_name", context.get("class", ""))
    return _BY_PART.get(part) or form_hint(kind, value) or _BY_KINDS.get((kind, type(value)), "")


def form_hint(kind: str, value: object) -> str:
    """Return what to write in the place of a text of a form that others mean by it; nothing where it has none."""
    if isinstance(value, str):
        for form, kinds, hint in _BY_FORM:
            if re.fullmatch(f"{kinds}:{form}", f"{kind}:{value}", re.ASCII):
                return hint
    return ""


def unknown_service(role: str, catalog: Catalog) -> str:
    """Return what to write for a service that there is not."""
    plain = role.lower().replace("_", "-").replace(".", "-")
    return _SERVICE_HINTS.get(plain) or did_you_mean(role.lower(), catalog.offered, always=True)


def listed_services(services: list[Any] | str, catalog: Catalog) -> str:
    """Return how the services of a container are written that stand in a list, or alone."""
    known = [written_service(page) for role, page in catalog.offered.items() if role in services]
    return f"write {' and '.join(known) or 'SERVICE: { OPTION: VALUE }'}, without a dash"


def written_service(service: ServiceType) -> str:
    """Return how a service is written, with the options that it needs."""
    needed = []
    for name, option in service.options.items():
        is_written = option.required or name == "model"
        if is_written:
            needed.append(f"{name}: …")
    return f"{service.role}: {{ {', '.join(needed)} }}".replace("{  }", "{}")


def secret_reference(path: KeyPath, value: str) -> list[Problem]:
    """Return what is wrong with a secret that only says where its value is to be found; never a part of it."""
    return [
        Problem(path, message, hint) for form, message, hint in _SECRET_FORMS if re.fullmatch(form, value, re.ASCII)
    ]


OF_A_CONTAINER = 3
"""Parts of the path of a container's key: containers, its name, and the key."""


def unknown_key(path: KeyPath, known: Collection[str], catalog: Catalog) -> str:
    """Return what to do with a key that there is not at ``path``; ``known``: the keys that there are."""
    key = str(path[-1]).lower()
    close = did_you_mean(key, known)
    if close.startswith("did you mean"):
        return close
    hints: dict[str, str] = {}
    for place, part in _LEVELS:
        hints |= dict.fromkeys(part.model_fields, f"it is a key of {place}")
    if len(path) == 1 or (path[0] == "containers" and len(path) <= OF_A_CONTAINER):
        hints |= _option_hints(catalog) | _OTHER_KEYS
    for role in catalog.offered:
        hints[role] = f"a service stands in a container: containers: NAME: services: {role}:"
    return hints.get(key.partition("-")[0], close)


def _option_hints(catalog: Catalog) -> dict[str, str]:
    """Return for each option what to do with it in the place of a key of a container."""
    hints: dict[str, str] = {}
    for role, page in catalog.offered.items():
        for option in page.options:
            hints.setdefault(option, f"it is an option of services: write it below one, as services: {role}: {option}:")
    return hints


def label_hint(name: str) -> str:
    """Return which name a lab, host or container can have that is most like what was written; empty without one."""
    label = re.sub("[ _.]+", "-", name.strip()).strip("-")
    is_label = re.fullmatch("[A-Za-z][A-Za-z0-9-]{0,62}", label, re.ASCII)
    return f'write "{label}": ' if is_label else ""


def image_hint(image: str) -> str:
    """Return what to write for an image that is named as other programs name theirs."""
    plain = image.lower().removeprefix("docker.io/").removeprefix("library/")
    name, _, tag = plain.partition(":")
    for written in (plain, f"{name}-{tag}", tag, name):
        if written in _OTHER_IMAGES:
            return f'write "{_OTHER_IMAGES[written]}"'
    return f"{_IMAGES}; an image of a registry is run by service oci" if ":" in image else _IMAGES
