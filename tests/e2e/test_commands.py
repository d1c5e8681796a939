"""The commands other than serve: JSON keys, exit statuses, one-line errors. usage: test_commands.py SLUICE MODEL"""
import json, os, struct, subprocess, sys, tempfile

sluice, model = sys.argv[1:3]


def run(*args, status=0, env=None, stdin=""):
    p = subprocess.run([sluice, *map(str, args)], capture_output=True, text=True, input=stdin, env={**os.environ, **(env or {})})
    assert p.returncode == status, (args, p.returncode, p.stderr)
    return p


def as_json(*args, **kw):
    out = run(*args, "--json", **kw).stdout
    assert out.count("\n") == 1, "more than one line on standard output"
    return json.loads(out)


def fails(*args, words, status=2):
    p = run(*args, status=status)
    assert p.stdout == "" and p.stderr.count("\n") == 1 and words in p.stderr, (args, p.stderr)


r = as_json("run", model, "-p", "The capital of France is", "--temperature", 0, "-n", 8, "--logits")
assert {"text", "ids", "prompt_ids", "finish_reason", "prompt_tokens", "completion_tokens", "ttft_s", "decode_tok_s", "top", "nll"} <= set(r)
assert len(r["top"]) == 20 and r["top"][0][0] == r["ids"][0] and len(r["nll"]) == r["prompt_tokens"] - 1
assert as_json("run", model, "--ids", ",".join(map(str, r["prompt_ids"])), "--temperature", 0, "-n", 8)["ids"] == r["ids"]
a, b = (as_json("run", model, "-p", "Once", "--seed", 5, "-n", 12)["text"] for _ in range(2))
assert a == b
assert as_json("run", model, "-f", "-", "-n", 2, stdin="hello")["prompt_tokens"] == 1
assert as_json("run", model, "-p", "", "-n", 2)["prompt_tokens"] == 1

t = as_json("tokenize", model, "-p", "Hello, wörld \U0001F600")
assert as_json("detokenize", model, "--ids", ",".join(map(str, t["ids"])))["text"] == "Hello, wörld \U0001F600"
assert len(t["ids"]) == len(t["pieces"])
assert len(as_json("tokenize", model, "-p", "<|im_end|>")["ids"]) > 1 == len(as_json("tokenize", model, "-p", "<|im_end|>", "--special")["ids"])

i = as_json("inspect", model)
assert i["architecture"] == "llama" and 130e6 < i["parameters"] < 170e6 and 4 < i["bits_per_weight"] < 7 and all(k != "none" for k in i["kernels"].values())
with tempfile.TemporaryDirectory() as d:  # random weights: the file that --save writes is the model that was saved
    ids = as_json("run", "--random", "llama-tiny", "--weight-type", "q8_0", "--save", f"{d}/r.gguf", "-p", "abc", "--temperature", 0, "-n", 8, "--ignore-eos")["ids"]
    assert ids == as_json("run", f"{d}/r.gguf", "-p", "abc", "--temperature", 0, "-n", 8, "--ignore-eos")["ids"] and len(ids) == 8
