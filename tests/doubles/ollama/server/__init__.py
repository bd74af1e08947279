"""A double of Ollama's server: its routes, store, scheduler and traps, with fixed words in place of a model.

Places such as ``server/routes.go:1803`` are those of upstream's commit fb30760. ``README.md`` says what it plays, what
it does not, and by which variables a test decides how it answers.
"""
