"""Where a graph comes in it gets our names, whatever it brings, and what it is otherwise must be ONNX."""

import re
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper
from torch import nn

from automcu_ray.core.errors import ToolchainError
from automcu_ray.deploy.export import deploy, deploy_traced
from automcu_ray.deploy.own_names import in_words, label, line, take_over
from automcu_ray.deploy.tracing import trace

SHAPE = (1, 6, 6)
HOSTILE = '*/\n#include "/etc/shadow"\n/*'
NOISE = np.random.default_rng(0).integers(0, 256, (4, *SHAPE), dtype=np.uint8)


class Named(nn.Module):
    """A network whose one convolution is called as the test likes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, nn.Conv2d(1, 4, 3))
        self.name, self.head = name, nn.Linear(64, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self._modules[self.name](images)).flatten(1))  # type: ignore[no-any-return]


def all_names(model: onnx.ModelProto) -> set[str]:
    graph = model.graph
    tensors = [name for node in graph.node for name in (*node.input, *node.output)]
    values = [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
    return {*tensors, *values, *(node.name for node in graph.node), graph.name} - {""}


def test_a_line_of_the_authors_code_is_a_number_and_nothing_else() -> None:
    torchs = "/usr/lib/python3/site-packages/torch/nn/modules/conv.py(560): forward\n"
    assert line(f"{torchs}net.py(11): forward\nother.py(3): main") == "line 11"
    assert line("net.py(11)\x1b[31m: forward") == line("") == line(torchs) == line("a.py(12345678): f") == ""


def test_no_name_of_a_module_is_left_and_the_values_are_the_same() -> None:
    torch.manual_seed(0)
    traced = trace(Named(HOSTILE).eval(), SHAPE)
    assert b"/etc/shadow" in traced
    model, labels = take_over(onnx.load_from_string(traced))
    assert {name for name in all_names(model) if not re.fullmatch(r"(node|const)\d+(_out\d*)?", name)} == {
        "image",
        "logits",
        "network",
    }
    assert all(re.fullmatch(r"[\w.]{1,60}", text) for text in labels.values())
    images = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.float32)
    before, after = (
        ort.InferenceSession(m, providers=["CPUExecutionProvider"]).run(None, {"image": images})[0]
        for m in (traced, model.SerializeToString())
    )
    assert np.array_equal(before, after)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_deployed_network_has_our_names_and_remembers_the_layers(precision: str) -> None:
    deployed = deploy(Named("stem.1 {evil}".replace(".", "_")), SHAPE, precision=precision, calibration=NOISE)
    for model in (deployed.onnx, deployed.float_onnx):
        assert b"evil" not in model
    assert "head" in deployed.labels.values()
    assert deployed.in_words("the output of node0_quant (1152 bytes).") == "the output of stem_1__evil_ (1152 bytes)."


def _comment(model: onnx.ModelProto) -> None:
    model.producer_name, model.doc_string, model.graph.doc_string = "EVIL", "EVIL", "EVIL"
    model.metadata_props.add(key="EVIL", value="EVIL")
    for node in model.graph.node:
        node.doc_string = "EVIL"
        for attribute in node.attribute:
            attribute.doc_string = "EVIL"
    for tensor in model.graph.initializer:
        tensor.doc_string = "EVIL"
    model.graph.value_info.append(helper.make_tensor_value_info("EVIL", 1, [1]))


def test_comments_metadata_and_claims_stay_outside() -> None:
    model = onnx.load_from_string(trace(Named("conv").eval(), SHAPE))
    _comment(model)
    assert b"EVIL" not in take_over(model)[0].SerializeToString()


def _unknown_attribute(graph: onnx.GraphProto) -> None:
    graph.node[0].attribute.append(helper.make_attribute("evil", "*/"))


def _no_word(graph: onnx.GraphProto) -> None:
    graph.node[0].attribute.append(helper.make_attribute("auto_pad", 'NOTSET*/\n#include "x"'))


def _nothing_gives_it(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "nowhere"


def _foreign_operator(graph: onnx.GraphProto) -> None:
    graph.node[0].domain = "evil"


def _no_operator(graph: onnx.GraphProto) -> None:
    graph.node[0].op_type = 'Conv*/\n#include "x"'


def _output_is_a_weight(graph: onnx.GraphProto) -> None:
    graph.output[0].name = "nowhere"


def _elsewhere(graph: onnx.GraphProto) -> None:
    graph.initializer[0].external_data.add(key="location", value="/etc/shadow")


@pytest.mark.parametrize(
    "change",
    [_unknown_attribute, _no_word, _nothing_gives_it, _foreign_operator, _no_operator, _output_is_a_weight, _elsewhere],
)
def test_what_onnx_does_not_define_does_not_come_in(change: Callable[[onnx.GraphProto], None]) -> None:
    model = onnx.load_from_string(trace(Named("conv").eval(), SHAPE))
    change(model.graph)
    with pytest.raises(ToolchainError, match="refused") as caught:
        deploy_traced(model.SerializeToString(), SHAPE, precision="float32", calibration=NOISE)
    assert "\n" not in str(caught.value) and "#include" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("/layers/layers.layer_2__expand/layers.layer_2__expand.0/Conv", "layer_2.expand"),
        ("/body/body.0/Conv", "body.0"),
        ("/conv/Conv", "conv"),
        ("/Add", "Add"),
        ("a" * 500, "a" * 60),
    ],
)
def test_a_label_is_the_layer(name: str, layer: str) -> None:
    assert label(name) == layer


def test_messages_name_layers() -> None:
    labels = {"node1": "body.0", "node12": "head"}
    assert in_words("node12_out_quantized, node1 and node3_quant", labels) == "head, body.0 and node3_quant"
