"""The lab's file: read with its lines, checked part by part, and told as frozen values."""

from __future__ import annotations

# It grows by one when a file that was valid is refused afterwards, or means something else. A new key, option or
# service does not change it: files that are there stay as they are. It does not follow the program's version.
SCHEMA_VERSION = "1"
# The name by which catalogs of schemas and validators know it, and the place that SchemaStore would give it. Nothing is
# fetched from there, as all references point into the schema itself. It changes with the version alone.
SCHEMA_ID = f"https://json.schemastore.org/provision-homelab-{SCHEMA_VERSION}.json"
