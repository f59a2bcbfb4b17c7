"""`pesc serve` as the clients of agents meet it: openai (parse, tools, streams, responses), anthropic, and, where they are installed, langchain-openai, instructor,
pydantic-ai, litellm, llama-index, langchain's agents and the command llm. In most sessions the model's words are random and a grammar makes them calls and values of a
schema; the loops of agents, in which tools run and answers follow, ask a model that says given turns."""
import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing

import anthropic
import openai
from pydantic import BaseModel, Field

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
sys.path[:0] = [str(TESTS / "serve"), str(TESTS / "support")]
import scripted  # noqa: E402
from running import Server  # noqa: E402
from speech import ASK, BOTH, CITY, TEMPLATE, speaking  # noqa: E402

OFF = {"enable_thinking": False}
BASE = str(pathlib.Path(__file__).resolve().parents[2] / "share/base")


class Place(BaseModel):
    """of a size that random words soon fill"""
    city: typing.Literal["Rome", "Oslo"]
    degrees: typing.Annotated[int, Field(ge=-40, le=50)]


def openai_chat(url, model):
    client = openai.OpenAI(base_url=url, api_key="none")
    more = {"model": model, "messages": ASK, "extra_body": OFF, "max_tokens": 300, "seed": 1}
    called = client.chat.completions.create(tools=BOTH, tool_choice="required", **more).choices[0]
    assert called.finish_reason == "tool_calls" and json.loads(called.message.tool_calls[0].function.arguments) is not None
    with client.chat.completions.stream(tools=BOTH, tool_choice="required", **more) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion().choices[0]
    assert [c.function.arguments for c in final.message.tool_calls] == [c.function.arguments for c in called.message.tool_calls]
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    assert json.loads(client.chat.completions.create(response_format=schema, **more).choices[0].message.content)["city"] in ("Rome", "Oslo")
    vector = client.embeddings.create(model=model, input=["a", "b"])  # asks for base64
    assert len(vector.data) == 2 and abs(sum(x * x for x in vector.data[0].embedding) - 1) < 1e-4


