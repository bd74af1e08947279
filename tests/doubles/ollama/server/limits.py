"""How much is read at once, and at most."""

JSON_BYTES = 64 << 20
BLOB_BYTES = 8 << 30
PIECE = 1 << 20
