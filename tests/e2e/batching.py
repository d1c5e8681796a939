"""Batch files for end-to-end tests, and what must be true of their results."""
import json, random


def requests(n, max_tokens=12):
    """n lines: greedy completions of different lengths, every tenth of them wrong."""
    lines = []
    for i in range(n):
        body = {"model": "smollm2", "prompt": f"Number {i} is", "max_tokens": 4 + i % max_tokens, "temperature": 0, "ignore_eos": True}
        if i % 10 == 9:
            body["temperature"] = 7
        lines.append(json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": "/v1/completions", "body": body}))
    return "\n".join(lines) + "\n"


def check(n, output, errors):
    """Every request has one result, in the right file. Returns the texts by custom_id."""
    texts, failed = {}, set()
    for line in output.splitlines():
        r = json.loads(line)
        assert r["error"] is None and r["response"]["status_code"] == 200 and r["id"].startswith("batch_req_"), r
        assert r["custom_id"] not in texts, "twice: " + r["custom_id"]
        texts[r["custom_id"]] = r["response"]["body"]["choices"][0]["text"]
    for line in errors.splitlines():
        r = json.loads(line)
        assert r["response"]["status_code"] == 400 and r["response"]["body"]["error"]["param"] == "temperature", r
        assert r["custom_id"] not in failed, "twice: " + r["custom_id"]
        failed.add(r["custom_id"])
    assert failed == {f"request-{i}" for i in range(n) if i % 10 == 9}, failed
    assert set(texts) == {f"request-{i}" for i in range(n)} - failed, len(texts)
    return texts


def split(results):
    """One file with all results -> (output, errors)."""
    lines = results.splitlines()
    good = [line for line in lines if (json.loads(line)["response"] or {}).get("status_code") == 200]
    return "\n".join(good), "\n".join(line for line in lines if line not in set(good))


random_moment = random.Random().uniform
