"""Makes weights of the 82M architecture from random numbers, and voices: noise as long as speech. ``model.py FOLDER``.

FOLDER gets ``kokoro-v1_0.pth``, its ``config.json`` and ``voices/NAME.pt``, the same each time. Runs with the role's
venv.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from kokoro import KModel

SYMBOLS = (
    ';:,.!?—…"()“” ʣʥʦʨᵝꭧAIOQSTWYᵊabcdefhijklmnopqrstuvwxyzɑɐɒæβɔɕçɖðʤəɚɛɜɟɡɥɨɪʝɯɰŋɳɲɴøɸθœɹɾɻʁɽʂʃʈʧʊʋʌɣɤχʎʒʔˈˌːʰʲ↓→↗↘ᵻ'  # noqa: RUF001  # sounds
)
CONFIG = {
    "istftnet": {
        "upsample_kernel_sizes": [20, 12],
        "upsample_rates": [10, 6],
        "gen_istft_hop_size": 5,
        "gen_istft_n_fft": 20,
        "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_initial_channel": 512,
    },
    "dim_in": 64,
    "dropout": 0.2,
    "hidden_dim": 512,
    "max_conv_dim": 512,
    "max_dur": 50,
    "multispeaker": True,
    "n_layer": 3,
    "n_mels": 80,
    "n_token": 178,
    "style_dim": 128,
    "text_encoder_kernel_size": 5,
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
        "dropout": 0.1,
    },
    "vocab": {symbol: number for number, symbol in enumerate(SYMBOLS, 1)},
}
VOICES = ("af_heart", "af_bella", "af_sky", "bm_fable")
PARTS = ("bert", "bert_encoder", "predictor", "text_encoder", "decoder")
LONGEST_TEXT = 510
FRAMES_A_SYMBOL = 2
"""Of 25 ms: a fast reader, so that tests are as well."""


def main(folder: Path) -> None:
    """Make all of it."""
    (folder / "voices").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, ensure_ascii=False), encoding="utf-8")
    torch.manual_seed(82)
    with tempfile.NamedTemporaryFile() as nothing:
        torch.save({}, nothing.name)
        model = KModel(repo_id="hexgrad/Kokoro-82M", config=CONFIG, model=nothing.name)
    share = torch.tensor(FRAMES_A_SYMBOL / CONFIG["max_dur"])
    linear = model.predictor.duration_proj.linear_layer
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.constant_(linear.bias, torch.log(share / (1 - share)).item())
    torch.save({part: getattr(model, part).state_dict() for part in PARTS}, folder / "kokoro-v1_0.pth")
    for name in VOICES:
        torch.save(torch.randn(LONGEST_TEXT, 1, 256) / 10, folder / "voices" / f"{name}.pt")
    sys.stdout.write(f"{sum(one.numel() for one in model.parameters())} parameters\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
