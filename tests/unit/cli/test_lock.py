"""The verb ``lock``, and what refuses to go on without it: the wheels of a service's stack, in the lab's lock file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provisioner.gpus.cards import Card, Node
from tests.case_files import read_cases
from tests.folder_files import folder_files, write_folder
from tests.snapshots import case_name
from tests.unit.cli.conftest import World
from tests.wheel_files import write_stack, write_wheel

CASES = read_cases("cli/lock")

TORCH = "torch-2.9.0+cu128-cp313-cp313-manylinux_2_28_x86_64.whl"
EXLLAMA = "exllamav3-1.4.2+cu128.torch2.9.0-cp313-cp313-linux_x86_64.whl"
TORCH_OF_PROCESSOR = "torch-2.9.0+cpu-cp313-cp313-manylinux_2_28_x86_64.whl"
FILE: str = CASES["file"]


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A mirror: a torch, what it asks for, and what tabbyAPI imports."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder, TORCH, "sympy")
    write_wheel(folder, EXLLAMA, "torch")
    others = (
        "aiofiles aiohttp async_lru fastapi_slim httptools huggingface_hub jinja2 loguru numpy packaging pillow psutil"
    )
    for name in (
        f"{others} pydantic requests rich ruamel.yaml setuptools sse_starlette tokenizers uvicorn uvloop sympy".split()
    ):
        version = {"pydantic": "2.20.0", "sympy": "2.99.0"}.get(name, "99.0.0")
        write_wheel(folder, f"{name}-{version}-py3-none-any.whl")
    return folder


@pytest.fixture
def written(lab: Path, wheels: Path) -> Path:
    """A lab with a stack of its own beside its file, and a model that is a folder."""
    write_folder(lab.parent / "qwen", folder_files())
    write_stack(lab.parent / "stacks", wheels, "3.13", [TORCH, EXLLAMA])
    write(lab)
    return lab


def write(lab: Path, *, image: str = "debian/13", model: str = "qwen", stack: str = "mine") -> None:
    """The lab's file."""
    lab.write_text(FILE.format(image=image, model=model, stack=stack))


def locked(lab: Path) -> list[dict[str, object]]:
    """The stacks in the lock file."""
    content = yaml.safe_load(lab.with_suffix(".lock").read_text())
    return list(content["stacks"])


def test_nothing_is_planned_before_the_wheels_are_known(world: World, written: Path) -> None:
    assert world.command("validate", str(written)).code == 0
    assert world.command("plan", str(written)).ended(4) == world.snapshot


@pytest.mark.parametrize("verb", [("show",), ("show", "--expanded"), ("graph",), ("schema",)])
def test_what_only_looks_at_the_file_needs_no_wheels(world: World, written: Path, verb: tuple[str, ...]) -> None:
    words = verb if verb == ("schema",) else (*verb, str(written))
    answer = world.command(*words)
    assert (answer.code, answer.err) == (0, "")


def test_what_is_locked_is_installed(world: World, written: Path, wheels: Path) -> None:
    assert world.command("lock", str(written), "--from", str(wheels)).ended(0) == world.snapshot
    (entry,) = locked(written)
    assert (entry["stack"], entry["distribution"]) == ("mine", "debian/13")
    assert world.command("plan", str(written)).ended(0) == world.snapshot


def test_what_is_locked_stays_until_something_else_is_wanted(world: World, written: Path, wheels: Path) -> None:
    world.command("lock", str(written), "--from", str(wheels))
    before = written.with_suffix(".lock").read_text()
    write_wheel(wheels, "sympy-3.0.0-py3-none-any.whl")
    again = world.command("lock", str(written), "--from", str(wheels))
    assert again.out.strip() == "Nothing to find: homelab.lock names the wheels of each stack that a service uses."
    assert written.with_suffix(".lock").read_text() == before
    page = yaml.safe_load((written.parent / "stacks/mine.yml").read_text())
    (written.parent / "stacks/mine.yml").write_text(yaml.safe_dump({**page, "without": ["sympy"]}))
    assert world.command("plan", str(written)).code == 4
    (result,) = world.command("lock", "--json", str(written), "--from", str(wheels)).of("result")
    assert [one["stack"] for one in result["stacks"]] == ["mine"]
    assert "sympy" not in {one["name"] for one in result["stacks"][0]["packages"]}


def test_without_anything_to_note_no_lock_file_is_named_or_made(world: World, written: Path) -> None:
    written.write_text("name: homelab\ncontainers: { empty: {} }\n")
    answer = world.command("lock", str(written))
    assert answer.out.strip() == "Nothing to find: no service uses a model from `hf:` or a stack of wheels."
    assert not written.with_suffix(".lock").exists()


