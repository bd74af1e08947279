"""The file as frozen values: what was written, checked by itself; rules between its parts are in ``lab.rules``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from provisioner.labfile.fields import (
    Count,
    GpuUuid,
    HttpUrl,
    Image,
    KeyValue,
    Label,
    Name,
    Part,
    PciAddress,
    Sha256,
    Size,
    Version,
    text_of,
)
from provisioner.labfile.hosts import LOCAL, HostPage, IncusHost, ProxmoxContainer, ProxmoxHost
from provisioner.models.sources import SOURCE, format_of_source, model_source
from provisioner.values.refusals import did_you_mean, refusal

INSTALLER = r"^https://[^\s?#]+/NVIDIA-Linux-[A-Za-z0-9_]+-[0-9.]+\.run$"
_INSTALLER_HINT = 'write the address of its .run file: "https://…/NVIDIA-Linux-x86_64-580.95.05.run"'
DESCRIBING = ("vendor", "pci", "uuid", "vram")


class Require(Part):
    """What the card's driver must at least be; only NVIDIA's says both."""

    driver: Version | None = Field(default=None, description="Oldest version of the driver: `550.54`")
    cuda: Version | None = Field(default=None, description="Oldest release of CUDA that the driver knows: `12.4`")


class Userspace(Part):
    """NVIDIA's own installer, for a host whose driver is of a version that the container's distribution has not."""

    source: Annotated[str, *text_of(INSTALLER, "not NVIDIA's installer", _INSTALLER_HINT)]
    sha256: Sha256


class Gpu(Part):
    """Which GPU a container gets: the one that one field describes, any when all are None; and how it has it."""

    vendor: Literal["nvidia", "amd", "intel"] | None = None
    pci: PciAddress | None = None
    uuid: GpuUuid | None = None
    vram: Size | None = Field(default=None, description="At least this much memory")
    sharing: Literal["shared", "exclusive"] = Field(
        default="shared", description="`exclusive`: no other container of the file gets the same card"
    )
    require: Require = Require.model_construct()
    userspace: Userspace | None = Field(
        default=None, description="Where a container gets NVIDIA's libraries from, when neither host nor apt has them"
    )

    @model_validator(mode="after")
    def _check_one(self) -> Gpu:
        if len(self.model_fields_set.intersection(DESCRIBING)) > 1:
            raise refusal("a GPU is described by one of vendor, pci, uuid and vram", "keep one of them")
        return self


_GPU_HINT = "write none, any, {vendor: …}, {pci: …}, {uuid: …} or {vram: …}"
_GPU_HINTS = {
    **dict.fromkeys(("true", "yes", "on", "all", "1"), "write gpu: any"),
    **dict.fromkeys(("false", "no", "off", "0"), "write gpu: none"),
    **dict.fromkeys(("nvidia", "cuda"), "write gpu: { vendor: nvidia }, or gpu: any"),
    **dict.fromkeys(("amd", "rocm", "vulkan"), "write gpu: { vendor: amd }, or gpu: any"),
    "intel": "write gpu: { vendor: intel }, or gpu: any",
}


def gpu_words(value: Any) -> Any:
    """The words ``none`` and ``any`` as what they stand for; everything else is left to the model."""
    if value == "none":
        return None
    if value == "any":
        return Gpu()
    if isinstance(value, str | bool | int) or value == {}:
        raise refusal("not a GPU", _GPU_HINTS.get(str(value).lower(), _GPU_HINT))
    return value


OLLAMA = frozenset({"ollama", "ollama_chat"})
HOUSE = OLLAMA | {
    "custom_openai",
    "docker_model_runner",
    "hosted_vllm",
    "lemonade",
    "litellm_proxy",
    "llamafile",
    "lm_studio",
    "openai",
    "openai_like",
    "xinference",
}
"""Providers that are wherever someone runs them: each needs a base_url, and has a key or none."""
OWN_ADDRESS = frozenset({"azure", "azure_ai", "databricks"})
"""Clouds in which each customer has an address of his own: base_url and key."""
# fmt: off
CLOUD = frozenset({
    "ai21", "ai21_chat", "aiml", "anthropic", "baseten", "cerebras", "chutes", "codestral", "cohere", "cohere_chat",
    "cometapi", "dashscope", "deepinfra", "deepseek", "featherless_ai", "fireworks_ai", "friendliai", "galadriel",
    "gemini", "github", "groq", "huggingface", "hyperbolic", "inception", "lambda_ai", "meta_llama", "minimax",
    "mistral", "modelscope", "moonshot", "morph", "nano-gpt", "nebius", "novita", "nscale", "nvidia_nim",
    "openrouter", "ovhcloud", "perplexity", "poe", "publicai", "replicate", "sambanova", "scaleway", "synthetic",
    "together_ai", "v0", "vercel_ai_gateway", "volcengine", "wandb", "xai", "zai",
})
# fmt: on
"""Clouds whose address LiteLLM knows: a key."""
PROVIDERS = HOUSE | OWN_ADDRESS | CLOUD
"""LiteLLM's names of the providers that an address and a key are enough for (``litellm.provider_list``, 1.106)."""

