"""Files of this machine that options name: a container gets what its role's page says they hold, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from provisioner.catalog import Content, load_catalog
from provisioner.lab.opening import open_lab
from provisioner.lab.opening.texts import READERS, read_texts
from provisioner.labfile.spec import Container, ServiceSpec, Spec
from provisioner.values.address import Address
from provisioner.values.errors import InputError
from tests.signed_pairs import signed

CATALOG = load_catalog()
Named = tuple[str, str, str, Content]
OPTIONS: list[Named] = [
    (role, option, reference.kind, reference.holds)
    for role, page in CATALOG.services.items()
    for option, reference in page.references.items()
    if reference.holds
]
PAIR = signed("authority")
RIGHT: dict[Content, str] = {"certificates": PAIR.own, "python": "class Pipeline:\n    pass\n"}
SHADOW = "root:$y$j9T$canary:19000:0:99999:7:::\n"
WRONG = {
    "passwords": SHADOW,
    "a key": PAIR.key,
    "a key beside its certificate": PAIR.own + PAIR.key,
    "half a certificate": PAIR.own[:200],
    "a zero": "x = 1\0\n",
    "brackets without end": f"x = {'(' * 5000}{')' * 5000}\n",
    "what only a compiler refuses": "return 1\n",
    "another language": "{% for message in messages %}{% endfor %}\n",
}


def read(folder: Path, named: Named, text: str) -> tuple[str | None, list[str]]:
    """Return what a service is given of a file with this text, and what is said of it."""
    role, option, kind, _ = named
    (folder / "given.py").write_text(text, encoding="utf-8")
    written = ["given.py"] if kind == "files" else "given.py"
    service = ServiceSpec(role=role, options={option: written})
    spec = Spec.model_construct(containers={"one": Container.model_construct(services={role: service})})
    texts, problems = read_texts(folder / "homelab.yml", spec, CATALOG)
    given = texts.get(Address.of("one", role), {})
    return next(iter(given.values()), None), [f"{problem.message} {problem.hint}" for problem in problems]


def test_every_content_has_a_reader() -> None:
    assert set(READERS) == set(get_args(Content)) == {holds for *_, holds in OPTIONS}


@pytest.mark.parametrize("named", OPTIONS)
def test_a_file_that_holds_what_the_page_says_is_given(named: Named, tmp_path: Path) -> None:
    text = RIGHT[named[-1]]
    assert read(tmp_path, named, text) == (text, [])


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("named", OPTIONS)
def test_every_other_file_is_refused_and_not_shown(named: Named, case: str, tmp_path: Path) -> None:
    given, (said,) = read(tmp_path, named, WRONG[case])
    assert given is None
    assert "canary" not in said
    assert PAIR.key.splitlines()[1] not in said
    assert READERS[named[-1]][1] in said


def test_a_file_of_passwords_is_no_authority_of_a_registry(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text(SHADOW)
    file = tmp_path / "homelab.yml"
    image = f"registry.example/web@sha256:{'a' * 64}"
    options = f"image: {image}, image_port: 80, pages: [/], registry_ca: shadow"
    file.write_text(f"name: lab\ncontainers: {{ web: {{ services: {{ oci: {{ {options} }} }} }} }}\n")
    with pytest.raises(InputError) as refused:
        open_lab(file)
    assert "registry_ca: shadow: there is no certificate in PEM form in the file" in refused.value.details
    assert "canary" not in f"{refused.value} {refused.value.details}"
