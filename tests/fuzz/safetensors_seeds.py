"""Good inputs for fuzz_safetensors to start from. usage: safetensors_seeds.py FOLDER"""
import json, os, struct, sys

out = sys.argv[1]


def file_of(tensors):
    header, at, data = {}, 0, b""
    for name, (dtype, shape, width) in tensors.items():
        size = width
        for d in shape:
            size *= d
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
        data += bytes(i & 255 for i in range(size))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(name, data):
    with open(os.path.join(out, name), "wb") as f:
        f.write(data)


gptq = {"m.qweight": ("I32", [4, 8], 4), "m.qzeros": ("I32", [1, 1], 4), "m.scales": ("F16", [1, 8], 2), "m.g_idx": ("I32", [32], 4)}
awq = {"m.qweight": ("I32", [32, 1], 4), "m.qzeros": ("I32", [1, 1], 4), "m.scales": ("F16", [1, 8], 2)}
packed = {"p.weight_packed": ("I32", [2, 8], 4), "p.weight_scale": ("BF16", [2, 2], 2), "p.weight_shape": ("I64", [2], 8)}
fp8 = {"e.weight": ("F8_E4M3", [2, 32], 1), "e.weight_scale": ("F32", [1], 4)}
int8 = {"i.weight": ("I8", [2, 32], 1), "i.weight_scale": ("F32", [2, 1], 4)}
for name, tensors in {"gptq": gptq, "awq": awq, "packed": packed, "fp8": fp8, "int8": int8}.items():
    write(name, b"\x02\x02" + file_of(tensors))
    write(name + "_alone", b"\x03" + file_of(tensors))
write("tokenizer", b"\x00" + json.dumps({"added_tokens": [{"id": 3, "content": "<s>", "special": True}], "model": {
    "type": "BPE", "byte_fallback": True, "vocab": {"a": 0, "b": 1, "ab": 2, "<0x41>": 5}, "merges": ["a b"]}}).encode())
write("config", b"\x01" + json.dumps({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64,
      "vocab_size": 300, "sliding_window": 32, "layer_types": ["full_attention"], "rope_scaling": {"type": "llama3"}}).encode())