_PROVIDER_HINT = 'write provider/model: "openrouter/vendor/model", "anthropic/model", or "openai/model" with a base_url'
_ADDRESS_EXAMPLE = {True: '"http://box:11434"', False: '"http://box:8080/v1"'}
_OPENAI_HINT = '; OpenAI\'s own is "https://api.openai.com/v1"'
_ENDPOINTS = ("/chat/completions", "/completions", "/messages", "/api/chat", "/api/generate")


def provider_of(model: str) -> str:
    """What stands before the first slash; empty without one."""
    provider, slash, _ = model.partition("/")
    return provider if slash else ""


def _model(value: str) -> str:
    provider = provider_of(value)
    if not provider:
        raise refusal("names no provider", _PROVIDER_HINT)
    if provider not in PROVIDERS:
        hint = did_you_mean(provider, sorted(PROVIDERS)) or _PROVIDER_HINT
        raise refusal("unknown provider, or one that needs more than a key and an address", hint)
    model = value.removeprefix(f"{provider}/")
    has_spaces = value.split() != [value]
    if has_spaces or not model:
        raise refusal(f"names no model of {provider}", f'write "{provider}/" and the model\'s name, without spaces')
    return value


def _no_credentials(value: Any) -> Any:
    """An address is shown by plans and written to files that others read."""
    if isinstance(value, str) and "@" in value.partition("://")[2].partition("/")[0]:
        raise refusal("credentials in an address", "leave them out, and write the key as api_key: !secret NAME")
    return value


class Upstream(Part):
    """An engine that is not ours: in a cloud or elsewhere in the house."""

    model: Annotated[str, AfterValidator(_model)] = Field(
        description="Provider and model in LiteLLM's words: `openrouter/vendor/model`"
    )
    api_key: KeyValue | None = Field(default=None, description="What a provider in a cloud always wants")
    base_url: Annotated[HttpUrl, BeforeValidator(_no_credentials)] | None = Field(
        default=None, description="Where it answers: `http://box:8080/v1`; of an Ollama without a path"
    )

    @field_validator("base_url")
    @classmethod
    def _check_path(cls, value: str | None, info: ValidationInfo) -> str | None:
        path = urlsplit(value or "").path.rstrip("/")
        provider = provider_of(str(info.data.get("model", "")))
        if provider in OLLAMA and path:
            raise refusal("an Ollama's address has no path", f"write {_ADDRESS_EXAMPLE[True]}")
        if path.endswith(_ENDPOINTS):
            raise refusal("an address of one request", f"leave out what follows the version: {_ADDRESS_EXAMPLE[False]}")
        return value

    @model_validator(mode="after")
    def _check_what_is_needed(self) -> Upstream:
        provider = provider_of(self.model)
        if provider in HOUSE | OWN_ADDRESS and self.base_url is None:
            # Without one LiteLLM takes openai/ for OpenAI's cloud, and would send it what was meant for the house.
            hint = f"add base_url: {_ADDRESS_EXAMPLE[provider in OLLAMA]}"
            if provider == "openai":
                hint += _OPENAI_HINT
            raise refusal(f"{provider}/ needs base_url", hint)
        if provider in CLOUD | OWN_ADDRESS and self.api_key is None:
            raise refusal(f"{provider}/ needs api_key", "add api_key: !secret NAME")
        return self


LOCAL_HOST = "local"
"""The host of a file that names none: the Incus on this machine."""
Format = Literal["gguf", "exl3", "exl2", "awq", "gptq", "fp8", "safetensors"]
UNKNOWN_MODEL = ""
"""Stands where a service lacks or miswrites the name of its model, so that the rest of it can be judged."""


