"""Programs that run in containers, and what their answers mean."""
