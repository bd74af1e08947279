"""Writes audio in the formats that clients ask for, piece by piece."""

from __future__ import annotations

from io import BytesIO

import av
import numpy as np

CODECS = {"wav": "pcm_s16le", "mp3": "mp3", "opus": "libopus", "flac": "flac", "aac": "aac"}
RATE, BITS_PER_S = 24000, 128_000


class Writer:
    """One answer's audio."""

    def __init__(self, kind: str) -> None:
        self._kind, self._at = kind, 0
        if kind == "pcm":
            return
        self._buffer = BytesIO()
        options = {"write_xing": "0"} if kind == "mp3" else {}
        self._container = av.open(self._buffer, "w", format="adts" if kind == "aac" else kind, options=options)
        self._stream = self._container.add_stream(CODECS[kind], rate=RATE, layout="mono")
        if kind in ("mp3", "aac", "opus"):
            self._stream.bit_rate = BITS_PER_S

    def write(self, audio: np.ndarray) -> bytes:
        """The bytes that are ready once this was added."""
        samples = np.clip(audio * 32767, -32768, 32767).astype(np.int16)
        if self._kind == "pcm":
            return samples.tobytes()
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts = RATE, self._at
        self._at += frame.samples
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        ready = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return ready

    def finish(self) -> bytes:
        """The rest."""
        if self._kind == "pcm":
            return b""
        for packet in self._stream.encode(None):
            self._container.mux(packet)
        if self._kind == "opus":
            self._container.close()
        return self._buffer.getvalue()
