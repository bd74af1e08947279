"""Doubles of what the product talks to. Each folder has a page that says what it plays and what it does not."""
