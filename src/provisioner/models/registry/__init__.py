"""A registry of models: how it is asked for one, and what is made of its answers."""
