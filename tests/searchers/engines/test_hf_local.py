import json
import pickle
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from automcu_ray.core.errors import ConfigError, ToolMissingError
from automcu_ray.core.feasibility import Rung
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.prompts import Prompter
from searchers.dialogue.reply_parsing import UnusableReply, read_advice, read_candidate
from searchers.dialogue.reply_schemas import advice_schema, spec_schema
from searchers.engines import hf_local, local_model, pick_engine
from searchers.engines.base import Message, Reply, Request
from searchers.engines.hf_local import HfLocalEngine
from tests.searchers.conftest import make_task
from tests.tiny_model import CONTEXT, make_tiny_model

pytestmark = pytest.mark.thorough

pytest.importorskip("transformers", reason="needs the extra hf")
xgrammar = pytest.importorskip("xgrammar", reason="needs the extra hf")

TASK = make_task()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[HfLocalEngine]:
    engine = HfLocalEngine(model=str(folder), device="cpu")
    yield engine
    engine.close()


def request(
    seed: int = 0, schema: dict[str, Any] | None = None, text: str = "Design a network.", **more: Any
) -> Request:
    messages = (Message(role="system", content="You design networks."), Message(role="user", content=text))
    wanted = {"temperature": 1.0, **more}
    return Request(
        role="generator", messages=messages, json_schema=schema or spec_schema(TASK.space), seed=seed, **wanted
    )


def free(seed: int = 0, **more: Any) -> Request:
    return request(seed, **more).model_copy(update={"json_schema": None})


def ask(engine: HfLocalEngine, *requests: Request) -> list[Reply]:
    replies = engine.complete(requests)
    assert not [reply.error for reply in replies if reply.error]
    return replies


def test_every_spec_is_readable_and_those_that_cannot_be_built_say_so(engine: HfLocalEngine) -> None:
    """A grammar knows fields and ranges; what fits together is the task's to say."""
    built, refused = 0, []
    replies = ask(engine, *(request(seed) for seed in range(24)))
    assert {reply.finish_reason for reply in replies} == {"stop"}
    for reply in replies:
        try:
            built += bool(read_candidate(reply, TASK.space).hash)
        except UnusableReply as error:
            refused.append(error.violation)
    assert built + len(refused) == 24
    assert built > 0
    assert {violation.rung for violation in refused} <= {Rung.SHAPES}


def test_advice_has_both_texts(engine: HfLocalEngine) -> None:
    (reply,) = ask(engine, request(1, advice_schema()))
    advice = read_advice(reply)
    assert advice.problem
    assert advice.suggestion


def test_seed_temperature_and_top_p_decide_the_reply(engine: HfLocalEngine) -> None:
    warm, again, other_seed = ask(engine, free(1, max_tokens=30), free(1, max_tokens=30), free(2, max_tokens=30))
    assert warm.text == again.text != other_seed.text
    cold = {"temperature": 0.0, "max_tokens": 30}
    first, second, narrow = ask(engine, free(1, **cold), free(2, **cold), free(1, top_p=1e-6, max_tokens=30))
    assert first.text == second.text == narrow.text != warm.text  # the likeliest token, whatever the seed


def test_a_batch_of_unlike_requests_answers_each_as_if_alone(engine: HfLocalEngine) -> None:
    unlike = [  # short ones: in a batch sums are rounded otherwise, and of a thousand draws one may tip over
        request(0),
        request(1, advice_schema(), text="What limits it? " * 20, max_tokens=40),
        free(2, max_tokens=7),
        request(3, temperature=0.0, max_tokens=40),
        request(0),
    ]
    together = ask(engine, *unlike)
    alone = [ask(engine, one)[0] for one in unlike]
    pick = {"text", "finish_reason", "prompt_tokens", "completion_tokens"}
    assert [reply.model_dump(include=pick) for reply in together] == [reply.model_dump(include=pick) for reply in alone]
    assert together[0].text == together[4].text


