# SPDX-License-Identifier: Apache-2.0
"""Just enough of safetensors for tests: a file as {name: (dtype, shape, bytes)}, read and written."""
import json
import struct


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def floats(tensor):
    """The values of a BF16 or F32 tensor."""
    dtype, _, data = tensor
    if dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    halves = struct.unpack(f"<{len(data) // 2}H", data)
    return list(struct.unpack(f"<{len(halves)}f", b"".join(struct.pack("<I", half << 16) for half in halves)))


def f32(shape, values):
    return ("F32", shape, struct.pack(f"<{len(values)}f", *values))


def to_bf16(value):
    """The bits of the nearest bf16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16
