"""Inputs that nobody meant: valid ones changed by chance, given to everything that reads what comes from outside.

``python -m tests.fuzz [TARGET ...] [--count N] [--seed N]`` prints what broke; a target is a line in ``targets``.
"""
