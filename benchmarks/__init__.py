"""Figures, measured side by side with what others need: ``python -m benchmarks [--gate] [NAME …]``."""
