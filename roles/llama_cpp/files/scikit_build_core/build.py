"""Stands in for the build backend of llama-cpp-python while pip downloads its source distribution.

pip asks the backend for the metadata even of what it only downloads. The real backend would be fetched for that,
unpinned, and run; all that it would say is in PKG-INFO.
"""

from __future__ import annotations

import shutil
from email.parser import Parser
from pathlib import Path


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: object = None) -> str:  # noqa: ARG001  # PEP 517
    """Write the metadata that the source distribution carries; the name of the folder that it lies in."""
    source = Path("PKG-INFO")
    headers = Parser().parsestr(source.read_text(encoding="utf-8"), headersonly=True)
    folder = Path(metadata_directory, f"{headers['Name']}-{headers['Version']}.dist-info")
    folder.mkdir()
    shutil.copy(source, folder / "METADATA")
    return folder.name
