"""What clients send."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class OpenAIChatCompletionForm(BaseModel):
    """A question in OpenAI's words; upstream streams where nobody says otherwise."""

    model_config = ConfigDict(extra="allow")
    stream: bool = True
    model: str
    messages: list[dict[str, Any]]
