"""``make execution-environment``: a folder of which ``ansible-builder build`` makes an image with all that plays need.

It holds the definition, the wheel and the collection of this tree, all of one version.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from collection import version_of

ROOT = Path(__file__).resolve().parents[1]
DEFINITION = ROOT / ".ci/execution-environment/execution-environment.yml"


def write(dist: Path) -> None:
    """Write ``execution-environment`` into the folder in which ``make dist collection`` has left both files.

    What it held before is replaced.
    """
    version = version_of(ROOT)
    parts = [dist / f"provisioner-{version}-py3-none-any.whl", dist / f"provisioner-inference-{version}.tar.gz"]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise SystemExit(f"Unable to find {' and '.join(missing)} in {dist}: run make dist collection.")
    folder = dist / "execution-environment"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for part in parts:
        shutil.copyfile(part, folder / part.name)
    text = DEFINITION.read_text(encoding="utf-8").replace("VERSION", version)
    (folder / DEFINITION.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
