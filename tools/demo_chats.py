#!/usr/bin/env python3
"""Sends eight chats at once to an OpenAI server and shows them as they stream. Standard library alone.

usage: demo_chats.py URL
"""
import json, shutil, sys, threading, time, urllib.request

QUESTIONS = ["What is the capital of Italy?", "Name three primary colours.", "Why is the sky blue?", "Write a haiku about rain.",
             "What is 7 times 8?", "Give me a name for a black cat.", "Who wrote Romeo and Juliet?", "How do plants make food?"]

url = sys.argv[1]
texts, tokens, failures = [""] * 8, [0] * 8, []
lock, begin = threading.Lock(), time.time()
live = sys.stdout.isatty()
width = shutil.get_terminal_size((100, 20)).columns


def chat(i):
    body = {"messages": [{"role": "user", "content": QUESTIONS[i]}], "max_tokens": 96, "temperature": 0.7, "seed": i,
            "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        for line in urllib.request.urlopen(request, timeout=120):
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            with lock:
                if event.get("usage"):
                    tokens[i] = event["usage"]["completion_tokens"]
                for choice in event["choices"]:
                    texts[i] += choice["delta"].get("content") or ""
    except Exception as e:  # shown below; the demo then fails
        failures.append(f"{QUESTIONS[i]}: {e}")


def show(final):
    for i in range(8):
        text = texts[i].replace("\n", " ")
        if final:
            print(f"\033[1m{QUESTIONS[i]}\033[0m" if live else f"> {QUESTIONS[i]}")
            print(f"  {text}\n")
        else:
            head = f"{QUESTIONS[i]} "
            tail = text[-max(10, width - len(head) - 2):]
            print(f"\033[K{head}\033[36m{tail}\033[0m")


threads = [threading.Thread(target=chat, args=(i,)) for i in range(8)]
for t in threads:
    t.start()
if live:
    while any(t.is_alive() for t in threads):
        with lock:
            show(False)
        time.sleep(0.1)
        print("\033[8A", end="")
    print("\033[J", end="")
for t in threads:
    t.join()
seconds = time.time() - begin
show(True)
print(f"{sum(tokens)} tokens for 8 chats in {seconds:.2f} s: {sum(tokens) / seconds:.1f} tokens/s")
for f in failures:
    print("failed:", f, file=sys.stderr)
sys.exit(1 if failures or not all(tokens) else 0)
