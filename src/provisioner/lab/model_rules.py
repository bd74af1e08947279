"""What the words of one model say against each other: where it comes from, its hash, its format. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.lab.resolved import ResolvedLab
from provisioner.models.folders import GGUF, PLAIN, unknown_format
from provisioner.models.sources import TINY_HF, filename_of, is_folder, part_count
from provisioner.values.declared import Problem


def model_sources(lab: ResolvedLab) -> Iterator[Problem]:
    """What is downloaded from an address is one file, and its hash is known before."""
    for name, model in lab.models.items():
        if not model.source.startswith("https:"):
            continue
        if model.sha256 is None:
            hint = "Its page may tell it; else download the file and run: sha256sum FILE"
            yield Problem(("models", name, "source"), "what is downloaded from an address needs its sha256", hint)
        if part_count(filename_of(model.source)) > 1:
            hint = (
                "Take it from its hub (hf:), or fetch all of its files into one folder and write file:PATH of the first"
            )
            yield Problem(("models", name, "source"), "this is one part of a model of several files", hint)


def model_formats(lab: ResolvedLab) -> Iterator[Problem]:
    """A GGUF is one, a folder is none and tells its format, and a folder's many files have no one hash."""
    for name, model in lab.models.items():
        form = ("models", name, "format")
        if not is_folder(model.source):
            if model.format != GGUF:
                yield Problem(form, f"the source is a GGUF file, and format is {model.format}", "Leave format out.")
            continue
        if model.sha256 is not None:
            hint = "Leave it out: homelab.lock holds the sha256 of each file that comes from a hub."
            yield Problem(("models", name, "sha256"), "a folder has many files, and no sha256 of its own", hint)
        if model.source == TINY_HF and model.format != PLAIN:
            message = f"the built-in folder is {PLAIN}, and format is {model.format}"
            yield Problem(form, message, "Leave format out.")
        elif model.format == GGUF:
            hint = 'Name the file: "hf:ORG/REPO:QUANT" or "file:PATH.gguf"'
            yield Problem(form, "the source is a folder, and a GGUF is a file of one", hint)
        elif model.format is None and not model.source.startswith("dir:"):  # what a folder here tells is read
            error = unknown_format()
            yield Problem(("models", name, "source"), error.message, error.hint)
