"""What searchers see of an accelerator's operator set: schema, vocabulary, prompts, replies, the offline engine."""

import json
from typing import Any

import jsonschema
import pytest

from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from automcu_ray.runtime.config_files import CONFIGS, read_yaml
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.prompts import Prompter, starting_candidate
from searchers.dialogue.reply_parsing import UnusableReply, read_candidate
from searchers.dialogue.reply_schemas import batch_schema, spec_schema, vocabulary
from searchers.engines.base import Reply, Request
from searchers.engines.offline.engine import OfflineEngine
from tests.searchers.conftest import make_task
from tests.searchers.sections import read_sections


@pytest.fixture
def accelerated() -> Task:
    target = McuTarget.model_validate(read_yaml(CONFIGS / "target" / "max78000.yaml"))
    limits = Constraints(flash_kb=48)
    return Task(dataset="digits", input_shape=(1, 8, 8), num_classes=10, target=target, constraints=limits)


def network(**layer: Any) -> dict[str, Any]:
    return {"backbone": [layer], "head": {"type": "classifier", "positions": 1}}


SMALL = {"type": "conv", "out_channels": 8, "kernel_size": 3, "stride": 1, "groups": 1}
SMALL |= {"use_bn": True, "activation": "relu"}


def test_the_schema_has_only_what_the_accelerator_runs(accelerated: Task) -> None:
    schema = spec_schema(accelerated.space)
    jsonschema.validate(network(**SMALL), schema)
    outside = [SMALL | {"kernel_size": 5}, SMALL | {"stride": 2}, SMALL | {"activation": "relu6"}]
    for layer in [*outside, {"type": "downsample", "out_channels": 8, "kernel_size": 3, "use_bn": True}]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(network(**layer), schema)
    assert "Ghost" not in json.dumps(schema)
    several = batch_schema(2, accelerated.space)
    jsonschema.validate({"candidates": [network(**SMALL)] * 2}, several)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"candidates": [network(**SMALL | {"stride": 2})] * 2}, several)


def test_without_an_accelerator_the_schema_is_the_whole_one() -> None:
    assert make_task().space.operators == ()
    assert "Ghost" in json.dumps(spec_schema(make_task().space))
    jsonschema.validate(network(**SMALL | {"kernel_size": 7, "stride": 2}), spec_schema(make_task().space))


def test_the_vocabulary_lists_types_and_values_of_the_accelerator(accelerated: Task) -> None:
    lines = list(vocabulary(accelerated.space))
    assert [line.partition(":")[0] for line in lines] == list(accelerated.space.types)
    conv = next(line for line in lines if line.startswith("conv:"))
    assert "kernel_size (one of 1, 3, default 3)" in conv and 'activation (one of "relu", "none"' in conv
    assert not any(line.startswith("ghost:") for line in vocabulary(accelerated.space))


def test_a_reply_outside_is_answered_with_the_reason(accelerated: Task) -> None:
    reply = Reply(text=json.dumps(network(**SMALL | {"kernel_size": 5})))
    with pytest.raises(UnusableReply) as refused:
        read_candidate(reply, accelerated.space)
    assert (refused.value.violation.rung, refused.value.violation.resource) == ("analytic", "operator")
    assert "layer_1.kernel_size: must be one of 1, 3" in refused.value.violation.message


def test_prompts_tell_memories_and_operators_of_the_accelerator(accelerated: Task) -> None:
    system, user = Prompter(accelerated).generator(Memory(), None).messages
    sections = read_sections([system])
    assert sections["Limits"]["weight_memory_bytes"] == 442_368 and sections["Limits"]["hardware_layers"] == 32
    assert {operator["type"] for operator in sections["Task"]["operators"]} == set(accelerated.space.types)
    assert "accelerator" in system.content and "downsample" not in system.content + user.content
    plain, _ = Prompter(make_task()).generator(Memory(), None).messages
    assert "accelerator" not in plain.content and "operators" not in read_sections([plain])["Task"]


@pytest.mark.parametrize("form", ["spec", "code"])
def test_the_example_is_a_network_that_the_accelerator_runs(accelerated: Task, form: Any) -> None:
    example = starting_candidate(accelerated, form)
    if example.spec is not None:
        accelerated.space.candidate(example.spec)
    else:
        assert "stride=2" not in example.code and "MaxPool2d(2)" in example.code
        assert "MaxPool2d" not in starting_candidate(make_task(), form).code


def test_the_offline_engine_proposes_only_what_the_accelerator_runs(accelerated: Task) -> None:
    prompt = Prompter(accelerated).generator(Memory(), None)
    for seed in range(12):
        request = Request(role="generator", **prompt._asdict(), seed=seed, max_tokens=1000)
        (reply,) = OfflineEngine().complete([request])
        read_candidate(reply, accelerated.space)
