"""Two servers share one batch in PostgreSQL; one after the other is killed at random moments. Run under tests/with_postgres.
usage: test_batch_postgres.py SLUICE MODEL"""
import io, os, time
import openai
from batching import check, random_moment, requests
from serving import Server

N = 150
url = os.environ["SLUICE_TEST_POSTGRES"]


def start():
    server = Server("--store", url, "--batch-concurrency", "8", "--threads", "1")
    return server, openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)


servers = [start(), start()]
client = servers[0][1]
file = client.files.create(file=("in.jsonl", io.BytesIO(requests(N).encode())), purpose="batch")
made = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
shares = [0, 0]
for round in range(6):
    time.sleep(random_moment(0.3, 0.9))
    at = round % 2
    shares[at] += servers[at][0].metric("sluice_generated_tokens_total") if round < 2 else 0
    servers[at][0].process.kill()
    servers[at][0].process.wait()
    servers[at] = start()
end = time.time() + 300
while (batch := servers[1][1].batches.retrieve(made.id)).status != "completed":
    assert time.time() < end, batch
    time.sleep(0.2)
texts = [servers[i][1].files.content(id).text for i, id in enumerate((batch.output_file_id, batch.error_file_id))]
check(N, *texts)
assert batch.request_counts.completed == N - N // 10 and batch.request_counts.failed == N // 10
print("ok two servers, one killed six times; tokens of the first lives:", shares)
for server, _ in servers:
    server.stop()
