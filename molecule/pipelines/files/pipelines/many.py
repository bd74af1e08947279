"""A manifold: several models of one file."""


class Pipeline:
    """Says a question again, loud or quiet."""

    def __init__(self) -> None:
        self.type = "manifold"
        self.name = "Echo "
        self.pipelines = [{"id": "loud", "name": "loud"}, {"id": "quiet", "name": "quiet"}]

    def pipe(self, user_message: str, model_id: str, messages: list[dict], body: dict) -> str:
        """Answer in one piece."""
        return user_message.upper() if model_id == "loud" else user_message.lower()
