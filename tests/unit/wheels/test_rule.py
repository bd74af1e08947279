"""Which wheels go together: pairs with their verdicts, and what must never be said to fit, over all combinations."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.values import paths
from provisioner.wheels.builds import (
    LINKED,
    MODULES,
    SILENT,
    TORCH,
    WheelNameError,
    build_of,
    completed,
    every_python,
    pinned_build,
)
from provisioner.wheels.rule import DRIVERS, Fit, Judgement, Part, judge, of_link, python_for, worst

PAIRS = yaml.safe_load(Path("tests/cases/stacks/pairs.yml").read_text(encoding="utf-8"))

NAMES = yaml.safe_load(Path("tests/cases/stacks/names.yml").read_text(encoding="utf-8"))
BESIDE = "torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl"
WORDS = {
    "another Python or machine": "no wheel for Python 3.12 on x86_64",
    "another torch": "built for torch",
    "another CUDA": "built for CUDA",
    "another ABI": "cxx11abi",
    "another backend": "built for rocm",
}
"""What the verdict says of each way not to fit."""


def part(name: str, *requires: str) -> Part:
    """A wheel by its name, with the metadata that was read of it, if any."""
    build = build_of(name)
    return Part(build.package, (build,), requires or None)


def said(judgement: Judgement, package: str) -> str:
    """All words about one package."""
    verdict = next(one for one in judgement.verdicts if one.package == package)
    return f"{verdict.reason} {verdict.advice}"


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: " ".join(case["wheels"]))
def test_a_pair_has_its_verdict(case: dict[str, Any]) -> None:
    parts = [part(name) for name in case["wheels"]]
    judgement = judge(parts, case.get("python", ""), driver=case.get("driver", ""))
    assert judgement.fit == case["fit"], judgement
    assert case.get("says", "") in said(judgement, case.get("about", parts[-1].package))


@pytest.mark.parametrize(("verdict", "name"), [(verdict, name) for verdict in NAMES for name in NAMES[verdict]])
def test_a_real_name_has_its_verdict(verdict: str, name: str) -> None:
    parts = {one.package: one for one in (part(BESIDE), part(name))}
    judgement = judge(list(parts.values()), "3.12")
    if verdict in (Fit.FITS, Fit.UNKNOWN):
        assert judgement.fit == verdict
        return
    assert judgement.fit is Fit.UNFIT
    words = said(judgement, build_of(name).package)
    assert {way for way, text in WORDS.items() if text in words} == set(verdict.split("; "))


TORCHES = [f"2.{minor}.0{label}" for minor, label in product(range(4, 16), ("", "+cpu", "+cu118", "+cu126", "+cu130"))]
EXTENSIONS = [
    pattern.format(cuda=cuda, torch=torch)
    for pattern, cuda, torch in product(
        (
            "exllamav3-1.4.2+cu{cuda}0.torch{torch}.0-cp312-cp312-linux_x86_64.whl",
            "flash_attn-2.8.3+cu{cuda}8torch{torch}-cp312-cp312-linux_x86_64.whl",
            "flash_attn-2.8.3+cu{cuda}torch{torch}cxx11abiTRUE-cp312-cp312-linux_x86_64.whl",
            "causal_conv1d-1.6.1+cu{cuda}torch{torch}cxx11abiFALSE-cp312-cp312-linux_x86_64.whl",
            "flash_attn_3-3.0.0+cu{cuda}0torch{torch}gite2743ab-cp39-abi3-linux_x86_64.whl",
            "somebody_s-0.1+cu{cuda}1torch{torch}-cp312-cp312-linux_x86_64.whl",
        ),
        (11, 12, 13),
        (f"2.{minor}" for minor in range(4, 16)),
    )
]


def test_no_pair_of_another_torch_or_another_cuda_ever_fits() -> None:
    """Exhaustive over what is named: 60 torches by 216 wheels."""
    fitting = 0
    for torch, extension in product(TORCHES, EXTENSIONS):
        beside, build = pinned_build(TORCH, torch), build_of(extension)
        assert build.cuda is not None
        fits = judge([Part(TORCH, (beside,)), Part(build.package, (build,))], "3.12").fit is Fit.FITS
        same_cuda = beside.cuda is not None and beside.cuda[0] == build.cuda[0]
        assert not fits or (beside.version.release[:2] == build.torch and same_cuda), (torch, extension)
        fitting += fits
    assert fitting > 100  # and those that agree do fit


@pytest.mark.parametrize(
    ("requires", "fit", "says"),
    [
        (("torch==2.9.0",), Fit.FITS, "CUDA 12.8"),
        (("torch==2.9.1",), Fit.UNFIT, "asks for torch==2.9.1, beside it is 2.9.0+cu128"),
        (("torch>=2.6.0",), Fit.UNKNOWN, "for which torch it was built"),
        (("torch==2.9.*",), Fit.UNKNOWN, "for which torch it was built"),
        (("torch<2.9",), Fit.UNFIT, "asks for torch<2.9"),
        (("torch==2.1 ; python_version < '3.9'", "torch==2.9.0"), Fit.FITS, ""),
        (("torch==2.1 ; extra == 'old'", "torch==2.9.0"), Fit.FITS, ""),
        (("torch==2.9.0", "numpy (>=", "triton"), Fit.UNKNOWN, "nobody can read"),
    ],
)
def test_metadata_says_what_the_name_does_not(requires: tuple[str, ...], fit: Fit, says: str) -> None:
    torch = part("torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl")
    vision = part("torchvision-0.24.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl", *requires)
    judgement = judge([torch, vision])
    assert judgement.fit is fit
    assert says in said(judgement, "torchvision")


@pytest.mark.parametrize(
    "asks",
    [
        "nvidia-cuda-runtime-cu13==13.0.96 ; platform_system == 'Linux'",
        "cuda-toolkit[cublas,cudart]==13.0.3 ; platform_system == 'Linux'",
    ],
)
def test_the_metadata_of_a_torch_without_a_label_names_its_cuda(asks: str) -> None:
    torch = part("torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl", "filelock", asks)
    right = part("flash_attn-2.8.3+cu130torch2.13-cp312-cp312-linux_x86_64.whl")
    wrong = part("flash_attn-2.8.3+cu126torch2.13-cp312-cp312-linux_x86_64.whl")
    assert judge([torch, right]).fit is Fit.FITS
    assert "beside it is torch for CUDA 13" in said(judge([torch, wrong]), "flash-attn")


def test_a_compiled_wheel_that_asks_for_torch_and_names_none_is_not_known() -> None:
    torch = part("torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl")
    other = part("somebody_s-0.1-cp312-cp312-linux_x86_64.whl", "torch>=2")
    assert judge([torch, other]).fit is Fit.UNKNOWN
    assert judge([torch, part("somebody_s-0.1-py3-none-any.whl", "torch>=2")]).fit is Fit.FITS


def test_triton_has_to_be_the_one_that_torch_asks_for() -> None:
    torch = part("torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl", "triton==3.5.0")
    judgement = judge([torch, part("triton-3.4.0-cp312-cp312-manylinux_2_28_x86_64.whl")])
    assert "asks for triton==3.5.0, beside it is 3.4.0" in said(judgement, "torch")


def test_the_python_is_the_newest_that_takes_them_all() -> None:
    names = [f"torch-2.9.0+cu128-cp3{minor}-cp3{minor}-manylinux_2_28_x86_64.whl" for minor in (11, 12, 13)]
    every = Part(TORCH, tuple(build_of(name) for name in names))
    two = [f"exllamav3-1.4.2+cu128.torch2.9.0-cp3{minor}-cp3{minor}-linux_x86_64.whl" for minor in (11, 12)]
    some = Part("exllamav3", tuple(build_of(name) for name in two))
    assert python_for([every, some]) == "3.12"
    assert python_for([some]) == "3.12"
    assert python_for([Part(TORCH, (pinned_build(TORCH, "2.9.0+cu128"),))]) == ""
    assert judge([every, some], "3.13").fit is Fit.UNFIT


def test_a_package_that_is_no_wheel_is_not_known() -> None:
    judgement = judge([Part("flash-attn", trouble="it is built from its source")])
    assert judgement.fit is Fit.UNKNOWN
    assert "from its source" in said(judgement, "flash-attn")


VLLM = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
TORCH_OF_PYPI = "torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("torch_cuda", "torch", "cuda", "fit", "says"),
    [
        ("13.0", "2.14", "13.0", Fit.FITS, "built for torch 2.14, CUDA 13.0"),
        ("13.0", "2.11+", "13.0", Fit.FITS, "built for torch 2.11 or later, CUDA 13.0"),
        ("13.0", "2.13", "13.0", Fit.UNFIT, "built for torch 2.13, beside it is torch 2.14.0"),
        ("13.0", "2.15+", "13.0", Fit.UNFIT, "built for torch 2.15, beside it is torch 2.14.0"),
        ("12.9", "2.14", "13.0", Fit.UNFIT, "beside it is torch for CUDA 12"),
        ("", "2.14", "13.0", Fit.UNKNOWN, "for which CUDA the torch beside it was built is not known"),
        ("13.0", "2.14", "", Fit.UNKNOWN, "its name does not say for which CUDA"),
        ("13.0", "", "13.0", Fit.UNKNOWN, "its name does not say for which torch"),
    ],
)
def test_what_was_read_in_a_wheel_is_judged_as_if_its_name_said_it(
    torch_cuda: str, torch: str, cuda: str, fit: Fit, says: str
) -> None:
    beside = Part(TORCH, (completed(build_of(TORCH_OF_PYPI), cuda=torch_cuda),))
    wheel = Part("vllm", (completed(build_of(VLLM), torch, cuda),))
    judgement = judge([beside, wheel], "3.12")
    assert judgement.fit is fit
    assert says in said(judgement, "vllm")


@pytest.mark.parametrize(
    ("name", "torch", "cuda"),
    [
        ("exllamav3-1.4.2+cu128.torch2.9.0-cp312-cp312-linux_x86_64.whl", "2.9", ""),
        ("vllm-0.33.0+cu129-cp38-abi3-manylinux_2_28_x86_64.whl", "", "12.9"),
        ("vllm-0.31.0+cpu-cp38-abi3-manylinux_2_39_x86_64.whl", "", "13.0"),
    ],
)
def test_what_a_name_says_is_said_once(name: str, torch: str, cuda: str) -> None:
    with pytest.raises(WheelNameError, match="says in its name"):
        completed(build_of(name), torch, cuda)


@pytest.mark.parametrize(
    ("other", "fit", "says"),
    [
        ("vllm-0.33.0+cu129-cp38-abi3-manylinux_2_28_x86_64.whl", Fit.UNFIT, "torch 2.13.0+cpu, which has none"),
        (VLLM, Fit.UNKNOWN, "for which CUDA"),
        ("somebody_s-0.1+cu130-cp312-cp312-linux_x86_64.whl", Fit.UNFIT, "torch 2.13.0+cpu, which has none"),
        ("vllm-0.31.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl", Fit.FITS, "built for torch 2.13, the processor"),
    ],
)
def test_beside_a_torch_for_the_processor_nothing_is_for_cuda(other: str, fit: Fit, says: str) -> None:
    torch = part("torch-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl")
    build = completed(build_of(other), "2.13")
    judgement = judge([torch, Part(build.package, (build,))], "3.12")
    assert judgement.fit is fit
    assert says in said(judgement, build.package)
    assert "built for the processor" in said(judgement, "torch")


def test_the_worst_counts() -> None:
    good = judge([part("torch-2.9.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl")])
    unknown = judge([part("torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl")])
    bad = judge([part("torch-2.9.0+cu128-cp312-cp312-win_amd64.whl")])
    assert [worst(several) for several in ([good], [good, unknown], [unknown, bad, good], [])] == [
        Fit.FITS,
        Fit.UNKNOWN,
        Fit.UNFIT,
        Fit.FITS,
    ]


def test_the_role_proves_the_modules_that_the_rule_knows() -> None:
    variables = yaml.safe_load((paths.roles() / "torch_stack/vars/main.yml").read_text(encoding="utf-8"))
    assert variables["__torch_stack_known_modules"] == {name: list(modules) for name, modules in MODULES.items()}
    assert not LINKED & MODULES.keys()


def test_every_cuda_that_torch_has_been_built_for_has_its_driver() -> None:
    assert set(DRIVERS) == {11, 12, 13}


BITSANDBYTES = "bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl"


def test_a_wheel_that_is_known_has_one_verdict_by_its_name_and_by_its_file() -> None:
    for metadata in ((), ("torch<3,>=2.3", "numpy>=1.17"), ("torch==2.9.0",)):
        assert judge([part(BESIDE), part(BITSANDBYTES, *metadata)], "3.12").fit is Fit.FITS
    assert judge([part(BESIDE), part(BITSANDBYTES, "torch<2.5")], "3.12").fit is Fit.UNFIT


@pytest.mark.parametrize("package", ["fbgemm_gpu", "torchcodec", "sgl_kernel"])
def test_metadata_that_leaves_torch_out_makes_nothing_known(package: str) -> None:
    silent = part(f"{package}-1.0-cp312-cp312-manylinux_2_28_x86_64.whl", "numpy")
    assert judge([part(BESIDE), silent], "3.12").fit is Fit.UNKNOWN
    labelled = part("somebody_s-1.0+cu128-cp312-cp312-linux_x86_64.whl", "numpy")
    assert "nor its metadata" in said(judge([part(BESIDE), labelled], "3.12"), "somebody-s")
    plain = part("somebody_s-1.0-cp312-cp312-linux_x86_64.whl", "numpy")
    assert judge([part(BESIDE), plain], "3.12").fit is Fit.FITS


def test_a_python_that_there_is_stands_for_those_that_will_come() -> None:
    kernel = part("vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl")
    newest = max(int(one.partition(".")[2].removesuffix("t")) for one in every_python())
    assert python_for([kernel]) == f"3.{newest}"
    assert newest < 16
    assert "no wheel" not in said(judge([kernel], "3.20"), "vllm")


@pytest.mark.parametrize("package", sorted(SILENT))
@pytest.mark.parametrize(("requires", "where"), [(None, "name the file once it is there"), ((), "its makers' pages")])
def test_nobody_is_sent_for_a_wheel_that_no_maker_has(
    package: str, requires: tuple[str, ...] | None, where: str
) -> None:
    torch = build_of("torch-2.11.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl")
    build = build_of(f"{package.replace('-', '_')}-1.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl")
    (unsaid,) = [one for one in of_link(Part(package, (build,), requires), build, torch) if "torch" in one.reason]
    assert unsaid.advice.endswith(f"{where}.")
    assert "says torch" not in unsaid.advice


@pytest.mark.parametrize("variant", ["cu13", "x86_64_v3", "null"])
def test_a_variants_name_is_told_from_one_that_is_no_wheels(variant: str) -> None:
    name = f"torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64-{variant}.whl"
    with pytest.raises(WheelNameError, match="PEP 817"):
        build_of(name)
    with pytest.raises(WheelNameError, match="Invalid build number"):
        build_of(f"torch-2.11.0-{variant}-cp312-cp312-any.whl")
