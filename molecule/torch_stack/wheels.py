"""Makes small wheels with the names and the shape of real ones: a torch, and extensions that need its symbols.

Run as ``wheels.py FOLDER``; hashes.json there tells what they hash to. The extensions are made by the C compiler.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TAG = "cp311-cp311-linux_x86_64"
TORCH = """
import ctypes, pathlib
__version__ = "2.9.0+cu128"
class version:
    cuda = "12.8"
ctypes.CDLL(str(pathlib.Path(__file__).parent / "lib/libc10.so"), mode=ctypes.RTLD_GLOBAL)
"""
LIBRARY = 'int present(void) __asm__("_ZN3c107presentEv");\nint present(void) { return 1; }\n'
EXTENSION = """
int needed(void) __asm__("_ZN3c10%(length)d%(symbol)sEv");
void *PyModule_Create2(void *, int);
static struct { long head[5]; const char *name; const char *doc; long size; void *rest[5]; } about = {
  {1, 0, 0, 0, 0}, "flash_attn_2_cuda", 0, -1, {0}};
void *PyInit_flash_attn_2_cuda(void) { return needed() ? PyModule_Create2(&about, 1013) : 0; }
"""
PADDING = 3 << 20
"""Bytes of each extension's wheel: enough to be cut, and to fill a small disk."""


def compiled(source: str, soname: str, *libraries: str) -> bytes:
    """A shared object of that C source."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "one.c").write_text(source)
        links = []
        for name in libraries:
            (place / name).write_bytes(compiled(LIBRARY, name))
            links += [f"-l:{name}"]
        command = [
            "cc",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{soname}",
            "-Wl,--allow-shlib-undefined",
            "-o",
            soname,
            "one.c",
        ]
        subprocess.run([*command, "-L.", *links], cwd=place, check=True, timeout=300)
        return (place / soname).read_bytes()


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes], requires: str = "") -> None:
    """Write the wheel, and give it its record."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {requires}\n" if requires else ""
    )
    text = {f"{info}/METADATA": metadata, f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n"}
    every = {**files, **{path: content.encode() for path, content in text.items()}}
    lines = [f"{path},sha256={digest(content)},{len(content)}" for path, content in every.items()]
    every[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / f"{name}-{version}-{TAG}.whl", "w") as archive:
        for path, content in every.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)


def digest(content: bytes) -> str:
    """A hash as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main(folder: Path) -> None:
    """Make all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel(
        folder,
        "torch",
        "2.9.0+cu128",
        {"torch/__init__.py": TORCH.encode(), "torch/lib/libc10.so": compiled(LIBRARY, "libc10.so")},
    )
    for version, symbol in (("2.8.3", "present"), ("2.8.4", "present"), ("2.8.5", "removed"), ("2.8.6", "present")):
        source = EXTENSION % {"length": len(symbol), "symbol": symbol}
        files = {
            "flash_attn/__init__.py": f"__version__ = '{version}'\n".encode(),
            "flash_attn/weights.bin": bytes(PADDING),
            "flash_attn_2_cuda.so": compiled(source, "flash_attn_2_cuda.so", "libc10.so"),
        }
        wheel(folder, "flash_attn", f"{version}+cu128torch2.9", files, "torch")
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.whl"))}
    (folder / "hashes.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
