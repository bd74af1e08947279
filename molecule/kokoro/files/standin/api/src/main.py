"""The server: upstream's addresses and habits, as far as the role and its tests meet them."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import StreamingResponse
from fastapi.staticfiles import StaticFiles
from loguru import logger
from pydantic import BaseModel

from .core.config import settings
from .inference.kokoro_v1 import KokoroV1
from .services import text, voices
from .services.writer import Writer

logger.remove()
logger.add(sys.stdout, level=os.environ.get("API_LOG_LEVEL", "DEBUG"))

MODELS = ("tts-1", "tts-1-hd", "kokoro")
backend = KokoroV1()


class Speech(BaseModel):
    """A request."""

    model: str = "kokoro"
    input: str
    voice: str = "af_heart"
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: float = 1.0
    stream: bool = True


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Load and warm up: until then nobody is answered."""
    os.makedirs(settings.temp_file_dir, exist_ok=True)  # noqa: PTH103
    logger.info("Loading TTS model and voice packs...")
    try:
        backend.load_model(Path(settings.model_dir) / "v1_0/kokoro-v1_0.pth")
        voice = settings.default_voice
        async for _audio in backend.generate("Warm up.", voice, voices.file_of(voice), 1.0):
            pass
    except Exception as error:
        logger.error(f"Failed to initialize model: {error}")
        raise
    logger.info(f"Model warmed up on {settings.get_device()}: kokoro_v1, {len(voices.names())} voice packs loaded")
    yield


app = FastAPI(lifespan=lifespan)
if settings.cors_enabled:
    app.add_middleware(CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"])


@app.get("/health")
async def health() -> dict[str, str]:
    """There is no other answer."""
    return {"status": "healthy"}


@app.get("/v1/audio/voices")
async def list_voices() -> dict[str, Any]:
    """All of them."""
    return {"voices": [{"id": one, "name": one} for one in voices.names()]}


@app.post("/v1/audio/speech")
async def speech(asked: Speech, client: Request) -> Response:
    """Audio, in bursts or at once."""
    if asked.model not in MODELS:
        raise HTTPException(400, {"error": "invalid_model", "message": f"Unsupported model: {asked.model}"})
    try:
        voice = voices.checked(asked.voice)
    except ValueError as error:
        raise HTTPException(400, {"error": "validation_error", "message": str(error)}) from error
    kind, headers = f"audio/{asked.response_format}", {"X-Accel-Buffering": "no"}
    if asked.stream:
        return StreamingResponse(pieces(asked, voice, client), media_type=kind, headers=headers)
    whole = b"".join([one async for one in pieces(asked, voice, client)])
    if not whole:
        raise HTTPException(400, {"error": "validation_error", "message": "Input contains no speakable text"})
    return Response(whole, media_type=kind)


def compute_for(words: str) -> None:
    """Where the text says "block 60", compute so many seconds and answer nobody, as upstream does for a long text."""
    found = re.search(r"\bblock (\d{1,3})\b", words)
    end = time.monotonic() + (int(found[1]) if found else 0)
    while time.monotonic() < end:
        sum(range(10_000))


async def pieces(asked: Speech, voice: str, client: Request) -> AsyncIterator[bytes]:
    """The answer. What goes wrong while it is made is logged, and the answer ends: upstream does so."""
    compute_for(asked.input)
    writer, made = Writer(asked.response_format), False
    for number, chunk in enumerate(text.chunks(asked.input), 1):
        logger.info(f"Yielding chunk {number}: '{chunk[:50]}{'...' if len(chunk) > 50 else ''}'")
        try:
            async for audio in backend.generate(chunk, voice, voices.file_of(voice), asked.speed):
                if await client.is_disconnected():
                    logger.info("Client disconnected, stopping audio generation")
                    return
                made = True
                yield writer.write(audio)
        except Exception as error:  # noqa: BLE001
            logger.error(f"Failed to process tokens: {error}")
    if made:
        yield writer.finish()


if settings.enable_web_player:
    app.mount("/web", StaticFiles(directory=Path(settings.web_player_path).resolve(), html=True))
