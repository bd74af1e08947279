"""Doubles of engines that answer in the words of OpenAI's API; ``README.md`` says what each plays."""
