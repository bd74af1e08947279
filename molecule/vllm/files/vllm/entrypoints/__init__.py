"""Its commands and its server."""
