#!/usr/bin/env python3
"""Holds `sluice run --ids ... --logits --json` against golden files of exact float32 logits.

usage: check_golden.py SLUICE MODEL.gguf GOLDEN.json [--exact] [-- FLAGS...]
--exact: plain float kernels and a float32 cache: every one of the top 20 logits within 0.01 and every generated token whose
gap exceeds 0.02 equal. Otherwise the fast path: mean |nll - golden| at most 0.10 a prompt and 0.08 over all, generated tokens
equal up to the first whose gap is at most 1.0, and each greedy continuation of a prompt position with a gap above 1.0 likely.
"""
import json, subprocess, sys

sluice, model, golden = sys.argv[1:4]
exact = "--exact" in sys.argv
flags = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
if exact:
    flags = ["--isa", "reference", "--kv-type", "f32"] + flags
bad, total, count = 0, 0.0, 0

def fail(*what):
    global bad
    bad += 1
    print("FAIL", *what)

def run(ids, n):
    out = subprocess.run([sluice, "run", model, "--ids", ",".join(map(str, ids)), "--temperature", "0", "-n", str(n),
                          "--ignore-eos", "--logits", "--json", *flags], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"sluice failed: {out.stderr}")
    return json.loads(out.stdout)

for name, g in json.load(open(golden)).items():
    r = run(g["ids"], 16)
    if len(r["nll"]) != len(g["nll"]):
        fail(name, "nll has", len(r["nll"]), "entries, not", len(g["nll"]))
    diff = [abs(a - b) for a, b in zip(r["nll"], g["nll"])]
    mean = sum(diff) / max(1, len(diff))
    total += sum(diff); count += len(diff)
    got = dict(map(tuple, r["top"]))
    logit_error = 0.0
    if exact:
        for token, logit in g["last_top"]:
            if token in got:
                logit_error = max(logit_error, abs(got[token] - logit))
                if abs(got[token] - logit) > 0.01:
                    fail(name, "logit of", token, got[token], "wanted", logit)
            elif logit > g["last_top"][-1][1] + 0.02:  # near the edge of the 20 the order may differ
                fail(name, "token", token, "is not among the 20 largest")
    for i, (token, gap) in enumerate(zip(g["gen"], g["gen_gap"])):
        if gap <= (0.02 if exact else 1.0):
            break  # a near tie: what follows may differ
        if r["ids"][i] != token:
            fail(name, "generated token", i, r["ids"][i], "wanted", token, "gap", gap)
            break
    if mean > (0.001 if exact else 0.10):
        fail(name, "mean |nll - golden|", mean)
    if not exact and name != "long":
        # greedy: the argmax after each prompt token, by running the prompt's prefixes that have a clear winner.
        picks = [i for i, gap in enumerate(g["greedy_gap"]) if gap > 1.0]
        for i in picks[:: max(1, len(picks) // 6)]:
            if run(g["ids"][: i + 1], 1)["ids"] != [g["greedy"][i]]:
                fail(name, "greedy token after position", i)
    print(f"{name}: {len(g['ids'])} tokens, mean |nll - golden| {mean:.5f}, worst {max(diff, default=0):.4f}" + (f", worst logit {logit_error:.5f}" if exact else ""))
mean = total / max(1, count)
print(f"over all: {mean:.5f}")
if mean > (0.001 if exact else 0.08):
    fail("over all", mean)
sys.exit(1 if bad else 0)
