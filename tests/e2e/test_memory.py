"""What `plan` says a server takes is what it takes under load, within 3 %, for every model there is. usage: test_memory.py SLUICE MODEL"""
import json, pathlib, re, subprocess, sys
from serving import Server

sluice, model = sys.argv[1:3]
FLAGS = ["--kv-memory", "96MiB", "--context", "2048"]


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) * 1024


def load(url, requests, prompt, output):
    flags = ["--requests", requests, "--concurrency", requests, "--prompt-tokens", prompt, "--output-tokens", output]
    subprocess.run([sluice, "bench", "serve", url, *map(str, flags)], check=True, stdout=subprocess.DEVNULL)


def check(path):
    planned = json.loads(subprocess.run([sluice, "plan", path, *FLAGS, "--bandwidth", "50", "--json"], check=True, capture_output=True).stdout)["serve"]["total_bytes"]
    sys.argv[2] = path
    server = Server(*FLAGS)
    load(server.url, 64, 8, 40)    # every row of logits
    load(server.url, 8, 1200, 8)   # steps of full size, every block of the cache
    taken = resident(server.process.pid)
    server.stop()
    print(f"{pathlib.Path(path).name}: {planned / 1e6:.1f} MB planned, {taken / 1e6:.1f} MB taken, {taken / planned - 1:+.1%}")
    assert abs(taken / planned - 1) <= 0.03


folder = pathlib.Path(model).parent
for path in [pathlib.Path(model), folder / "gemma-3-270m-q4_k_m.gguf", folder / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"]:
    if path.exists():
        check(str(path))
print("ok memory")
