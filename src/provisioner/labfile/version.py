"""The version of the file format; it imports nothing, as ``provision --version`` must answer at once."""

from __future__ import annotations

# It grows by one when a file that was valid is refused afterwards, or means something else. A new key, option or
# service does not change it: files that are there stay as they are. It does not follow the program's version.
SCHEMA_VERSION = "1"
