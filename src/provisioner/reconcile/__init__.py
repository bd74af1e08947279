"""The loop of ``up``: look at the lab as it is, plan the changes, make them, prove them, and tell of it."""
