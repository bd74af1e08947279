"""The loop of ``up``: what is there, what has to change, and how that is told."""
