"""Says what its environment holds: {{ 7 * 7 }} stays as it is."""

import json
import os


class Pipeline:
    """Answers in JSON, under a name that is not its file's."""

    def __init__(self) -> None:
        self.id = "environment"

    def pipe(self, user_message: str, model_id: str, messages: list[dict], body: dict) -> str:
        """Answer in one piece."""
        return json.dumps({name: os.environ[name] for name in ("WORD", "FAR_KEY", "LAB_CONNECT")})
