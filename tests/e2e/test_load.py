"""Many requests on a small cache: all are answered, texts do not depend on load, 429 comes when the queue is full, SIGTERM
drains. usage: test_load.py SLUICE MODEL"""
import signal, time
from concurrent.futures import ThreadPoolExecutor
from serving import Server

PROMPTS = [f"Story number {i}: once upon a time in a town called {'x' * (i % 7)}" for i in range(40)]
KV_64_BLOCKS = str(64 * 16 * 2 * 30 * 3 * 64 * 2)  # blocks x tokens x (K, V) x layers x heads x size x bytes


def text(server, i, **fields):
    reply = server.complete(PROMPTS[i], max_tokens=24, temperature=0.9, seed=i, ignore_eos=True, logprobs=1, **fields)
    c = reply["choices"][0]
    return c["text"], c["logprobs"]["token_logprobs"]


alone_server = Server("--no-prefix-cache", "--max-sequences", "1")
alone = [text(alone_server, i) for i in range(40)]
alone_server.stop()
print("ok alone")

crowded = Server("--kv-memory", KV_64_BLOCKS, "--max-sequences", "64", "--max-step-tokens", "96", "--objective", "throughput")
with ThreadPoolExecutor(200) as pool:
    together = list(pool.map(lambda i: text(crowded, i % 40), range(200)))
for i, reply in enumerate(together):
    assert reply == alone[i % 40], (i, reply[0], alone[i % 40][0])
assert crowded.metric("sluice_preemptions_total") > 0
assert crowded.metric("sluice_kv_max_waste_tokens_per_sequence") <= 16
print("ok 200 requests on 64 blocks:", int(crowded.metric("sluice_preemptions_total")), "preemptions")

status, _, reply = crowded.post("/v1/completions", {"prompt": "word " * 1500, "max_tokens": 16})
assert status == 400 and "1024" in reply["error"]["message"], reply
with ThreadPoolExecutor(8) as pool:  # as large as the pool, beside small ones
    large = pool.submit(lambda: crowded.complete("word " * 900, max_tokens=50, ignore_eos=True))
    small = [pool.submit(text, crowded, i) for i in range(6)]
    assert large.result()["usage"]["completion_tokens"] == 50
    for i, s in enumerate(small):
        assert s.result() == alone[i]
crowded.wait_idle()
crowded.stop()
print("ok large beside small")

busy = Server("--max-queue", "2", "--max-sequences", "1", "--api-key", "secret")
auth = {"Authorization": "Bearer secret"}
assert busy.request("GET", "/v1/models")[0] == 401
assert busy.request("GET", "/health")[0] == 200
with ThreadPoolExecutor(12) as pool:
    ask = lambda _: busy.post("/v1/completions", {"prompt": "x", "max_tokens": 200, "ignore_eos": True}, headers=auth)
    replies = list(pool.map(ask, range(12)))
refused = [r for r in replies if r[0] == 429]
assert refused and all(1 <= int(r[1]["Retry-After"]) <= 120 for r in refused)
assert all(r[0] in (200, 429) for r in replies) and len(refused) < 12
print("ok", len(refused), "of 12 refused with 429")

with ThreadPoolExecutor(2) as pool:
    running = pool.submit(lambda: busy.post("/v1/completions", {"prompt": "x", "max_tokens": 150, "ignore_eos": True}, headers=auth))
    time.sleep(0.3)
    busy.process.send_signal(signal.SIGTERM)
    status, _, reply = running.result()
    assert status == 200 and reply["usage"]["completion_tokens"] == 150
    assert busy.process.wait(20) == 0
print("ok SIGTERM drains")
