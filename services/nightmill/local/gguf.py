"""Writes a GGUF file, llama.cpp's format of models: a header, named values, named tensors.

Little-endian, version 3: magic, version, number of tensors, number of values; the values; name, shape, type and place
of each tensor; then their bytes, each beginning at a multiple of 32. Shapes are written innermost dimension first.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (read 2026-11-30).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

import numpy as np
from numpy.typing import NDArray

#: a flag, an unsigned 32-bit number, a 32-bit float, a text, texts, signed 32-bit numbers
Value = bool | int | float | str | Sequence[str] | NDArray[np.int32]
Tensor = NDArray[np.float32] | NDArray[np.float16]

_MAGIC, _VERSION = b"GGUF", 3
_ALIGNMENT = 32
_U32, _I32, _F32, _FLAG, _TEXT, _ARRAY = 4, 5, 6, 7, 8, 9
_TENSOR_TYPES = {np.dtype("<f4"): 0, np.dtype("<f2"): 1}


def write_gguf(file: IO[bytes], values: Mapping[str, Value], tensors: Mapping[str, Tensor]) -> None:
    """Write a whole model to a file that is open for writing. Tensors are little-endian 16- or 32-bit floats."""
    head = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(values))]
    head += [_text(name) + _value(value) for name, value in values.items()]
    place = 0
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head.append(_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        head.append(struct.pack("<IQ", _TENSOR_TYPES[tensor.dtype], place))
        place += _aligned(tensor.nbytes)
    _write_aligned(file, b"".join(head))
    for tensor in tensors.values():
        _write_aligned(file, tensor.tobytes())


def _write_aligned(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.write(bytes(_aligned(len(content)) - len(content)))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", _FLAG, value)
        case int():
            return struct.pack("<II", _U32, value)
        case float():
            return struct.pack("<If", _F32, value)
        case str():
            return struct.pack("<I", _TEXT) + _text(value)
        case np.ndarray():
            return struct.pack("<IIQ", _ARRAY, _I32, len(value)) + value.astype("<i4").tobytes()
        case _:
            return _texts(value)


def _texts(texts: Iterable[str]) -> bytes:
    parts = [_text(text) for text in texts]
    return struct.pack("<IIQ", _ARRAY, _TEXT, len(parts)) + b"".join(parts)
