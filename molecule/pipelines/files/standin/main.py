"""A server with the routes and habits of upstream's Pipelines server, written for tests.

Habits: no key is asked for where questions are answered, and where settings and filters are reached; a file that
cannot be loaded is moved away, and the rest is served; code can be sent and fetched; what is said at INFO is what
people ask; a stream ends without an empty line.
"""

import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import GeneratorType
from typing import Any

from config import LOG_LEVELS, PIPELINES_DIR
from fastapi import Depends, FastAPI, HTTPException, Request, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from schemas import OpenAIChatCompletionForm
from utils.pipelines.auth import get_current_user

FOLDER = Path(PIPELINES_DIR)
MODULES: dict[str, Any] = {}
NAMES: dict[str, str] = {}
logging.basicConfig(level=LOG_LEVELS[os.getenv("GLOBAL_LOG_LEVEL", "INFO").upper()])


async def load_module_from_path(module_name: str, module_path: Path) -> Any:
    """The pipeline of a file; one that cannot be loaded is moved away."""
    try:
        content = module_path.read_text()
        install(content)
        spec = importlib.util.spec_from_file_location(module_name, module_path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not hasattr(module, "Pipeline"):
            raise Exception("No Pipeline class found")
        return module.Pipeline()
    except Exception as error:
        print(f"Error loading module: {module_name}")
        failed = FOLDER / "failed"
        if not failed.exists():
            failed.mkdir(parents=True)
        module_path.rename(failed / f"{module_name}.py")
        print(error)
    return None


def install(content: str) -> None:
    """Have pip install what the head of a file asks for."""
    if not content.startswith('"""'):
        return
    for line in content[3 : content.find('"""', 3)].split("\n"):
        word, _, value = line.partition(":")
        if word.strip().lower() == "requirements" and value.strip():
            for package in value.split(","):
                subprocess.check_call([sys.executable, "-m", "pip", "install", package.strip()], timeout=600)


async def start() -> None:
    """Load every file."""
    for path in FOLDER.glob("*.py"):
        settings = FOLDER / path.stem / "valves.json"
        if not settings.parent.exists():
            settings.parent.mkdir(parents=True)
        if not settings.exists():
            settings.write_text("{}")
        pipeline = await load_module_from_path(path.stem, path)
        if pipeline is not None:
            if hasattr(pipeline, "valves"):
                said = {**pipeline.valves.model_dump(), **json.loads(settings.read_text())}
                pipeline.valves = pipeline.valves.__class__(**said)
            name = getattr(pipeline, "id", path.stem)
            MODULES[name], NAMES[name] = pipeline, path.stem
    for pipeline in MODULES.values():
        if hasattr(pipeline, "on_startup"):
            await pipeline.on_startup()


async def again() -> None:
    """Load all of it anew."""
    MODULES.clear()
    NAMES.clear()
    await start()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """From the loading of the files to the end."""
    await start()
    yield


app = FastAPI(docs_url="/docs", redoc_url=None, lifespan=lifespan)


def offered() -> dict[str, dict[str, Any]]:
    """What may be asked, by name; a type that is neither a manifold nor a filter is nothing."""
    found = {}
    for name, pipeline in MODULES.items():
        kind = getattr(pipeline, "type", None)
        if kind == "manifold":
            listed = pipeline.pipelines() if callable(pipeline.pipelines) else pipeline.pipelines
            for one in listed:
                found[f"{name}.{one['id']}"] = {"type": kind, "name": getattr(pipeline, "name", "") + one["name"]}
        elif kind in (None, "filter"):
            found[name] = {"type": kind or "pipe", "name": getattr(pipeline, "name", name)}
    return found


@app.get("/v1/models")
@app.get("/models")
async def models(_: str = Depends(get_current_user)) -> dict[str, Any]:
    """What may be asked."""
    data = []
    for name, one in offered().items():
        data.append({"id": name, "name": one["name"], "object": "model", "pipeline": {"type": one["type"]}})
    return {"data": data, "object": "list", "pipelines": True}


@app.get("/v1")
@app.get("/")
async def status() -> dict[str, bool]:
    """That it is there."""
    return {"status": True}


@app.get("/v1/pipelines")
@app.get("/pipelines")
async def pipelines(_: str = Depends(get_current_user)) -> dict[str, Any]:
    """What was loaded."""
    data = []
    for name, one in MODULES.items():
        kind = getattr(one, "type", "pipe")
        data.append({"id": name, "name": NAMES[name], "type": kind, "valves": hasattr(one, "valves")})
    return {"data": data}


@app.post("/v1/pipelines/upload")
@app.post("/pipelines/upload")
async def upload(file: UploadFile, _: str = Depends(get_current_user)) -> dict[str, Any]:
    """Run what was sent."""
    (FOLDER / str(file.filename)).write_bytes(await file.read())
    await again()
    return {"status": True}


@app.post("/v1/pipelines/reload")
@app.post("/pipelines/reload")
async def reload(_: str = Depends(get_current_user)) -> dict[str, Any]:
    """Load all of it anew."""
    await again()
    return {"message": "Pipelines reloaded successfully."}


@app.get("/v1/{name}/valves")
@app.get("/{name}/valves")
async def valves(name: str) -> Any:
    """The settings of a pipeline, to everybody."""
    if not hasattr(MODULES.get(name), "valves"):
        raise HTTPException(status_code=404, detail=f"Valves for {name} not found")
    return MODULES[name].valves


@app.post("/v1/{name}/valves/update")
@app.post("/{name}/valves/update")
async def update(name: str, request: Request) -> Any:
    """Other settings, from everybody."""
    if not hasattr(MODULES.get(name), "valves"):
        raise HTTPException(status_code=404, detail=f"Valves for {name} not found")
    MODULES[name].valves = MODULES[name].valves.__class__(**await request.json())
    (FOLDER / NAMES[name] / "valves.json").write_text(MODULES[name].valves.model_dump_json())
    return MODULES[name].valves


def part(model: str, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """One part of an answer."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    head = {"id": f"{model}-{uuid.uuid4()}", "object": "chat.completion.chunk", "created": int(time.time())}
    return {**head, "model": model, "choices": [choice]}


@app.post("/v1/chat/completions")
@app.post("/chat/completions")
async def chat(asked: OpenAIChatCompletionForm) -> Any:
    """An answer, to everybody."""
    known = offered().get(asked.model)
    if known is None or known["type"] == "filter":
        raise HTTPException(status_code=404, detail=f"Pipeline {asked.model} not found")
    own, _, inner = asked.model.partition(".") if known["type"] == "manifold" else (asked.model, "", asked.model)
    words = [message["content"] for message in asked.messages if message["role"] == "user"]

    def answer() -> Any:
        print(asked.model)
        body = asked.model_dump()
        said = MODULES[own].pipe(user_message=words[-1], model_id=inner, messages=asked.messages, body=body)
        logging.info(f"stream:{asked.stream}:{said}")
        return said

    def streamed() -> Iterator[str]:
        said = answer()
        for line in [said] if isinstance(said, str) else said:
            logging.info(f"stream_content:{line}")
            is_event = isinstance(line, str) and line.startswith("data:")
            yield f"{line}\n\n" if is_event else f"data: {json.dumps(part(asked.model, {'content': line}, None))}\n\n"
        if isinstance(said, str | GeneratorType):
            yield f"data: {json.dumps(part(asked.model, {}, 'stop'))}\n\n"
            yield "data: [DONE]"

    def whole() -> dict[str, Any]:
        said = answer()
        text = said if isinstance(said, str) else "".join(said)
        message = {"role": "assistant", "content": text}
        return {"model": asked.model, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    if asked.stream:
        return StreamingResponse(streamed(), media_type="text/event-stream")
    return await run_in_threadpool(whole)
