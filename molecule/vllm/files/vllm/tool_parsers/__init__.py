"""Parsers of calls; the names are read without running this."""

_TOOL_PARSERS_TO_REGISTER = {"hermes": ("a", "A"), "granite-20b-fc": ("b", "B")}

raise RuntimeError("nobody imports it")
