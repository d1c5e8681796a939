"""The official openai client against every endpoint, streaming and not. usage: test_client.py SLUICE MODEL"""
import json
import openai
from serving import Server

server = Server()
client = openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
question = [{"role": "user", "content": "What is the capital of Italy?"}]


def models():
    assert client.models.list().data[0].id == "smollm2"
    assert client.models.retrieve("smollm2").object == "model"


def chat():
    whole = client.chat.completions.create(model="smollm2", messages=question, temperature=0, max_tokens=24, logprobs=True, top_logprobs=3)
    text = whole.choices[0].message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    for entry in whole.choices[0].logprobs.content:
        assert len(entry.top_logprobs) == 3 and entry.top_logprobs[0].logprob >= entry.top_logprobs[2].logprob
        assert abs(entry.top_logprobs[0].logprob - entry.logprob) < 1e-5  # greedy takes the likeliest
    streamed, usage, finish = "", None, None
    for chunk in client.chat.completions.create(model="smollm2", messages=question, temperature=0, max_tokens=24, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for c in chunk.choices:
            streamed += c.delta.content or ""
            finish = c.finish_reason or finish
    assert streamed == text, (streamed, text)
    assert finish == whole.choices[0].finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens


def several_samples():
    args = dict(model="smollm2", messages=question, n=4, seed=7, temperature=1.0, max_tokens=20, logprobs=True, top_logprobs=2)
    whole = client.chat.completions.create(**args)
    texts, counts = [""] * 4, [0] * 4
    for chunk in client.chat.completions.create(stream=True, **args):
        for c in chunk.choices:
            texts[c.index] += c.delta.content or ""
            counts[c.index] += len(c.logprobs.content) if c.logprobs else 0
    assert [c.message.content for c in whole.choices] == texts
    assert counts == [len(c.logprobs.content) for c in whole.choices]
    assert len(set(texts)) > 1


def completions():
    whole = client.completions.create(model="smollm2", prompt=["One, two,", "Red, green,"], n=2, max_tokens=6, seed=3, logprobs=2, echo=True)
    assert [c.index for c in whole.choices] == [0, 1, 2, 3]
    assert whole.choices[3].text.startswith("Red, green,")
    lp = whole.choices[0].logprobs
    assert lp.token_logprobs[0] is None and len(lp.tokens) == len(lp.text_offset) == len(lp.token_logprobs)
    text = "".join(c.text for part in client.completions.create(model="smollm2", prompt="One, two,", max_tokens=6, temperature=0, stream=True) for c in part.choices)
    assert text == client.completions.create(model="smollm2", prompt="One, two,", max_tokens=6, temperature=0).choices[0].text


def errors():
    for call, kind, words in [
        (lambda: client.chat.completions.create(model="none", messages=question), openai.NotFoundError, "none"),
        (lambda: client.chat.completions.create(model="smollm2", messages=[]), openai.BadRequestError, "messages"),
        (lambda: client.completions.create(model="smollm2", prompt="x", logit_bias={"49152": 1}), openai.BadRequestError, "49152"),
        (lambda: client.completions.create(model="smollm2", prompt="x", extra_body={"stop_token_ids": [999999]}), openai.BadRequestError, "999999"),
        (lambda: client.completions.create(model="smollm2", prompt="x", max_tokens=10**7), openai.BadRequestError, "10000000"),
        (lambda: list(client.completions.create(model="smollm2", prompt="x", max_tokens=10**7, stream=True)), openai.BadRequestError, "8192"),
        (lambda: client.completions.create(model="smollm2", prompt="x", temperature=3), openai.BadRequestError, "temperature"),
    ]:
        try:
            call()
        except kind as e:
            assert words in str(e), (words, str(e))
        else:
            raise AssertionError(f"no error with {words}")


def tokens():
    _, _, reply = server.post("/tokenize", {"content": "Hello, world"})
    _, _, text = server.post("/detokenize", {"tokens": reply["tokens"]})
    assert text.get("content") == "Hello, world" or text.get("prompt") == "Hello, world", text
    assert server.request("GET", "/version")[0] == 200 and server.request("GET", "/health")[0] == 200


for test in (models, chat, several_samples, completions, errors, tokens):
    test()
    print("ok", test.__name__)
server.wait_idle()
server.stop()
