"""Converts all-MiniLM-L6-v2 from safetensors to GGUF: `python -m nightmill.local.conversion PACKAGE TARGET`.

Its matrices become 16-bit floats; norms, biases and positions stay as they are. The file appears by a rename, so a
conversion that was cut off is never taken for a whole one. Safetensors is a length, a JSON header and raw bytes
(https://huggingface.co/docs/safetensors); how llama.cpp names the settings and tensors of such a model stands in its
`gguf-py/gguf/constants.py` (https://github.com/ggml-org/llama.cpp; both read 2026-11-30).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nightmill.local.embeddings_model import note_digest
from nightmill.local.gguf import Tensor, Value, write_gguf

_MEAN_POOLING = 1
_MOSTLY_F16 = 1
_ORDINARY, _CONTROL = 1, 3
_WORD_START = "\u2581"
_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
#: of each layer
_LAYER_NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
#: read in 32 bits by llama.cpp
_IN_FULL = ("position_embd", "token_types")


def convert(package: Path, target: Path) -> None:
    """Write the model of the package's folder as GGUF. The target appears whole, or not at all."""
    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    vocabulary = (package / "vocab.txt").read_text(encoding="utf-8").splitlines()
    special = json.loads((package / "special_tokens_map.json").read_text(encoding="utf-8"))
    values = _settings(config) | _tokenizer(vocabulary, special)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix="convert-", delete=False) as scratch:
        try:
            write_gguf(scratch, values, dict(_tensors(package / "model.safetensors")))
            scratch.flush()
            os.fsync(scratch.fileno())
            os.replace(scratch.name, target)
        except BaseException:
            os.unlink(scratch.name)
            raise


def _settings(config: dict[str, Any]) -> dict[str, Value]:
    return {
        "general.architecture": "bert",
        "general.name": "all-MiniLM-L6-v2",
        "general.license": "apache-2.0",
        "general.file_type": _MOSTLY_F16,
        "bert.block_count": config["num_hidden_layers"],
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": _MEAN_POOLING,
        "tokenizer.ggml.token_type_count": config["type_vocab_size"],
    }


def _tokenizer(vocabulary: list[str], special: dict[str, str]) -> dict[str, Value]:
    """A piece that begins a word is marked in GGUF, while in the vocabulary one that goes on with it is."""
    control = set(special.values())
    spelt = [
        piece if piece in control else piece[2:] if piece.startswith("##") else _WORD_START + piece
        for piece in vocabulary
    ]
    kinds = np.array([_CONTROL if piece in control else _ORDINARY for piece in vocabulary], np.int32)
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": spelt,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": vocabulary.index(special["unk_token"]),
        "tokenizer.ggml.seperator_token_id": vocabulary.index(special["sep_token"]),  # so it is spelt there
        "tokenizer.ggml.padding_token_id": vocabulary.index(special["pad_token"]),
        "tokenizer.ggml.cls_token_id": vocabulary.index(special["cls_token"]),
        "tokenizer.ggml.mask_token_id": vocabulary.index(special["mask_token"]),
    }


def _tensors(safetensors: Path) -> Iterator[tuple[str, Tensor]]:
    content = np.memmap(safetensors, np.uint8, "r")
    length = int.from_bytes(content[:8].tobytes(), "little")
    header = json.loads(content[8 : 8 + length].tobytes())
    for name, told in header.items():
        renamed = _renamed(name)
        if renamed is None:
            continue
        begin, end = (8 + length + offset for offset in told["data_offsets"])
        tensor = content[begin:end].view("<f4").reshape(told["shape"])
        in_full = tensor.ndim == 1 or renamed.startswith(_IN_FULL)
        yield renamed, tensor if in_full else tensor.astype("<f2")


def _renamed(name: str) -> str | None:
    """What llama.cpp calls a tensor; None for what makes no vectors (positions that are counted, the pooler)."""
    part, _, kind = name.rpartition(".")
    if part in _NAMES:
        return f"{_NAMES[part]}.{kind}"
    if not part.startswith("encoder.layer."):
        return None
    number, _, part = part.removeprefix("encoder.layer.").partition(".")
    return f"blk.{number}.{_LAYER_NAMES[part]}.{kind}"


def main(package: str, target: str) -> int:
    """Convert the model of the folder `package`; returns 2, with one line on stderr, when TARGET can not be written."""
    try:
        convert(Path(package), Path(target))
        note_digest(Path(target))
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
