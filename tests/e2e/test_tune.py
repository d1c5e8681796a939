"""tune measures, advises and writes a configuration that serve takes. usage: test_tune.py SLUICE MODEL"""
import json, pathlib, subprocess, sys, tempfile
from serving import Server

sluice, model = sys.argv[1:3]
with tempfile.TemporaryDirectory() as folder:
    data, config, page = (str(pathlib.Path(folder, name)) for name in ("data.jsonl", "sluice.toml", "report.html"))
    with open(data, "w") as f:
        f.write(json.dumps({"prompt": "Once upon a time", "max_tokens": 16}) + "\n")
        f.write(json.dumps({"messages": [{"role": "user", "content": "What is the capital of Italy?"}], "max_tokens": 8}) + "\n")
    flags = ["--data", data, "--write", config, "--report", page, "--kv-memory", "64MiB", "--budget-s", "20", "--json"]
    for objective, more in (("throughput", ["--candidate", model]), ("latency", ["--rate", "20"])):
        done = subprocess.run([sluice, "tune", model, "--objective", objective, *flags, *more], capture_output=True, text=True, check=True)
        r = json.loads(done.stdout)
        assert [s["name"] for s in r["steps"]] == ["pools", "cache and batching", "quantisation", "chunk and step time", "speculation"]
        measured = next(s for s in r["steps"] if s["name"] == "cache and batching")
        assert measured["before"]["output_tok_s"] > 0 and measured["after"]["ttft_ms"]["p99"] > 0
        assert r["gain"] > 0.99 and r["end"]["output_tok_s"] > 0
        assert pathlib.Path(page).read_text().startswith("<!doctype html>")
        if objective == "throughput":
            candidate = next(s for s in r["steps"] if s["name"] == "quantisation")["candidates"][0]
            assert candidate["setting"] == "--model " + model and ("time was up" in candidate["why"] or "KL divergence" in candidate["quality"]), candidate
        server = Server("--config", config)
        assert server.complete("Once", max_tokens=4)["usage"]["completion_tokens"] == 4
        server.stop()
        print("ok tune for", objective, "-", r["result"])
    for wrong, words in ((["--data", data, "--candidate", data], "magic"), (["--data", data, "--budget-s", "0"], "--budget-s"), (["--data", folder + "/none.txt"], "none.txt")):
        p = subprocess.run([sluice, "tune", model, *wrong, "--kv-memory", "64MiB", "--write", config, "--report", page], capture_output=True, text=True)
        assert p.returncode == 2 and p.stdout == "" and words in p.stderr.splitlines()[-1], p.stderr
