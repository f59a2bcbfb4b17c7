"""`pesc serve` as the openai package meets it: models, completions, chat, streams, log-probabilities, errors and retries, with the
synchronous and the asynchronous client. The server runs the embedded base; for chat its format is named."""
import asyncio
import os
import pathlib
import sys

import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/serve"))
from running import Server  # noqa: E402

PROMPT = "Where does Senbre live?"
CHAT = [{"role": "user", "content": PROMPT}]


def completions(client, model):
    whole = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, seed=1, logprobs=2)
    assert whole.object == "text_completion" and whole.model == model and whole.id.startswith("cmpl-")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens
    stream = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, seed=1, logprobs=2, stream=True)
    assert "".join(e.choices[0].text for e in stream) == whole.choices[0].text
    many = client.completions.create(model=model, prompt=[PROMPT, "a"], n=2, max_tokens=3)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]


def chat(client, model):
    whole = client.chat.completions.create(model=model, messages=CHAT, max_tokens=8, seed=1, logprobs=True, top_logprobs=3)
    assert whole.object == "chat.completion" and whole.choices[0].message.role == "assistant"
    assert all(len(t.top_logprobs) == 3 for t in whole.choices[0].logprobs.content)
    events = list(client.chat.completions.create(model=model, messages=CHAT, max_tokens=8, seed=1, stream=True,
                                                 stream_options={"include_usage": True}))
    assert events[-1].usage.completion_tokens == whole.usage.completion_tokens and not events[-1].choices
    assert "".join(e.choices[0].delta.content or "" for e in events[:-1]) == whole.choices[0].message.content
    assert events[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def errors(client, model):
    for call, kind, code in (
            (lambda: client.models.retrieve("none"), openai.NotFoundError, "model_not_found"),
            (lambda: client.completions.create(model="none", prompt="a"), openai.NotFoundError, "model_not_found"),
            (lambda: client.completions.create(model=model, prompt="a", temperature=3), openai.BadRequestError, None),
            (lambda: client.completions.create(model=model, prompt=[1] * 1000), openai.BadRequestError, "context_length_exceeded"),
            (lambda: client.chat.completions.create(model=model, messages=CHAT, extra_body={"nonsense": 1}), openai.BadRequestError, "unknown_parameter")):
        try:
            call()
        except kind as e:
            assert e.code == code and e.body["message"], e
        else:
            raise AssertionError(f"expected {kind}")


async def asynchronous(url, model):
    """Sixteen streams at a time, each with the tokens it has alone."""
    client = openai.AsyncOpenAI(base_url=url, api_key="none")

    async def text(i):
        out = ""
        async for e in await client.chat.completions.create(model=model, messages=CHAT, max_tokens=12, seed=i, stream=True):
            out += e.choices[0].delta.content or ""
        return out

    alone = [await text(i) for i in range(16)]
    assert await asyncio.gather(*(text(i) for i in range(16))) == alone
    await client.close()


def main():
    with Server("share/base", "--chat-format", "camelidae") as s:
        url = f"http://127.0.0.1:{s.port}/v1"
        client = openai.OpenAI(base_url=url, api_key="none")
        (model,) = [m.id for m in client.models.list()]
        assert client.models.retrieve(model).id == model == "base"
        for check in (completions, chat, errors):
            check(client, model)
            print(f"ok {check.__name__}")
        asyncio.run(asynchronous(url, model))
        print("ok asynchronous")


if __name__ == "__main__":
    os.environ.setdefault("PESC", "build/pesc")
    main()