fails("run", "--random", "llama-9b", "-p", "x", words="llama-8b")
fails("run", "-p", "x", words="--random")
assert as_json("plan", "--random", "llama-8b", "--memory", "140GiB")["weights_bytes"] > 14e9
p = as_json("plan", model, "--memory", "4GiB", "--context", 2048)
assert p["fits"] and p["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 2 and p["max_tokens"] >= p["max_sequences"] * 2048
assert sum(t["bytes"] for t in p["terms"]) == p["fixed_bytes"] and {"weights", "embeddings", "activations", "process"} <= {t["name"] for t in p["terms"]}
assert p["kv_bytes_per_token_by_type"]["f32"] == 2 * p["kv_bytes_per_token"] and p["speeds"][-1]["sequences"] == p["max_sequences"]
slow = as_json("plan", model, "--memory", "4GiB", "--bandwidth", 10)["speeds"][0]["tok_s"]
assert abs(as_json("plan", model, "--memory", "4GiB", "--bandwidth", 20)["speeds"][0]["tok_s"] / slow - 2) < 1e-6
drafted = as_json("plan", model, "--memory", "4GiB", "--context", 2048, "--draft", model)
assert drafted["fixed_bytes"] > 1.5 * p["fixed_bytes"] - 30e6 and drafted["max_sequences"] < p["max_sequences"]
small = as_json("plan", model, "--memory", "4GiB", "--context", 2048, "--kv-type", "int8/fp8")
assert small["kv_bytes_per_token_parts"] == {"keys": 30 * 3 * 64, "values": 30 * 3 * 64, "scales": 30 * 3 * 2 * 2} and small["kv_type"] == "int8/fp8"
assert small["kv_bytes_per_token"] == sum(small["kv_bytes_per_token_parts"].values()) == small["kv_bytes_per_token_by_type"]["int8/fp8"] <= 0.52 * p["kv_bytes_per_token"]
assert small["max_sequences"] >= 1.9 * p["max_sequences"]
shape = as_json("plan", "--shape", "layers=80,kv_heads=8,head_dim=128,params=70e9", "--memory", "300GiB", "--hardware", "h200")
assert shape["kv_bytes_per_token"] == 2 * 80 * 8 * 128 * 2 and 135e9 < shape["fixed_bytes"] < 145e9 and shape["fits"]
assert 20 < shape["speeds"][0]["tok_s"] < 35
fails("plan", "--shape", "layers=80,params=70e9", words="kv_heads")
fails("plan", "--shape", "layers=80000,kv_heads=8,head_dim=128,params=70e9", words="layers must be")
fails("plan", model, "--shape", "layers=8,kv_heads=8,head_dim=128,params=7e9", words="--shape")
assert run("plan", model, "--memory", "120MiB", "--context", 8192, status=1)
m = as_json("bench", "machine")["machine"]
assert m["read_gb_s"] > 0.5 and m["int8_gop_s"] > 1
d = as_json("bench", "decode", model, "-b", "1,2", "-n", 4, "--repeats", 1)["rows"]
assert [x["batch"] for x in d] == [1, 2] and all(x["tok_s"] > 0 and x["pct_of_bandwidth"] > 0 for x in d)
m = as_json("bench", "mixed", model, "-b", 2, "-c", 32, "--prompt-tokens", 64, "--requests", 2, "--repeats", 1)["rows"]
assert [x["chunks"] for x in m] == ["bounded", "unbounded"] and all(x["tok_s"] > 0 and x["prompt_tok_s"] > 0 and x["gap_p99_ms"] >= x["gap_p50_ms"] for x in m)
s = as_json("bench", "scheduler", "--sequences", 64, "--steps", 200)["rows"]
assert [x["name"] for x in s] == ["decode", "mixed"] and s[0]["tokens_per_step"] == 64 and all(0 < x["p50_us"] <= x["p99_us"] for x in s)
with tempfile.TemporaryDirectory() as folder:
    prompts = folder + "/prompts.jsonl"
    open(prompts, "w").write('{"prompt": "one two three four one two three four one two"}\n')
    s = as_json("bench", "speculate", model, "--draft", "ngram", "--data", prompts, "-k", "1,3", "-n", 12)
    assert [r["k"] for r in s["rows"]] == [1, 3] and s["differing"] == 0 and s["advice"]
    s = as_json("bench", "speculate", model, "--draft", model, "--data", prompts, "-k", "2", "-n", 12)
    assert s["rows"][0]["alpha"] == 1 and s["c"] > 0.5 and s["differing"] == 0
    fails("bench", "speculate", model, "--draft", "ngram", "--data", prompts, "-k", "1..99", words="--drafts")
    fails("bench", "speculate", model, "--draft", "ngram", "--data", folder + "/none", words="cannot be read")
plain = as_json("run", model, "-p", "one two three one two three", "-n", 24, "--temperature", 0.7, "--seed", 3)["ids"]
for speculate in (["--speculate", "ngram"], ["--draft", model, "--speculate", "draft"], ["--draft", model]):
    assert as_json("run", model, "-p", "one two three one two three", "-n", 24, "--temperature", 0.7, "--seed", 3, *speculate)["ids"] == plain
fails("run", model, "-p", "x", "--speculate", "draft", words="--draft")
fails("run", model, "-p", "x", "--speculate", "ngram", "--verify", "hope", words="--verify")
assert as_json("run", model, "-p", "one two three one two three", "-n", 24, "--temperature", 0, "--speculate", "ngram", "--verify", "rejection")["ids"] == \
    as_json("run", model, "-p", "one two three one two three", "-n", 24, "--temperature", 0)["ids"]
fails("bench", "scheduler", "--sequences", 0, words="--sequences")
assert as_json("bench", "prefill", model, "-c", 64, "--repeats", 1)["rows"][0]["tok_s"] > 0

fails("run", "/nowhere.gguf", "-p", "x", words="/nowhere.gguf")
fails("run", model, words="-p")
fails("run", model, "-p", "x", "--temperature", 9, words="--temperature")
fails("run", model, "--ids", "1,99999", words="99999")
for kv in "fp8", "int8", "int4", "k8v4":
    assert len(as_json("run", model, "-p", "The capital of France is", "--temperature", 0, "-n", 4, "--ignore-eos", "--kv-type", kv)["ids"]) == 4
fails("run", model, "-p", "x", "--kv-type", "int3", words="--kv-type")
fails("plan", model, "--kv-type", "int8/int3", words="int8/int3")
fails("run", model, "-p", "x", "--isa", "mmx", words="--isa")
fails("run", model, "-p", "x", "--device", "tpu", words="--device")
fails("run", model, "-p", "x", "--block-tokens", 17, words="--block-tokens")
fails("frobnicate", words="frobnicate")
fails("bench", "serve", "http://127.0.0.1:1", words="127.0.0.1", status=3)

with tempfile.TemporaryDirectory() as folder:
    bad = os.path.join(folder, "bad.gguf")
    good = open(model, "rb").read(60000)
    for content, words in [(b"", "empty"), (b"MZ" * 50, "magic"), (good, "ends inside"),
                           (b"GGUF" + struct.pack("<IQQ", 3, 10**9, 0) + bytes(100), "tensor_count"),
                           (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "general.architecture")]:
        open(bad, "wb").write(content)
        fails("run", bad, "-p", "x", words=words)
    config = os.path.join(folder, "sluice.toml")
    open(config, "w").write("kv-type = \"f32\"\n")
    assert as_json("plan", model, "--memory", "4GiB", "--config", config)["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 4
    assert as_json("plan", model, "--memory", "4GiB", env={"SLUICE_KV_TYPE": "f32"})["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 4
    assert as_json("plan", model, "--memory", "4GiB", "--kv-type", "bf16", env={"SLUICE_KV_TYPE": "f32"})["kv_bytes_per_token"] == 2 * 30 * 3 * 64 * 2
    assert as_json("plan", "smollm2-135m-instruct-q4_1", "--memory", "4GiB", env={"SLUICE_HOME": os.path.dirname(os.path.abspath(model))})["fits"]
print("ok commands")
