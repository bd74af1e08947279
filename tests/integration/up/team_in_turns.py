"""Two engines by a rule that stand where llama-servers did: ``team_in_turns.py NAME --port NUMBER``.

The double of an engine lies beside it, at its path in the checkout. Who is offered a member asks it, and says what
came; a member says what it was told. Nobody answers ``STAY`` before ``STAY_S`` are over.
"""

from __future__ import annotations

import argparse
import threading

from tests.doubles.openai.rule_engine import Question, Reply, RuleEngine, asks, last_text, serving, tool_answers

STAY, STAY_S = "stay", 75.0


def main() -> None:
    """Serve until systemd ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--port", type=int, required=True)
    words = parser.parse_args()
    over = threading.Event()

    def rule(asked: Question) -> Reply:
        answers = tool_answers(asked)
        if last_text(asked) == STAY:
            over.wait(STAY_S)
        if asked.get("tools") and not answers:
            return asks(("coder", f"{words.name} asks"))
        return Reply(f"{words.name}({' '.join(answers) or last_text(asked)})")

    with serving(RuleEngine(rule, port=words.port)):
        over.wait()


if __name__ == "__main__":
    main()
