"""A team: a researcher is asked first, and a writer makes the answer of what it found."""

import json
import os
from collections.abc import Iterator

import requests

ENGINE = json.loads(os.environ["LAB_CONNECT"])["llama/llama_cpp"]


class Pipeline:
    """What Open WebUI shows as the model Team."""

    def __init__(self) -> None:
        self.name = "Team"

    def pipe(self, user_message: str, model_id: str, messages: list[dict], body: dict) -> Iterator[str]:
        """Answer a question."""
        found = "".join(asked("You find facts.", user_message))
        yield from asked("You write the answer.", f"{user_message}\n\nWhat was found: {found}")


def asked(instructions: str, question: str) -> Iterator[str]:
    """What the engine answers, as it comes."""
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": question}]
    with requests.post(
        f"{ENGINE['url']}/chat/completions",
        headers={"Authorization": f"Bearer {ENGINE['api_key']}"},
        json={"model": ENGINE["model"], "messages": messages, "max_tokens": 256, "stream": True},
        stream=True,
        timeout=60,
    ) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line.startswith(b"data: {"):
                choices = json.loads(line.removeprefix(b"data: "))["choices"]
                yield (choices[0]["delta"].get("content") or "") if choices else ""
