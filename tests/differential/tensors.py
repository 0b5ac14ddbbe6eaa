"""Safetensors files of float64 arrays by name."""
import json
import struct

import numpy as np


def save(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        value = np.ascontiguousarray(value, "<f8")
        header[name] = {"dtype": "F64", "shape": value.shape, "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(content[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]],
                                "<f8").reshape(e["shape"]) for name, e in header.items()}