def openai_responses(url, model):
    client = openai.OpenAI(base_url=url, api_key="none")
    tools = [{"type": "function", "name": "weather", "parameters": CITY, "strict": True}]
    more = {"model": model, "input": "hello", "max_output_tokens": 300, "reasoning": {"effort": "none"}, "temperature": 0}
    called = client.responses.create(tools=tools, tool_choice="required", **more)
    assert called.output[0].type == "function_call" and json.loads(called.output[0].arguments)["city"] in ("Rome", "Oslo")
    after = client.responses.create(previous_response_id=called.id, **{**more, "max_output_tokens": 2, "input": [{"type": "function_call_output", "call_id": called.output[0].call_id, "output": "warm"}]})
    assert after.id != called.id
    with client.responses.stream(tools=tools, tool_choice="required", **more) as stream:
        kinds = [e.type for e in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and final.output[0].arguments == called.output[0].arguments
    formed = client.responses.create(text={"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}, **more)
    assert json.loads(formed.output_text)["city"] in ("Rome", "Oslo")


def anthropic_messages(url, model):
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none")
    tools = [{"name": "weather", "input_schema": CITY}]
    more = {"model": model, "messages": ASK, "max_tokens": 300, "thinking": {"type": "disabled"}, "tools": tools, "tool_choice": {"type": "any"}}
    called = client.messages.create(**more)
    assert called.stop_reason == "tool_use" and called.content[0].input["city"] in ("Rome", "Oslo")
    with client.messages.stream(**more) as stream:
        for _ in stream:
            pass
        assert stream.get_final_message().content[0].input["city"] in ("Rome", "Oslo")
    assert client.messages.count_tokens(model=model, messages=ASK, tools=tools).input_tokens > 50
    try:
        client.messages.create(model="none", messages=ASK, max_tokens=1)
    except anthropic.NotFoundError as e:
        assert e.body["error"]["type"] == "not_found_error"
    else:
        raise AssertionError("expected a NotFoundError")


def langchain(url, model):
    from langchain_openai import ChatOpenAI
    llm = ChatOpenAI(base_url=url, api_key="none", model=model, max_tokens=300, seed=1, extra_body=OFF)
    called = llm.bind_tools([Place], tool_choice="required").invoke("hello")
    assert called.tool_calls[0]["name"] == "Place" and isinstance(called.tool_calls[0]["args"]["degrees"], int)
    for method in ("function_calling", "json_schema"):
        assert isinstance(llm.with_structured_output(Place, method=method).invoke("hello"), Place), method
    for seed in range(20):  # any object: random words may not end it soon
        any_object = ChatOpenAI(base_url=url, api_key="none", model=model, max_tokens=300, temperature=2, seed=seed, extra_body=OFF).with_structured_output(Place, method="json_mode", include_raw=True)
        with contextlib.suppress(openai.LengthFinishReasonError):
            assert any_object.invoke("hello")["raw"].content.startswith("{")
            break
    else:
        raise AssertionError("no object within 300 tokens")
    chunks = [c for c in llm.bind_tools([Place], tool_choice="required").stream("hello")]
    assert sum(chunks[1:], chunks[0]).tool_calls[0]["name"] == "Place"


def instructor_(url, model):
    import instructor
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=mode)
        assert isinstance(client.chat.completions.create(model=model, messages=ASK, response_model=Place, max_tokens=300, extra_body=OFF), Place), mode


def pydantic_ai_(url, model):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none")), output_type=Place, model_settings={"max_tokens": 300, "extra_body": OFF})
    assert isinstance(agent.run_sync("hello").output, Place)


def litellm_(url, model):
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm
    called = litellm.completion(model="openai/" + model, api_base=url, api_key="none", messages=ASK, tools=BOTH, tool_choice="required", max_tokens=300, extra_body=OFF)
    assert called.choices[0].finish_reason == "tool_calls" and called.choices[0].message.tool_calls
    chunks = list(litellm.completion(model="openai/" + model, api_base=url, api_key="none", messages=ASK, tools=BOTH, tool_choice="required", max_tokens=300, stream=True, extra_body=OFF))
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def llama_index_(url, model):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    def weather(city: str) -> str:
        """the weather"""
        return city
    llm = OpenAILike(model=model, api_base=url, api_key="none", is_chat_model=True, is_function_calling_model=True, max_tokens=300, additional_kwargs={"extra_body": OFF})
    answer = llm.chat_with_tools([FunctionTool.from_defaults(weather)], chat_history=[ChatMessage(role="user", content="hello")], tool_required=True)
    assert llm.get_tool_calls_from_response(answer)[0].tool_name == "weather"


# ---- loops: a tool is called, then another, then the answer is given

TURNS = ('<think>first the sum</think><tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>',
         'Now the weather.<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>', "It is 5, and cold in Oslo.")


def add(a: int, b: int) -> int:
    """the sum of two numbers"""
    return a + b


def weather(city: str) -> str:
    """the weather in a city"""
    return f"cold in {city}"


def langchain_agent(url, model):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    for more in ({}, {"streaming": True}, {"use_responses_api": True}):
        agent = create_agent(ChatOpenAI(base_url=url, api_key="none", model=model, temperature=0, **more), tools=[add, weather])
        told = agent.invoke({"messages": [{"role": "user", "content": "the sum of 2 and 3, and the weather in Oslo"}]})["messages"]
        assert [m.type for m in told] == ["human", "ai", "tool", "ai", "tool", "ai"], told
        assert told[2].content == "5" and told[4].content == "cold in Oslo" and told[5].text == TURNS[2], told


def pydantic_ai_agent(url, model):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none")), tools=[add, weather], model_settings={"temperature": 0})
    assert agent.run_sync("the sum of 2 and 3, and the weather in Oslo").output == TURNS[2]


def anthropic_agent(url, model):
    client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none")
    tools = [{"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}, {"name": "weather", "input_schema": CITY}]
    talk, run = [{"role": "user", "content": "both"}], {"add": add, "weather": weather}
    while (answer := client.messages.create(model=model, messages=talk, max_tokens=100, tools=tools)).stop_reason == "tool_use":
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": str(run[b.name](**b.input))} for b in answer.content if b.type == "tool_use"]
        talk += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    assert len(talk) == 5 and talk[2]["content"][0]["content"] == "5" and answer.content[0].text == TURNS[2], talk


def llm_command(url, model):
    """The command, configured as its documentation says, with a tool of each kind of answer."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "extra-openai-models.yaml").write_text(json.dumps([{"model_id": "pesc", "model_name": model, "api_base": url, "supports_tools": True, "supports_schema": True}]))
        functions = pathlib.Path(folder, "tools.py")
        functions.write_text('def add(a: int, b: int) -> int:\n    "the sum"\n    return a + b\n\n\ndef weather(city: str) -> str:\n    "the weather"\n    return f"cold in {city}"\n')
        command = [shutil.which("llm", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]), "-m", "pesc"]
        for stream in ([], ["--no-stream"]):
            told = subprocess.run([*command, *stream, "both", "--functions", str(functions), "--td"], env={**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "none"},
                                  capture_output=True, text=True, timeout=120)
            assert told.returncode == 0 and TURNS[2] in told.stdout and "add({'a': 2, 'b': 3})" in told.stderr and "cold in Oslo" in told.stderr, told


LOOPS = ((langchain_agent, "langchain"), (pydantic_ai_agent, "pydantic_ai"), (anthropic_agent, None), (llm_command, "llm"))
SESSIONS = ((openai_chat, None), (openai_responses, None), (anthropic_messages, None), (langchain, "langchain_openai"), (instructor_, "instructor"), (pydantic_ai_, "pydantic_ai"),
            (litellm_, "litellm"), (llama_index_, "llama_index.llms.openai_like"))


def installed(package):
    try:
        return not package or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def run(sessions, port):
    """How many have failed."""
    failed = 0
    for session, package in sessions:
        if not installed(package):
            print(f"{session.__name__}: {package} is not installed")
            continue
        try:
            session(f"http://127.0.0.1:{port}/v1", "small")
            print(f"{session.__name__}: as expected")
        except Exception as e:  # each client has its own
            failed += 1
            print(f"{session.__name__}: {type(e).__name__}: {e}")
    return failed


def main():
    with speaking(BASE, "--store", "--served-name", "small", template=TEMPLATE) as s:
        failed = run(SESSIONS, s.port)
    with tempfile.TemporaryDirectory() as folder:
        scripted.write(pathlib.Path(folder), TURNS)
        with Server(folder, "--store", "--served-name", "small") as s:
            failed += run(LOOPS, s.port)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