def test_what_nobody_uses_leaves_the_lock_file(world: World, written: Path, wheels: Path) -> None:
    world.command("lock", str(written), "--from", str(wheels))
    written.write_text("name: homelab\ncontainers: { empty: {} }\n")
    assert world.command("lock", str(written)).code == 0
    assert locked(written) == []


def test_a_lock_file_that_was_edited_is_refused(world: World, written: Path, wheels: Path) -> None:
    world.command("lock", str(written), "--from", str(wheels))
    lock = written.with_suffix(".lock")
    lock.write_text(lock.read_text().replace("sha256: ", "sha256: x", 1))
    assert "is no sha256" in world.command("plan", str(written)).ended(64)


@pytest.mark.parametrize(
    "words",
    [
        {"stack": "none"},
        {"stack": "vllm-cu13"},
        {"stack": "tabbyapi-cu13", "image": "debian/12"},
        {"image": "alpine/3.22"},
        {"model": "tiny"},
        {"model": "made"},
    ],
    ids=lambda words: case_name(" ".join(words.values())),
)
def test_what_cannot_be_is_told_with_its_line(world: World, written: Path, words: dict[str, str]) -> None:
    write(written, **words)
    assert world.command("validate", str(written)).ended(64) == world.snapshot


def test_exl3_is_not_for_llama_cpp(world: World, written: Path) -> None:
    text = FILE.format(image="debian/13", model="qwen", stack="mine")
    written.write_text(text[: text.index("      tabbyapi")] + "      llama_cpp: { model: qwen }\n")
    assert world.command("validate", str(written)).ended(64) == world.snapshot


@pytest.mark.parametrize(("driver", "code"), [("525.60.12", 4), ("525.60.13", 0), ("", 0)])
def test_the_hosts_driver_is_as_new_as_the_stack_needs(
    world: World, written: Path, wheels: Path, driver: str, code: int
) -> None:
    world.command("lock", str(written), "--from", str(wheels))
    written.write_text(written.read_text().replace("  tabby:\n", "  tabby:\n    gpu: any\n"))
    nodes = (Node("/dev/nvidia0", 195, 0),)
    card = Card("0000:01:00.0", "nvidia", "RTX 3060", "nvidia", driver_version=driver, nodes=nodes)
    world.host.cards.there = (card,)
    assert world.command("plan", str(written)).ended(code) == world.snapshot


def test_a_stack_for_the_processor_asks_for_no_driver(world: World, written: Path, wheels: Path) -> None:
    exllama = EXLLAMA.replace("+cu128.torch2.9.0", "")
    write_wheel(wheels, TORCH_OF_PROCESSOR, "sympy")
    write_wheel(wheels, exllama, "torch")
    (wheels / EXLLAMA).unlink()
    (written.parent / "stacks/mine.yml").unlink()
    (written.parent / "stacks").rmdir()
    write_stack(written.parent / "stacks", wheels, "3.13", [TORCH_OF_PROCESSOR, exllama])
    page = yaml.safe_load((written.parent / "stacks/mine.yml").read_text())
    del page["cuda"], page["driver"]
    (written.parent / "stacks/mine.yml").write_text(yaml.safe_dump(page))
    assert world.command("lock", str(written), "--from", str(wheels)).code == 0
    written.write_text(written.read_text().replace("  tabby:\n", "  tabby:\n    gpu: any\n"))
    nodes = (Node("/dev/nvidia0", 195, 0),)
    world.host.cards.there = (
        Card("0000:01:00.0", "nvidia", "RTX 3060", "nvidia", driver_version="470.1", nodes=nodes),
    )
    world.done("plan", str(written))


def test_what_a_page_says_of_a_wheel_besides_its_file_leaves_the_lock_valid(
    world: World, written: Path, wheels: Path
) -> None:
    world.command("lock", str(written), "--from", str(wheels))
    page = yaml.safe_load((written.parent / "stacks/mine.yml").read_text())
    page["packages"]["torch"]["built_for"] = {"torch": "2.9"}
    (written.parent / "stacks/mine.yml").write_text(yaml.safe_dump(page))
    assert world.command("plan", str(written)).code == 0


def test_a_host_of_another_kind_than_the_wheels_is_refused(world: World, written: Path, wheels: Path) -> None:
    world.command("lock", str(written), "--from", str(wheels))
    world.host.architecture = "aarch64"
    assert world.command("plan", str(written)).ended(4) == world.snapshot
