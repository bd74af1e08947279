"""The values that all rooms exchange: what a thing is called, and what was found out about it."""
