"""What is measured of engines, and what that says: the longest context that really answers."""
