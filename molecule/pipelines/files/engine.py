"""An engine that repeats a question."""

from __future__ import annotations

import sys
import threading

from tests.doubles.openai.rule_engine import Reply, RuleEngine, last_text, serving

if __name__ == "__main__":
    with serving(RuleEngine(lambda question: Reply(f"[{last_text(question)}]"), port=int(sys.argv[1]))):
        threading.Event().wait()
