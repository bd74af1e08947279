"""Stands in for tabbyAPI at e632af4: the same names of modules and functions where they matter, and the same habits.

Facts that it repeats, each seen in upstream's source: the port is asked for by ``is_port_in_use``, and a taken one
means the next one (main.py); with both taken it ends with 0; keys are logged at every start and read anew when their
file changes (common/auth.py); the server listens only after the model is loaded; ``/health`` is 200 without a model.
Written from scratch, for tests.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from common.auth import load_auth_keys
from common.logger import setup_logger
from common.networking import is_port_in_use
from common.tabby_config import config
from loguru import logger


async def entrypoint_async() -> None:
    """Choose the port, load the model, serve."""
    from common import model
    from endpoints.server import start_api

    host, port = config["network"]["host"], config["network"]["port"]
    if is_port_in_use(port):
        if is_port_in_use(port + 1):
            logger.error(f"Ports {port} and {port + 1} are in use by different services.\nExiting.")
            return
        logger.warning(f"Port {port} is currently in use. Switching to {port + 1}.")
        port += 1
    if config["model"]["model_name"]:
        model.load_model()
    await load_auth_keys()
    await start_api(host, port)


def entrypoint() -> None:
    """Set up and run."""
    setup_logger()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config.load()
    asyncio.run(entrypoint_async())


if __name__ == "__main__":
    entrypoint()
