#!/usr/bin/env python3
"""Writes tests/data/quant_goldens.txt: what PyPI `gguf` encodes and decodes, for tests/quant/goldens_test.cpp.

usage: make_quant_goldens.py OUT      needs PyPI gguf and numpy
Lines: "encode TYPE INPUT BYTES" and "decode TYPE BYTES OUTPUT", all hexadecimal, floats as their little-endian bytes.
"""
import sys
import numpy as np
from gguf import GGMLQuantizationType as Q, GGML_QUANT_SIZES
from gguf.quants import quantize, dequantize

rng = np.random.Generator(np.random.Philox(7))


def inputs():
    """Blocks of 32 that try an encoder: plain ones, ties, zeros of both signs, denormals, one value alone, the largest."""
    plain = (rng.standard_normal((6, 32)) * [[1e-6], [1e-3], [0.05], [1], [300], [30000]]).clip(-60000, 60000)
    ties = np.concatenate([np.arange(-8, 8) + 0.5, np.arange(-8, 8)])
    ties15 = np.concatenate([np.arange(0, 16), np.arange(0, 15) + 0.5, [15]])
    ties127 = np.concatenate([np.arange(96, 127) + 0.5, [127]])
    alone = np.zeros(32)
    alone[17] = -3.25
    equal = np.full(32, 0.75)
    opposite = np.where(np.arange(32) % 2, 2.5, -2.5)
    zeros = np.zeros(32)
    minus = np.full(32, -0.0)
    small = rng.standard_normal(32) * 1e-9      # its scale is 0 in f16
    subnormal = rng.standard_normal(32) * 4e-6  # its scale is subnormal in f16
    special = [ties, ties15, ties127, ties / 1024, alone, equal, opposite, zeros, minus, small, subnormal]
    return np.concatenate([plain, np.array(special)]).astype(np.float32)


with open(sys.argv[1], "w") as out:
    blocks = inputs()
    for q in (Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.BF16):
        for block in blocks:
            out.write(f"encode {q.name.lower()} {block.tobytes().hex()} {quantize(block, q).tobytes().hex()}\n")
    for q in (Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS):
        elements, size = GGML_QUANT_SIZES[q]
        scales = {Q.Q2_K: (80, 82), Q.Q3_K: (108,), Q.Q6_K: (208,), Q.Q4_1: (0, 2), Q.Q5_1: (0, 2), Q.Q4_K: (0, 2), Q.Q5_K: (0, 2)}.get(q, (0,))
        for _ in range(64 // elements or 1):
            raw = rng.integers(0, 256, size, dtype=np.uint8)
            for at in scales:
                raw[at:at + 2] = np.float16(rng.standard_normal() * 0.1).reshape(1).view(np.uint8)
            out.write(f"decode {q.name.lower()} {raw.tobytes().hex()} {dequantize(raw, q).astype(np.float32).tobytes().hex()}\n")
