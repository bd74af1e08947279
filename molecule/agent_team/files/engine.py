"""Engines for three: the coordinator asks both members, one after the other; a member says who it is."""

from __future__ import annotations

import sys
import threading

from tests.doubles.openai.rule_engine import Question, Reply, RuleEngine, asks, serving, tool_answers

MEMBERS = ("researcher", "coder")


def rule(question: Question) -> Reply:
    """Answer for the model that is asked."""
    answers = tool_answers(question)
    if question["model"] == "coordinator" and len(answers) < len(MEMBERS):
        return asks((MEMBERS[len(answers)], "What do you know?"))
    return Reply(", ".join(answers) or f"{question['model']} was asked")


if __name__ == "__main__":
    with serving(RuleEngine(rule, port=int(sys.argv[1]))):
        threading.Event().wait()
