"""A pipeline with settings, which upstream shows to everybody."""

from collections.abc import Iterator

from pydantic import BaseModel


class Pipeline:
    """Says a word of its own."""

    class Valves(BaseModel):
        """Its settings."""

        word: str = "a word of its own"

    def __init__(self) -> None:
        self.valves = self.Valves()

    def pipe(self, user_message: str, model_id: str, messages: list[dict], body: dict) -> Iterator[str]:
        """Answer in two pieces."""
        yield self.valves.word
        yield f", {user_message}"