class Model(Part):
    """Weights: where they come from, their hash, and what engines must be able to read.

    ``format`` is None only for folders: on this machine until the loader has looked, in a hub where no name tells it.
    """

    source: Annotated[str, AfterValidator(model_source), WithJsonSchema({"type": "string", "pattern": SOURCE})]
    format: Format | None = Field(default=None, description="Of a folder's weights, where it does not tell it itself")
    sha256: Sha256 | None = None
    context: Count | None = Field(default=None, description="Tokens of context that the model is used with")

    @model_validator(mode="before")
    @classmethod
    def _fill_format(cls, data: Any) -> Any:
        source = data.get("source") if isinstance(data, dict) else None
        if isinstance(source, str) and data.get("format") is None:
            return {**data, "format": format_of_source(source)}
        return data


class ServiceSpec(Part):
    """One service of a container: exactly the options that were written, validated; secrets as ``Secret``."""

    role: str
    options: dict[str, Any] = Field(default={})
    expose: Literal["host", "lan"] = "host"


BLOCKS = (ProxmoxContainer.kind,)
"""The keys of a container that only one kind of host understands."""


class Container(Part):
    """A container and what runs in it; what is None comes from its services' pages. Sizes are bytes."""

    host: str | None = Field(default=None, description="One of `hosts`; may be left out when there is one")
    image: Image | None = Field(default=None, description="Such as `debian/13`")
    cpu: Count | None = None
    memory: Size | None = None
    disk: Size | None = None
    gpu: Annotated[Gpu | None, BeforeValidator(gpu_words)] = Field(
        default=None, description="`none`, `any`, or which one"
    )
    proxmox: ProxmoxContainer | None = Field(default=None, description="What only Proxmox knows")
    adopt: bool = Field(default=False, description="Take over the container of that name that is there and nobody's")
    copy_of: Label | None = Field(
        default=None, description="The container of which `provision clone` made it: nobody is led to it by its models"
    )
    services: dict[str, ServiceSpec] = Field(default={})

    @property
    def block(self) -> ProxmoxContainer | None:
        """What only one kind of host understands; None where the file says nothing of that."""
        return self.proxmox


def _names_its_secret(command: list[str]) -> list[str]:
    if "{name}" not in " ".join(command):
        raise refusal("the command does not say which secret it wants", 'write "{name}" in one of its words')
    return command


class SecretSource(Part):
    """Where secrets come from that are neither in the environment nor in ``secrets.env``."""

    command: Annotated[list[str], Field(min_length=1), AfterValidator(_names_its_secret)] = Field(
        description='The program and its arguments, such as ["pass", "show", "homelab/{name}"]'
    )


class Snapshots(Part):
    """What is kept of containers before they are changed."""

    keep: Annotated[int, Field(ge=0, le=100)] = Field(
        default=3, description="How many states of each container; 0 keeps none, so that nothing can be rolled back"
    )


class Spec(Part):
    """A whole file."""

    name: Label = Field(description="The lab's name: part of every mark that is left on what it owns")
    hosts: dict[Label, IncusHost | ProxmoxHost] = Field(
        default={}, description="Where containers can live; without any, the Incus on this machine"
    )
    models: dict[Name, Model] = Field(default={})
    upstreams: dict[Name, Upstream] = Field(default={}, description="Engines that are not of this lab")
    containers: dict[Label, Container]
    secrets: SecretSource | None = None
    snapshots: Snapshots = Snapshots.model_construct()
    fit_check: Literal["refuse", "warn"] = Field(
        default="refuse", description="What becomes of engines that do not fit on their card"
    )
    plugin: Literal["provisioner.inference.lab"] | None = Field(
        default=None, description="By this key Ansible takes the file for an inventory; nobody else reads it"
    )


def hosts_of(spec: Spec) -> Mapping[str, HostPage]:
    """The file's hosts; without any, the Incus on this machine under the name ``local``."""
    return spec.hosts or {LOCAL_HOST: IncusHost.model_validate({IncusHost.kind: LOCAL})}


def fixed_address(container: Container) -> str:
    """The address that the file gives a container; empty where it gives none."""
    address = container.proxmox.network.ip.partition("/")[0] if container.proxmox else ""
    return address if address[:1].isdigit() else ""
