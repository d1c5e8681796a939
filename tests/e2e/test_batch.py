"""Files and batches through the official client; a server and a `sluice batch` killed at random places lose nothing and do
nothing twice. usage: test_batch.py SLUICE MODEL"""
import io, json, os, subprocess, sys, tempfile, time
import openai
from batching import check, random_moment, requests, split
from serving import Server

folder = tempfile.TemporaryDirectory()
store = os.path.join(folder.name, "jobs.db")
N = 120


def connect(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)


def wait_for(client, id, *states, timeout=300):
    end = time.time() + timeout
    while time.time() < end:
        batch = client.batches.retrieve(id)
        if batch.status in states:
            return batch
        time.sleep(0.05)
    raise AssertionError(f"still {batch}")


def upload(client, text):
    return client.files.create(file=("in.jsonl", io.BytesIO(text.encode())), purpose="batch")


def start(client, text, **fields):
    return client.batches.create(input_file_id=upload(client, text).id, endpoint="/v1/completions", completion_window="24h", **fields)


def contents(client, batch):
    return [client.files.content(id).text if id else "" for id in (batch.output_file_id, batch.error_file_id)]


def files():
    text = requests(3)
    made = upload(client, text)
    assert made.bytes == len(text) and made.filename == "in.jsonl" and made.purpose == "batch" and made.status == "processed"
    assert client.files.retrieve(made.id).id == made.id
    assert client.files.content(made.id).text == text
    more = [upload(client, "x").id for _ in range(4)]
    listed = [f.id for f in client.files.list(limit=2)]  # follows the pages
    assert listed[:5] == more[::-1] + [made.id], listed
    for id in more + [made.id]:
        assert client.files.delete(id).deleted
    assert not list(client.files.list())
    big = "z" * 40_000_000  # beyond the limit of other bodies
    assert client.files.content(upload(client, big).id).text == big
    client.files.delete(client.files.list().data[0].id)
    for call, kind in [(lambda: client.files.retrieve(made.id), openai.NotFoundError),
                       (lambda: client.files.create(file=b"x", purpose="vision"), openai.BadRequestError)]:
        try:
            call()
        except kind:
            pass
        else:
            raise AssertionError("no error")


def batch():
    made = start(client, requests(30), metadata={"night": "1"})
    assert made.status == "validating" and made.metadata == {"night": "1"}
    done = wait_for(client, made.id, "completed")
    assert done.request_counts.total == 30 and done.request_counts.completed == 27 and done.request_counts.failed == 3
    assert done.usage.output_tokens == sum(4 + i % 12 for i in range(30) if i % 10 != 9)
    check(30, *contents(client, done))
    chat = json.dumps({"custom_id": "c", "method": "POST", "url": "/v1/chat/completions",
                       "body": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}})
    made = client.batches.create(input_file_id=upload(client, chat).id, endpoint="/v1/chat/completions", completion_window="24h")
    reply = json.loads(contents(client, wait_for(client, made.id, "completed"))[0])
    assert reply["response"]["body"]["object"] == "chat.completion"
    bad = wait_for(client, start(client, "nothing").id, "failed")
    assert bad.errors.data[0].code == "invalid_json_line" and bad.errors.data[0].line == 1
    assert [b.id for b in client.batches.list(limit=1)] == [bad.id, made.id, done.id]


def cancel():
    body = {"prompt": "Once", "max_tokens": 2000, "ignore_eos": True}
    text = "\n".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) for i in range(100))
    made = start(client, text)
    wait_for(client, made.id, "in_progress")
    time.sleep(0.5)
    begin = time.time()
    assert client.completions.create(model="smollm2", prompt="One, two,", max_tokens=8).usage.completion_tokens == 8  # goes first
    print("  beside a batch, 8 tokens took", round(time.time() - begin, 2), "s")
    assert client.batches.cancel(made.id).status == "cancelling"
    done = wait_for(client, made.id, "cancelled")
    errors = [json.loads(line) for line in contents(client, done)[1].splitlines()]
    assert len(errors) + done.request_counts.completed == 100
    assert all(e["error"]["code"] == "batch_cancelled" and e["response"] is None for e in errors)
    server.wait_idle()


def killed():
    """The server is killed at random moments until the batch is done: texts are those of one that was left alone."""
    global server, client
    alone = check(N, *contents(client, wait_for(client, start(client, requests(N)).id, "completed")))
    made, kills = start(client, requests(N)), 0
    while True:
        time.sleep(random_moment(0.02, 0.3 + 0.05 * kills))  # longer lives in the end, should the machine be slow
        server.process.kill()
        server.process.wait()
        kills += 1
        server = Server("--store", store, "--batch-concurrency", "4")  # few at once, so that some end in every life
        client = connect(server)
        status = client.batches.retrieve(made.id)
        counts = status.request_counts
        assert status.status in ("validating", "in_progress", "finalizing", "completed"), status
        assert counts.completed + counts.failed <= N
        if status.status == "completed":
            break
        assert kills < 200
    assert check(N, *contents(client, status)) == alone
    assert status.request_counts.completed == N - N // 10 and status.request_counts.failed == N // 10
    print("  killed", kills, "times")


def offline():
    """`sluice batch`, killed at random moments and started again."""
    source, target = (os.path.join(folder.name, name) for name in ("in.jsonl", "out.jsonl"))
    with open(source, "w") as f:
        f.write(requests(N))
    command = [*sys.argv[1:2], "batch", source, target, sys.argv[2], "--name", "smollm2", "--json"]
    for kills in range(200):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=random_moment(0.15, 0.5 + 0.1 * kills))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    assert process.returncode == 0, err
    report = json.loads(out)
    assert report["requests"] == N and report["ok"] == N - N // 10 and report["failed"] == N // 10 and "output_tok_s" in report, report
    with open(target) as f:
        check(N, *split(f.read()))
    print("  killed", kills, "times")
    with open(target, "a") as f:
        f.write('{"custom_id":"request-0')  # as a machine that lost its power might leave it
    assert subprocess.run(command, capture_output=True).returncode == 0
    with open(target) as f:
        check(N, *split(f.read()))
    for arguments, words in [(["/nowhere", target], "/nowhere"), ([target, target], "line 1"), ([source, source], "line 1")]:
        p = subprocess.run([sys.argv[1], "batch", *arguments, sys.argv[2]], capture_output=True, text=True)
        assert p.returncode == 2 and p.stderr.strip().count("\n") == 0 and words in p.stderr, p.stderr


server = Server("--store", store)
client = connect(server)
for test in (files, batch, cancel, killed, offline):
    test()
    print("ok", test.__name__)
server.wait_idle()
server.stop()
folder.cleanup()
