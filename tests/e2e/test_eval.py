"""eval: figures, tasks, gates and pages. usage: test_eval.py SLUICE MODEL"""
import json, math, pathlib, subprocess, sys, tempfile

sluice, model = sys.argv[1:3]
TEXT = """The lighthouse stood at the end of a long and narrow spit of land. In the evening its keeper climbed the stairs, lit the lamp and
wrote the hour into his book. Ships that came from the north saw it first, and those that came from the south saw it last. When the fog
was thick he rang a bell, once every two minutes, until the sun came through. Nobody had asked him to do so; he had read of it in a
letter that his father wrote, many years before, from another lighthouse on another coast. """


def run(*args, status=0):
    p = subprocess.run([sluice, "eval", model, "--kv-memory", "256MiB", *map(str, args)], capture_output=True, text=True)
    assert p.returncode == status, (args, p.returncode, p.stderr)
    return p


def judged(*args, status=0):
    out = run(*args, "--json", status=status).stdout
    assert out.count("\n") == 1
    return json.loads(out)


def fails(*args, words):
    p = run(*args, status=2)
    assert p.stdout == "" and words in p.stderr.splitlines()[-1], p.stderr


with tempfile.TemporaryDirectory() as folder:
    data, lines, page = (str(pathlib.Path(folder, name)) for name in ("text.txt", "tasks.jsonl", "report.html"))
    pathlib.Path(data).write_text(TEXT * 3)
    alone = judged("--data", data, "--context", 128)
    assert {"tokens", "ppl", "ppl_stderr", "kl_mean", "kl_stderr", "kl_p99", "top1_agreement", "accuracy", "gate"} <= set(alone)
    assert alone["kl_mean"] is None and alone["gate"] is None and alone["tokens"] % 63 == 0 and 1 < alone["ppl"] < 60
    # The first window again, by the prompt's log-probabilities that run prints.
    ids = json.loads(subprocess.run([sluice, "tokenize", model, "-p", TEXT * 3, "--bos", "--json"], capture_output=True, text=True, check=True).stdout)["ids"][:128]
    nll = json.loads(subprocess.run([sluice, "run", model, "--ids", ",".join(map(str, ids)), "-n", "1", "--logits", "--json"], capture_output=True, text=True, check=True).stdout)["nll"]
    first = judged("--data", data, "--context", 128, "--tokens", 63)
    assert abs(first["ppl"] / math.exp(sum(nll[64:]) / 63) - 1) < 1e-4, (first["ppl"], len(nll))
    print("ok perplexity is what run's log-probabilities give")

    same = judged("--data", data, "--context", 128, "--reference", model, "--report", page, "--gate", "kl=0.001,top1=1,ppl_ratio=1.0001")
    assert same["kl_mean"] < 1e-9 and same["top1_agreement"] == 1 and same["ppl_ratio"] == 1 and same["gate"]["passed"] and same["reference_ppl"] == same["ppl"] == alone["ppl"]
    text = pathlib.Path(page).read_text()
    assert text.startswith("<!doctype html>") and "<svg" in text and "http" not in text
    cache = judged("--data", data, "--context", 128, "--kv-type", "bf16", "--gate", "kl=0", status=1)
    assert 0 < cache["kl_mean"] < 0.05 and cache["reference_kv_type"] == "f16" and not cache["gate"]["passed"] and len(cache["worst"]) == 10
    print("ok references, gates and a page")

    beside = judged("--data", data, "--context", 128, "--kv-type", "bf16", "--versus", model, "--versus", model, "--report", page)
    assert len(beside["versus"]) == 2 and beside["kl_mean"] == cache["kl_mean"] > 0
    for v in beside["versus"]:
        assert v["kl_mean"] == beside["kl_mean"] and v["kl_difference"] == 0 == v["kl_difference_stderr"] and v["ppl_ratio"] == 1
    assert pathlib.Path(page).read_text().count("KL divergence of " + beside["versus"][0]["model"]) == 2
    print("ok others beside the model")

    with open(lines, "w") as f:
        f.write(json.dumps({"prompt": "One, two, three, four, five, six, seven,", "answer": "eight", "max_tokens": 4}) + "\n")
        f.write(json.dumps({"prompt": "One, two, three, four, five, six, seven,", "answer": "eight", "match": "exact", "max_tokens": 8}) + "\n")
        f.write(json.dumps({"prompt": "The capital of France is", "choices": [" Paris", " Berlin", " seventeen"], "answer": 0}) + "\n")
        f.write(json.dumps({"messages": [{"role": "user", "content": "What is the capital of Italy?"}], "choices": ["Madrid", "Rome"], "answer": "Rome"}) + "\n")
    tasks = judged("--data", lines, "--reference-kv-type", "f32")
    assert tasks["tasks"] == 4 and tasks["accuracy"] == 0.75 == tasks["reference_accuracy"], tasks
    print("ok tasks")

    needle = judged("--data", data, "--context", 128, "--needle", "--needle-context", 512, "--gate", "needle=0.6")
    assert len(needle["needle"]) == 5 and all(0 <= r["found"] <= r["of"] == 3 for r in needle["needle"])
    print("ok needles:", [r["found"] for r in needle["needle"]])

    fails("--data", data, "--gate", "kl=1", words="--reference")
    fails("--data", data, "--versus", model, words="--versus")
    fails("--data", data, "--gate", "lk=1", words="lk")
    fails("--data", folder + "/none.txt", words="none.txt")
    fails("--data", page, words=".jsonl")
    fails("--data", data, "--reference", data, words="text.txt")
    fails("--data", data, "--needle", "--needle-context", 20, words="--needle-context")
