"""Parsers of thoughts; the names are read without running this."""

_REASONING_PARSERS_TO_REGISTER = {"qwen3": ("a", "A"), "deepseek_r1": ("b", "B")}

raise RuntimeError("nobody imports it")
