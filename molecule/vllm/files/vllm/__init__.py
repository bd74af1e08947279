"""A stand-in of vLLM with its habits (measured at 0.32)."""
