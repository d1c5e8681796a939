"""Two pools over the same weights: requests go by class, alias and key; texts are the same in each; a flooded batch pool refuses
while the interactive one answers; a queue has its limits. usage: test_pools.py SLUICE MODEL"""
import os, re, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from serving import Server

def by_pool(server, name):
    text = server.request("GET", "/metrics", headers={"Authorization": "Bearer day"})[2]
    text = text if isinstance(text, str) else text.decode()
    return {m[1]: float(m[2]) for m in re.finditer(re.escape(name) + r'\{[^}]*pool="(\w+)"[^}]*\} (\S+)', text)}

def ask(server, **fields):
    body = {"prompt": "The capital of Italy is", "max_tokens": 12, "temperature": 0, **fields}
    headers = {"Authorization": "Bearer " + fields.pop("key", "day")}
    body.pop("key", None)
    return server.post("/v1/completions", body, headers=headers)

kinds = {"in turns": ("interactive:alias=fast,weight=2", "batch:alias=bulk,max_sequences=4,kv=64MiB")}
if len(os.sched_getaffinity(0)) >= 2:
    kinds["on cores of their own"] = ("interactive:alias=fast,threads=1", "batch:alias=bulk,max_sequences=4,kv=64MiB,threads=1")
for kind, pools in kinds.items():
    server = Server("--pool", pools[0], "--pool", pools[1], "--max-queue", "8", "--api-key", "day", "--api-key", "night,class=batch")
    texts = [ask(server, **f)[2]["choices"][0]["text"] for f in ({}, {"service_tier": "flex"}, {"model": "bulk"}, {"model": "fast"}, {"key": "night"})]
    assert len(set(texts)) == 1, texts
    assert by_pool(server, "sluice_generated_tokens_total") == {"interactive": 24.0, "batch": 36.0}
    assert {m["id"] for m in server.request("GET", "/v1/models", headers={"Authorization": "Bearer day"})[2]["data"]} == {"smollm2", "fast", "bulk"}

    # A flood of batch work: refused beyond its queue; the other pool never is, and keeps its pace.
    def timed():
        begin = time.time()
        status, _, reply = ask(server, max_tokens=40, ignore_eos=True)
        assert status == 200, reply
        return time.time() - begin
    alone = min(timed() for _ in range(3))
    stop = threading.Event()
    refused = []
    def flood(i):
        while not stop.is_set():
            status, headers, _ = ask(server, service_tier="flex", max_tokens=100, ignore_eos=True)
            if status == 429:
                refused.append(int(headers["Retry-After"]))
                time.sleep(0.05)
            else:
                assert status == 200, status
    with ThreadPoolExecutor(24) as crowd:
        running = [crowd.submit(flood, i) for i in range(24)]
        time.sleep(1)
        beside = sorted(timed() for _ in range(9))[4]
        stop.set()
        for r in running:
            r.result()
    assert refused and all(1 <= s <= 120 for s in refused), refused
    assert by_pool(server, "sluice_requests_rejected_total")["interactive"] == 0
    assert by_pool(server, "sluice_requests_rejected_total")["batch"] > 0
    server.stop()
    print(f"ok {kind}: 40 tokens in {alone * 1000:.0f} ms alone, {beside * 1000:.0f} ms beside a flood; {len(refused)} refused")

server = Server("--max-sequences", "1", "--queue-timeout", "0.3", "--max-queue-tokens", "400")
with ThreadPoolExecutor(8) as crowd:
    long = crowd.submit(lambda: server.complete("x", max_tokens=1000, ignore_eos=True))
    while server.metric("sluice_requests_running") == 0:
        time.sleep(0.01)
    late = crowd.submit(lambda: server.post("/v1/completions", {"prompt": "y", "max_tokens": 4}))
    status, headers, reply = late.result()
    assert status == 429 and "300 ms" in reply["error"]["message"] and "Retry-After" in headers, (status, reply)
    first = crowd.submit(lambda: server.post("/v1/completions", {"prompt": "word " * 300, "max_tokens": 4}))
    while server.metric("sluice_requests_waiting") == 0:
        time.sleep(0.005)
    status, _, reply = server.post("/v1/completions", {"prompt": "word " * 300, "max_tokens": 4})
    assert status == 429 and "400" in reply["error"]["message"], (status, reply)
    assert first.result()[0] == 429
    assert server.metric("sluice_requests_expired_total") == 2
    long.result()
reply = server.complete("x", max_tokens=8, ignore_eos=True, ttft_ms=60000, tpot_ms=0.001)
text = server.request("GET", "/metrics")[2].decode()
assert re.search(r'sluice_targets_total\{[^}]*met="false"\} 1\n', text) and re.search(r'sluice_targets_missed_total\{[^}]*target="tpot"\} 1\n', text)
server.stop()
print("ok limits of the queue, targets")

server = Server("--pool", "a:kv_type=int8", "--pool", "b")
assert by_pool(server, "sluice_kv_key_bytes_per_token") == {"a": 30 * 3 * 64, "b": 30 * 3 * 64 * 2}
assert by_pool(server, "sluice_kv_scale_bytes_per_token") == {"a": 30 * 3 * 2 * 2, "b": 0}
server.stop()
print("ok a cache type of its own")

for flags, word in ((["--pool", "a:threads=999"], "threads"), (["--pool", "a:kv_type=int3"], "int3"), (["--pool", "a:threads=200,b"], "threads"), (["--api-key", "k,pool=none"], "no pool"), (["--pool", "a:size=3"], "size")):

    done = subprocess.run([sys.argv[1], "serve", sys.argv[2], "--port", "0", *flags], capture_output=True, text=True, timeout=60, env={"SLUICE_STORE": "none", **os.environ})
    assert done.returncode == 2 and word in done.stderr and len(done.stderr.strip().splitlines()) == 1, (done.returncode, done.stderr)
print("ok errors")
