"""Engines that are not of this lab: which providers there are, and what each of them wants to be told."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from provisioner.spec.fields import HttpUrl, KeyValue
from provisioner.spec.part import Part
from provisioner.spec.refusal import refusal
from provisioner.spec.suggestion import did_you_mean

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
