"""Speech in a lab's file: what its container's card decides, how a gateway offers it, and what clients are told."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.catalog import load_catalog
from provisioner.gpus.cards import Card
from provisioner.lab import Known, ResolvedLab, desired_fleet, problems, resolve
from provisioner.lab.rules import card_problems
from provisioner.lab.served import Served, speakers_for
from provisioner.labfile.parsing import parse_spec
from provisioner.labfile.spec import Spec
from provisioner.page.clients import Gateway, Speech, SpeechEndpoint, client_text, entrance_of, speech_endpoint_of
from provisioner.values.address import Address
from provisioner.values.state import Secret
from tests.lab_files import spec_of
from tests.unit.lab.test_cards import AMD, NVIDIA

CATALOG = load_catalog()
UPSTREAM = {"far": {"model": "openai/far", "base_url": "http://far.example/v1"}}


def lab(*, gateway: dict[str, Any] | None = None, gpu: object = None, **options: Any) -> Spec:
    """A file with a service that speaks, and perhaps a gateway with these aliases."""
    containers: dict[str, Any] = {"voice": {"services": {"kokoro": options}, **({"gpu": gpu} if gpu else {})}}
    if gateway is not None:
        key = Secret("litellm_key", "sk-x")
        containers["door"] = {"services": {"litellm": {"master_key": key, "aliases": gateway}}}
    content = {"name": "lab", "upstreams": UPSTREAM, "containers": containers}
    spec = spec_of(content)
    assert problems(resolve(spec, CATALOG)) == []
    return spec


def resolved(spec: Spec, cards: Any = None) -> ResolvedLab:
    """What the file means when its containers have these cards."""
    return resolve(spec, CATALOG, Known(cards=cards or {}))


def variables(spec: Spec, role: str, cards: Any = None) -> Any:
    """What the role is told."""
    fleet = desired_fleet(resolved(spec, cards), {})
    return next(one for place in fleet.instances for one in place.services if one.role == role)


def test_without_a_card_torch_is_that_for_the_cpu() -> None:
    assert variables(lab(), "kokoro").variables["kokoro_torch"] == "cpu"


@pytest.mark.parametrize(
    ("device", "card", "torch"),
    [("auto", NVIDIA, "cuda"), ("nvidia", NVIDIA, "cuda"), ("cpu", NVIDIA, "cpu"), ("auto", AMD, "cpu")],
)
def test_a_card_of_nvidia_alone_decides_which_torch(device: str, card: Card, torch: str) -> None:
    spec = lab(gpu="any", device=device)
    assert variables(spec, "kokoro", {"voice": card}).variables["kokoro_torch"] == torch
    assert card_problems(resolved(spec, {"voice": card})) == []


def test_nobody_asks_for_a_card_and_gets_the_cpu() -> None:
    assert [one.message for one in card_problems(resolved(lab(device="nvidia")))] == [
        "its container has no card of nvidia"
    ]
    spec = lab(gpu="any", device="nvidia")
    found = card_problems(resolved(spec, {"voice": AMD}))
    assert [one.message for one in found] == [f"{AMD.title} is not one of nvidia"]


def test_two_devices_are_two_artifacts() -> None:
    volumes = [
        desired_fleet(resolved(lab(gpu="any"), cards), {}).artifacts[0].volume for cards in ({}, {"voice": NVIDIA})
    ]
    assert len(set(volumes)) == 2


def test_a_gateway_offers_speech_and_waits_for_it() -> None:
    service = variables(lab(gateway={"fast": ["far"]}, default_voice="af_sky"), "litellm")
    entry = {"name": "tts", "model": "openai/kokoro", "api_base": "http://voice.incus:8880/v1", "voice": "af_sky"}
    assert service.variables["litellm_speech"] == [entry]
    assert "voice/kokoro" in service.needs


def test_the_name_of_an_alias_stays_the_alias() -> None:
    made = resolved(lab(gateway={"tts": ["far"]}))
    gateway = made.services[Address("door/litellm")]
    assert [speaker.name for speaker in speakers_for(made, gateway)] == ["tts-voice"]


def test_a_gateway_without_aliases_has_to_offer_speech() -> None:
    assert variables(lab(gateway={}), "litellm").variables["litellm_aliases"] == {}
    containers = {"door": {"services": {"litellm": {"master_key": Secret("litellm_key", "sk-x"), "aliases": {}}}}}
    spec = parse_spec({"name": "lab", "containers": containers}, CATALOG).spec
    assert spec
    assert [one.message for one in problems(resolved(spec))] == ["there is nothing to offer"]


def endpoint(spec: Spec) -> SpeechEndpoint:
    """Where clients have texts spoken."""
    found = speech_endpoint_of(resolved(spec), entrance_of(resolved(spec)))
    assert found
    return found


def test_clients_speak_through_the_gateway_else_with_the_service_itself() -> None:
    through = endpoint(lab(gateway={"fast": ["far"]}))
    assert (through.entrance.service, through.model, through.voice) == ("door/litellm", "tts", "af_heart")
    assert through.entrance.key_variable == "PROVISION_SECRET_LITELLM_KEY"
    assert endpoint(lab(gateway={})).entrance.service == "door/litellm"
    alone = endpoint(lab(default_voice="af_bella(2)+af_sky(1)"))
    assert (alone.entrance.service, alone.model, alone.voice) == ("voice/kokoro", "kokoro", "af_bella(2)+af_sky(1)")
    assert alone.entrance.key_variable == ""


SPEECH = Speech("http://box:4000/v1", "LITELLM_KEY", "tts", "af_sky")


def test_openai_is_told_the_voice() -> None:
    gateway = Gateway("lab", SPEECH.url, "LITELLM_KEY", {"fast": Served()}, SPEECH)
    assert client_text("openai", gateway).splitlines()[-3] == "# speech: model tts, voice af_sky"
    elsewhere = Gateway("lab", "http://box:8080/v1", "", {"fast": Served()}, SPEECH)
    assert "# speech: model tts, voice af_sky, at http://box:4000/v1" in client_text("openai", elsewhere)
    alone = Gateway("lab", SPEECH.url, "", {}, SPEECH)
    assert client_text("openai", alone).splitlines()[0] == "# speech: model tts, voice af_sky"


def test_open_webui_is_told_where_speech_is() -> None:
    gateway = Gateway("lab", SPEECH.url, "LITELLM_KEY", {"fast": Served()}, SPEECH)
    lines = client_text("openwebui", gateway).splitlines()
    assert lines[0] == "ENABLE_OPENAI_API=True"
    assert lines[3:] == [
        "AUDIO_TTS_ENGINE=openai",
        "AUDIO_TTS_OPENAI_API_BASE_URL=http://box:4000/v1",
        "AUDIO_TTS_OPENAI_API_KEY=${LITELLM_KEY}",
        "AUDIO_TTS_MODEL=tts",
        "AUDIO_TTS_VOICE=af_sky",
        "AUDIO_TTS_SPLIT_ON=punctuation",
        "ENABLE_PERSISTENT_CONFIG=False",
    ]
    alone = Gateway("lab", SPEECH.url, "", {}, SPEECH)
    assert client_text("openwebui", alone).splitlines()[0] == "AUDIO_TTS_ENGINE=openai"
