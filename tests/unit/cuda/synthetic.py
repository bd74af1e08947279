"""Headers of our own with the layout of NVIDIA's: only what the edit looks at, and what it must not take for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from provisioner.cuda.glibc import SINCE
from provisioner.cuda.places import Headers

Generation = Literal["12", "13.0", "13.2"]

DEVICE = "extern __DEVICE_FUNCTIONS_DECL__ __device_builtin__"
PI_GUARD = "__NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER"
RSQRT_GUARD = "_NV_RSQRT_SPECIFIER"
CUDART = {"12": 12090, "13.0": 13000, "13.2": 13020}
GCC = {"12": 14, "13.0": 15, "13.2": 15}


def made(generation: Generation) -> Headers:
    """The headers as NVIDIA would make them: nothing guarded, sinpi and cospi guarded, everything guarded."""
    return Headers(_declarations(generation), _definitions(generation))


def write_toolkit(root: Path, generation: Generation = "13.0", headers: Headers | None = None) -> Path:
    """A toolkit below ``root`` as its installer lays it out, ``include`` being a link; its real include directory."""
    include = root / "targets/x86_64-linux/include"
    crt = include / "crt"
    crt.mkdir(parents=True)
    (root / "include").symlink_to("targets/x86_64-linux/include")
    headers = headers or made(generation)
    (crt / "math_functions.h").write_text(headers.declarations, encoding="latin-1")
    (crt / "math_functions.hpp").write_text(headers.definitions, encoding="latin-1")
    (crt / "host_config.h").write_text(
        f"#if defined(__GNUC__)\n#if __GNUC__ > {GCC[generation]}\n#error x\n#endif\n#endif\n"
    )
    (include / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {CUDART[generation]}\n")
    return include


def texts(include: Path) -> Headers:
    """What is in the files now."""
    crt = include / "crt"
    declarations, definitions = (
        (crt / name).read_text(encoding="latin-1") for name in ("math_functions.h", "math_functions.hpp")
    )
    return Headers(declarations, definitions)


def _kind(function: str) -> str:
    return "float" if function.endswith("f") else "double"


def _guard(generation: Generation, function: str) -> str:
    if function.startswith("rsqrt"):
        return RSQRT_GUARD if generation == "13.2" else ""
    return "" if generation == "12" else PI_GUARD


def _declarations(generation: Generation) -> str:
    lines = ["/* a notice, \xa9 somebody */", "#if !defined(__MATH_FUNCTIONS_H__)", "#define __MATH_FUNCTIONS_H__", ""]
    lines += ["#if defined(__cplusplus) && defined(__CUDACC__)", f"{DEVICE} double __cdecl sqrt(double x) __THROW;"]
    for function in SINCE:
        kind, guard = _kind(function), _guard(generation, function)
        lines += [
            f"/* rsqrt(double x) of {function} */",
            f"{DEVICE} {kind}    {function}({kind} x){guard and ' ' + guard};",
        ]
    lines += [f"{DEVICE} void   sincospi(double x, double *sptr, double *cptr);"]
    lines += [f"__MATH_FUNCTIONS_DECL__ float {name}(const float a);" for name in ("rsqrt", "sinpi", "cospi")]
    lines += ["#endif /* __cplusplus && __CUDACC__ */", "#if !defined(__CUDACC__)"]
    for function in SINCE:
        kind = _kind(function)
        guard = _guard(generation, function) if function.startswith("rsqrt") else ""
        lines += [f"__func__({kind} {function}({kind} a){guard and ' ' + guard});", ""]
    lines += ["__func__(double rcbrt(double a));", "#endif", '#include "math_functions.hpp"', "#endif", ""]
    return "\n".join(lines)


def _definitions(generation: Generation) -> str:
    lines = ["#if defined(__cplusplus) && defined(__CUDACC__)", "#endif", ""]
    for function in SINCE:
        kind = _kind(function)
        guard = _guard(generation, function) if function.startswith("rsqrt") else ""
        # NVIDIA writes the guard outside of the parenthesis once and inside of it once
        tail = ")" if not guard else f") {guard}" if kind == "double" else f" {guard}) "
        const = "" if function == "cospi" else "const "
        lines += [f"__func__({kind} {function}({const}{kind} a){tail}", "{", "  return a;", "}", ""]
    return "\n".join([*lines, "__func__(double rcbrt(const double a))", "{", "  return a;", "}", ""])
