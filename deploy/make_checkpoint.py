#!/usr/bin/env python3
"""Writes a checkpoint in the safetensors format, with the shapes of a small decoder of open weights:
grouped queries, gated feed-forward layers, tied embeddings. Its numbers are chance, the same for the
same seed: what a network would say with them is nothing, what a transfer does with them is the same.

    deploy/make_checkpoint.py FILE [--megabytes 200] [--seed 7]
"""

import argparse
import json
import os
import random
import struct
import sys

HIDDEN = 768
HEADS = 12
KEY_VALUE_HEADS = 4
FEED_FORWARD = 2048
HEAD = HIDDEN // HEADS
LARGEST_VOCABULARY = 32000
BLOCK = 1 << 20


def layer(index):
    """(name, shape) of one layer's tensors."""
    prefix = f"model.layers.{index}."
    return [
        (prefix + "input_layernorm.weight", [HIDDEN]),
        (prefix + "mlp.down_proj.weight", [HIDDEN, FEED_FORWARD]),
        (prefix + "mlp.gate_proj.weight", [FEED_FORWARD, HIDDEN]),
        (prefix + "mlp.up_proj.weight", [FEED_FORWARD, HIDDEN]),
        (prefix + "post_attention_layernorm.weight", [HIDDEN]),
        (prefix + "self_attn.k_proj.weight", [KEY_VALUE_HEADS * HEAD, HIDDEN]),
        (prefix + "self_attn.o_proj.weight", [HIDDEN, HIDDEN]),
        (prefix + "self_attn.q_proj.weight", [HIDDEN, HIDDEN]),
        (prefix + "self_attn.v_proj.weight", [KEY_VALUE_HEADS * HEAD, HIDDEN]),
    ]


def count_bytes(shape):
    count = 2  # of a bf16
    for extent in shape:
        count *= extent
    return count


def tensors_of(target_bytes):
    """As many layers as fit, and a vocabulary not larger than a fifth of it all."""
    vocabulary = min(LARGEST_VOCABULARY, max(target_bytes // 5 // (2 * HIDDEN), 64))
    tensors = [("model.embed_tokens.weight", [vocabulary, HIDDEN]), ("model.norm.weight", [HIDDEN])]
    size = sum(count_bytes(shape) for _, shape in tensors)
    layer_bytes = sum(count_bytes(shape) for _, shape in layer(0))
    # The nearest number, and at least one.
    for index in range(max(1, (target_bytes - size + layer_bytes // 2) // layer_bytes)):
        tensors += layer(index)
    return sorted(tensors)


def header_of(tensors):
    entries = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in tensors:
        end = offset + count_bytes(shape)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    # The tensors begin at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def weights(chance, size):
    """bf16 numbers of either sign from 2^-7 up to 2^-3: random bytes, with exponents that weights have."""
    block = bytearray(chance.randbytes(size))
    # The high byte is the sign and the upper seven bits of the exponent.
    block[1::2] = block[1::2].translate(HIGH_BYTES)
    return block


HIGH_BYTES = bytes((byte & 0x80) | (0x3C + (byte & 1)) for byte in range(256))
ONES = b"\x80\x3f"


def write(path, tensors, seed):
    chance = random.Random(seed)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(header_of(tensors))
            for name, shape in tensors:
                left = count_bytes(shape)
                if "norm" in name:
                    file.write(ONES * (left // 2))
                    continue
                while left > 0:
                    block = weights(chance, min(BLOCK, left))
                    file.write(block)
                    left -= len(block)
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n", 1)[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--megabytes", type=float, default=200, help="about how large (default: 200)")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    tensors = tensors_of(int(arguments.megabytes * 1e6))
    try:
        write(arguments.file, tensors, arguments.seed)
    except OSError as error:
        sys.exit(f"make_checkpoint: {arguments.file}: {error.strerror}")
    size = os.path.getsize(arguments.file)
    print(f"{arguments.file}: {len(tensors)} tensors, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
