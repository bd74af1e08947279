"""An alias of a gateway: a list of engines, or a mapping that says more about how they are asked."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from provisioner.spec.part import Part

Names = Annotated[list[str], Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0)]


class AliasOptions(Part):
    """The engines behind an alias, and what it asks of them; what is None is as for the whole gateway."""

    engines: Names = Field(description="Models, services, upstreams or aliases; first the primary, then the fallbacks")
    timeout: Seconds | None = Field(default=None, description="Seconds that each engine has for a whole answer")
    stream_timeout: Seconds | None = Field(
        default=None, description="Seconds that each engine has for each part of a streamed answer"
    )
    retries: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="How often each engine is asked again before the next one"
    )
    context_window_fallbacks: Names | None = Field(
        default=None, description="Who answers what is too long for an engine; without it the next engines"
    )


def _form(value: Any) -> str:
    return "[mapping]" if isinstance(value, dict | AliasOptions) else "[list]"


# The mapping first: wording.py takes the keys that there are from it.
Alias = Annotated[Annotated[AliasOptions, Tag("[mapping]")] | Annotated[Names, Tag("[list]")], Discriminator(_form)]
FORMS = ("[mapping]", "[list]")
"""What pydantic puts into an error's path to say which of both forms it took."""
