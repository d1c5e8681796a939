"""Folders of safetensors end to end: what `sluice quantize` writes opens in PyPI's reader, dequantises by the layouts' public
descriptions (written here anew, in numpy) to what the source's weights round to, runs, and agrees with the source."""
import json, os, subprocess, sys, tempfile
import numpy as np
from safetensors import safe_open

binary, model = sys.argv[1:3]
temporary = tempfile.TemporaryDirectory()  # for as long as this runs
folder = temporary.name


def sluice(*args):
    p = subprocess.run([binary, *args, "--json"], capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def quantize(kind, source=model):
    out = os.path.join(folder, kind)
    report = sluice("quantize", source, out, "--type", kind, "--requantize")
    assert report["method"] == "rtn" and report["out_bytes"] == sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out)), report
    return out, report


def load(path, name):
    with safe_open(os.path.join(path, "model.safetensors"), framework="np") as f:
        return f.get_tensor(name)


def raw(path, name):
    """A tensor's bytes, for types that numpy lacks."""
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        entry = json.loads(f.read(n))[name]
        f.seek(8 + n + entry["data_offsets"][0])
        return np.frombuffer(f.read(entry["data_offsets"][1] - entry["data_offsets"][0]), np.uint8).reshape(entry["shape"]), entry["dtype"]


def unpack_stream(words, bits, count):
    """[W, N] words down the first axis -> [count, N] fields, least significant bits first."""
    bytes_ = np.ascontiguousarray(words.astype("<u4").T).view(np.uint8)
    stream = np.unpackbits(bytes_, axis=1, bitorder="little")[:, : count * bits].reshape(words.shape[1], count, bits)
    return (stream * (1 << np.arange(bits))).sum(axis=2).T


def gptq(path, module, config):
    bits = config["bits"]
    qweight, qzeros, scales, g_idx = (load(path, f"{module}.{part}") for part in ("qweight", "qzeros", "scales", "g_idx"))
    k, n = len(g_idx), scales.shape[1]
    codes = unpack_stream(qweight, bits, k)
    zeros = unpack_stream(np.ascontiguousarray(qzeros.T), bits, n).T
    if config["checkpoint_format"] == "gptq":
        zeros = (zeros + 1) & ((1 << bits) - 1)
    return (scales.astype(np.float32)[g_idx] * (codes.astype(np.int32) - zeros.astype(np.int32)[g_idx])).T


def awq(path, module, config):
    qweight, qzeros, scales = (load(path, f"{module}.{part}") for part in ("qweight", "qzeros", "scales"))
    place = [0, 4, 1, 5, 2, 6, 3, 7]  # of the eight outputs in a word
    spread = lambda words: np.stack([words.astype("<u4") >> (4 * p) & 15 for p in place], axis=-1).reshape(words.shape[0], -1).astype(np.int32)
    group = np.arange(qweight.shape[0]) // config["group_size"]
    return (scales.astype(np.float32)[group] * (spread(qweight) - spread(qzeros)[group])).T


def e4m3(codes):
    sign, exponent, mantissa = np.where(codes & 128, -1.0, 1.0), (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float64)
    return sign * np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def fp8(path, module, config):
    codes, dtype = raw(path, f"{module}.weight")
    assert dtype == "F8_E4M3"
    if config["quant_method"] == "fp8":
        rows, cols = config["weight_block_size"]
        scale = load(path, f"{module}.weight_scale_inv").repeat(rows, 0)[: codes.shape[0]].repeat(cols, 1)[:, : codes.shape[1]]
    else:
        scale = load(path, f"{module}.weight_scale")
    return e4m3(codes) * scale


source, report = quantize("f32")
names = [f"model.layers.{i}.{m}" for i in (0, 29) for m in ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.down_proj")]
prompt = ("run", "-p", "The capital of France is", "--max-tokens", "1", "--temperature", "0", "--logits")
want = sluice(prompt[0], source, *prompt[1:])
assert "Paris" in want["text"]

def plain(x, bits, zeros):
    """Groups along the last axis rounded to nearest with the scale that just spans each."""
    if zeros:
        low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
        scale = (high - low) / (2**bits - 1) + 1e-9
        zero = np.round(-low / scale)
        return (np.clip(np.round(x / scale) + zero, 0, 2**bits - 1) - zero) * scale
    half = 2 ** (bits - 1)
    scale = np.maximum(-x.min(-1, keepdims=True) / half, x.max(-1, keepdims=True) / (half - 0.5)) + 1e-9
    return np.clip(np.round(x / scale), -half, half - 1) * scale


for kind, dequantise in (("gptq4", gptq), ("gptq3", gptq), ("gptq8", gptq), ("awq4", awq), ("fp8", fp8), ("fp8_block", fp8)):
    path, report = quantize(kind, source)
    config = json.load(open(os.path.join(path, "config.json")))["quantization_config"]
    for name in names:
        before, after = load(source, name + ".weight"), dequantise(path, name, config)
        assert before.shape == after.shape, (kind, name)
        if "group_size" in config:  # the search finds no worse than the scale that spans a group, in the error that it counts
            x = before.reshape(before.shape[0], -1, config["group_size"]).astype(np.float64)
            counts = 1 + x**2 / (x**2).mean(-1, keepdims=True)
            error = lambda y: (counts * (y.reshape(x.shape) - x) ** 2).sum()
            assert error(after) <= error(plain(x, config["bits"], kind == "awq4")), (kind, name)
        else:
            worst = (np.abs(before - after) / (np.abs(before) / 15 + np.abs(before).max() / 448 / 500)).max()
            assert worst <= 1, (kind, name, worst)
    got = sluice(prompt[0], path, *prompt[1:])
    drift = np.abs(np.array(got["nll"]) - np.array(want["nll"])).max()
    assert drift < {"gptq3": 6, "gptq4": 2.5, "awq4": 2.5, "fp8": 0.7, "fp8_block": 0.7, "gptq8": 0.2}[kind], (kind, drift)
    print(f"{kind}: {report['bits_per_weight']:.2f} bits a weight, nll off by up to {drift:.3f}, '{got['text']}'")

kinds = {t["type"] for t in sluice("inspect", os.path.join(folder, "gptq4"))["tensors"]}
assert "int4_64" in kinds, kinds
p = subprocess.run([binary, "quantize", model, os.path.join(folder, "x.gguf"), "--type", "gptq4"], capture_output=True, text=True)
assert p.returncode == 2 and ".gguf" in p.stderr, p.stderr
print("ok")