def test_requests_of_threads_that_wait_at_once_are_one_batch_and_each_gets_its_own_reply(
    engine: HfLocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [free(seed, max_tokens=8) for seed in range(3)]
    alone = [ask(engine, one)[0].text for one in asked]
    batches, reply = [], hf_local._LoadedModel.reply

    def note(model: Any, requests: Sequence[Request], threads: int) -> list[Reply]:
        batches.append(len(requests))
        return reply(model, requests, threads)

    monkeypatch.setattr(hf_local._LoadedModel, "reply", note)
    with ThreadPoolExecutor(3) as threads:
        with hf_local._LOCK:
            replies = [threads.submit(engine.complete, [one]) for one in asked]
            while len(hf_local._WAITING[engine._key]) < len(asked):
                time.sleep(0.001)
        assert [future.result(timeout=60)[0].text for future in replies] == alone
    assert batches == [3]


def test_a_reply_that_is_cut_says_so_and_counts(engine: HfLocalEngine, folder: Path) -> None:
    (reply,) = ask(engine, request(max_tokens=5))
    assert (reply.finish_reason, reply.completion_tokens, reply.model) == ("length", 5, str(folder))
    assert '{"backbone":['.startswith(reply.text)
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    messages = [message.model_dump() for message in request().messages]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert reply.prompt_tokens == len(tokenizer(text)["input_ids"])
    assert reply.seconds > 0


def test_too_long_a_prompt_fails_alone_and_names_both_numbers(engine: HfLocalEngine) -> None:
    long, good = engine.complete([free(text="x y " * 9000), free(max_tokens=5)])
    assert (long.finish_reason, long.text) == ("error", "")
    assert f"the model's context holds {CONTEXT}" in long.error
    assert int(long.error.split()[3]) > CONTEXT
    assert good.finish_reason == "length"


def test_a_reply_may_fill_the_context_and_no_more(engine: HfLocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    (short,) = ask(engine, request(max_tokens=1))
    monkeypatch.setattr(hf_local._LOADED[engine._key], "context", short.prompt_tokens + 7)
    (reply,) = ask(engine, request(max_tokens=100))
    assert (reply.finish_reason, reply.completion_tokens) == ("length", 7)


def test_a_schema_that_is_none_fails_alone(engine: HfLocalEngine) -> None:
    bad, good = engine.complete([request(schema={"type": "nonsense"}), free(max_tokens=5)])
    assert bad.finish_reason == "error"
    assert "nonsense" in bad.error
    assert good.finish_reason == "length"


def test_out_of_memory_is_an_error_reply(engine: HfLocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise MemoryError("out of memory\nat address 0")

    monkeypatch.setattr(hf_local._LoadedModel, "_generate", broken)
    replies = engine.complete([request(0), request(1)])
    assert [(reply.finish_reason, reply.error) for reply in replies] == [
        ("error", "MemoryError: out of memory at address 0")
    ] * 2


def test_a_model_is_loaded_once_even_by_a_copy_of_the_engine(
    engine: HfLocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(engine, free(max_tokens=1))
    monkeypatch.setattr(hf_local, "_load", lambda *_: pytest.fail("loaded again"))
    ask(pickle.loads(pickle.dumps(engine)), free(max_tokens=1))


def test_closing_gives_back_the_memory_that_pytorch_keeps(
    engine: HfLocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: held.append(len(hf_local._LOADED)))
    monkeypatch.setattr(hf_local, "_LOADED", {engine._key: None})
    engine.close()
    assert held == [0], "once, when the model is gone"


def test_a_model_that_cannot_be_loaded_is_an_error_reply(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    replies = HfLocalEngine(model=str(tmp_path)).complete([request(0), request(1)])
    assert [reply.finish_reason for reply in replies] == ["error", "error"]
    assert "Error: " in replies[0].error


def test_sampling_options_that_a_model_brings_along_do_not_count(
    engine: HfLocalEngine, folder: Path, tmp_path: Path
) -> None:
    opinionated = Path(shutil.copytree(folder, tmp_path / "opinionated"))
    options = json.loads((opinionated / "generation_config.json").read_text())
    options.update({"do_sample": True, "temperature": 0.1, "top_k": 1, "repetition_penalty": 3.0})
    (opinionated / "generation_config.json").write_text(json.dumps(options))
    other = HfLocalEngine(model=str(opinionated), device="cpu")
    assert ask(other, free(max_tokens=30))[0].text == ask(engine, free(max_tokens=30))[0].text
    other.close()


def test_the_tiny_model_has_room_for_the_prompts_of_a_run(engine: HfLocalEngine) -> None:
    prompt = Prompter(TASK).generator(Memory(), None)
    (reply,) = ask(engine, Request(role="generator", messages=prompt.messages, max_tokens=1))
    assert 1000 < reply.prompt_tokens < CONTEXT / 2


@pytest.fixture(scope="module")
def compiler(folder: Path) -> Any:
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    return xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer))


def accepts(compiler: Any, schema: dict[str, Any], text: str) -> bool:
    grammar = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False, separators=(",", ":"))
    matcher = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)
    return bool(matcher.accept_string(text)) and bool(matcher.is_terminated())


def spec(*layers: dict[str, Any]) -> str:
    return json.dumps({"backbone": layers, "head": {"type": "classifier", "positions": 1}}, separators=(",", ":"))


POOL = {"type": "max_pool", "kernel_size": 2, "stride": 2}
BOTTLENECK = {"type": "bottleneck", "out_channels": 8, "expansion": 0.5, "stride": 1, "activation": "relu"}


ALLOWED: list[list[dict[str, Any]]] = [[POOL], [BOTTLENECK], [POOL] * 40]
FORBIDDEN: list[list[dict[str, Any]]] = [
    *([], [POOL] * 41, [{"type": "max_pool", "kernel_size": 2}]),
    *([{**POOL, **wrong}] for wrong in ({"kernel_size": 9}, {"stride": 0}, {"type": "pool"}, {"padding": 1})),
    *([{**BOTTLENECK, **wrong}] for wrong in ({"out_channels": 1025}, {"expansion": 8.5}, {"expansion": -1})),
    *([{**BOTTLENECK, **wrong}] for wrong in ({"stride": 3}, {"activation": "gelu"})),
]


@pytest.mark.parametrize("layers", [*ALLOWED, *FORBIDDEN])
def test_the_grammar_stops_what_the_schema_forbids_and_nothing_else(
    compiler: Any, layers: list[dict[str, Any]]
) -> None:
    """xgrammar ignores parts of JSON schema silently: what our schemas use, it must enforce."""
    assert accepts(compiler, spec_schema(TASK.space), spec(*layers)) == (layers in ALLOWED)


@pytest.mark.parametrize("text", ['{"problem":"a\nb","suggestion":"c"}', '{"problem":"a"}'])
def test_the_grammar_stops_new_lines_and_missing_fields(compiler: Any, text: str) -> None:
    assert accepts(compiler, advice_schema(), '{"problem":"a b","suggestion":"c"}')
    assert not accepts(compiler, advice_schema(), text)


def test_a_missing_package_is_told_with_the_command_that_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_model.importlib.util, "find_spec", lambda name: None if name == "xgrammar" else object())
    with pytest.raises(ToolMissingError, match=r"not installed: xgrammar\..*pip install 'automcu-ray\[hf\]'"):
        pick_engine("hf_local", {"model": str(folder)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a model: set engine.model or AUTOMCU_MODEL"),
        ({"model": "./no/such/folder"}, "or a name on the hub, found './no/such/folder'"),
        ({"model": "tests"}, "config.json"),
        ({"model": "a", "dtype": "int3"}, "dtype"),
        ({"model": "a", "trust_remote_code": True}, "unknown engine option 'trust_remote_code'"),
    ],
)
def test_a_wrong_option_is_a_config_error(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AUTOMCU_MODEL", raising=False)
    with pytest.raises(ConfigError, match=message):
        pick_engine("hf_local", options)


def test_the_model_may_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOMCU_MODEL", str(folder))
    monkeypatch.chdir(folder.parent)
    assert HfLocalEngine().model == HfLocalEngine(model="tiny").model == str(folder)
