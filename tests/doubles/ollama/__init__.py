"""A double of Ollama: ``server`` is the program; ``README.md`` says what it plays and what it does not."""
