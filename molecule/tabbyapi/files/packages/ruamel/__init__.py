"""A namespace."""
