"""Sound inputs of every reader, as small as they can be."""

import io
import json
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from scipy.io import wavfile

from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate, Diagnosis
from automcu_ray.records.record import Record, TrainingSummary
from searchers.engines.base import Begun, Message, Reply, Request
from searchers.engines.recording.recorded_calls import Beginning, Call
from tests.backends.boards.answers import out


def one_line(value: Any) -> str:
    return json.dumps(value)


SPEC = {"backbone": [{"type": "conv", "out_channels": 8, "stride": 2}, {"type": "residual", "out_channels": 16}]}
REPORT = FeasibilityReport(feasible=True, backend="fake", rung=Rung.LINK, ram_bytes=3_000, flash_bytes=20_000)
_VIOLATION = Violation(rung=Rung.LINK, resource="ram", where="layer_1", found_bytes=10, limit_bytes=8, message="2 over")
_CANDIDATE = Candidate.model_validate(
    {"number": 1, "hash": "ab", "spec": SPEC, "diagnosis": Diagnosis(problem="small", suggestion="larger")}
)
_TRAINED = Record(
    candidate=_CANDIDATE,
    status="ok",
    feasibility=REPORT,
    finished_at_s=1.7e9,
    training=TrainingSummary(
        val_accuracy=0.9, val_accuracy_float=0.91, train_loss=0.3, epochs=3, seconds=1.5, seed=0, device="cpu"
    ),
)
_REFUSED = Record(
    candidate=_CANDIDATE.replace(number=2, hash="cd"),
    status="infeasible",
    reason="2 over",
    feasibility=REPORT.replace(feasible=False, violations=(_VIOLATION,)),
)
JOURNALS = (
    "\n".join(
        one_line(row)
        for row in (
            {"event": "started", "at_s": 1.7e9, "versions": {"ray": "2"}, "data": {"train": 100, "name": "digits"}},
            *({"event": "proposed", "candidate": r.candidate.model_dump(mode="json")} for r in (_TRAINED, _REFUSED)),
            *({"event": "record", "record": r.model_dump(mode="json")} for r in (_TRAINED, _REFUSED)),
            {"event": "searched", "seconds": 3.5, "interrupted": True, "gave_up": ""},
            {"event": "finalist", "number": 1, "hash": "ab", "training": {"val_accuracy": 0.9}},
            {"event": "test_read", "reader": "winner", "images": 360},
            {
                "event": "finished",
                "manifest": {
                    "table": "cifar10",
                    "number": 1,
                    "hash": "ab",
                    "architecture": "a",
                    "val_accuracy": 0.9,
                    "test_accuracy": 0.9,
                },
            },
            "",
        )
        if row
    ).encode()
    + b"\n",
)
VERDICTS = (
    REPORT.model_dump_json().encode(),
    (one_line({"spec": SPEC, "ram_bytes": 3000, "flash_bytes": 20_000}) + "\n").encode(),
)
_REQUEST = Request(role="generator", messages=(Message(role="user", content="a network, please"),))
_CALL = Call(
    key=_REQUEST.key,
    engine="e",
    model="m",
    is_language_model=True,
    time_s=1.0,
    request=_REQUEST,
    reply=Reply(text="{}"),
)

CALLS = (_CALL.model_dump_json().encode() + b"\n",)
TALKS = (Beginning(talk=1, begun=Begun()).model_dump_json().encode() + b"\n",)
REPLIES = (
    one_line(SPEC).encode(),
    one_line({"candidates": [SPEC, SPEC]}).encode(),
    one_line({"problem": "too small", "suggestion": ["widen layer_1"]}).encode(),
    b"Here you are:\n```python\nimport torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n"
    b"        super().__init__()\n        self.a = nn.Linear(64, 10)\n\n    def forward(self, x):\n"
    b"        return self.a(x.flatten(1))\n```\n",
)
SERIAL = (b"READY 00000004 00000002\n" + out(bytes(4), b"\x01\xff", 16) + out(bytes(4), b"\x80\x7f", 18),)
YAML = (
    b"dataset: {name: digits}\nconstraints: {ram_kb: 8, flash_kb: 32}\nseed: 7\nsearcher: {name: random}\n",
    b"name: mine\ndescription: a board\ncore: cortex-m4f\nclock_hz: 168_000_000\nclock_source: a datasheet\nram:\n"
    b"  sram: {origin: 0x20000000, size_kb: 128, source: a datasheet}\n"
    b"flash: {origin: 0x08000000, size_kb: 512, source: a datasheet}\n",
    b"title: all\nseeds: 2\narms: [{label: a, searcher: random}]\ncases: [{label: b, task: digits}]\nsettings: []\n",
)
SETTINGS = (
    b"constraints.ram_kb=64",
    b"points_to_evaluate=[{backbone: [{type: conv, out_channels: 8}]}]",
    b"searcher=random",
)


def _archive(save: Any) -> bytes:
    buffer = io.BytesIO()
    images = np.random.default_rng(0).integers(0, 256, (40, 4, 4), dtype=np.uint8)
    save(buffer, images=images, labels=np.arange(40) % 2)
    return buffer.getvalue()


ARCHIVES = (_archive(np.savez), _archive(np.savez_compressed))


def _wav() -> bytes:
    buffer = io.BytesIO()
    wavfile.write(buffer, 8000, np.random.default_rng(0).integers(-99, 99, 400, dtype=np.int16))
    return buffer.getvalue()


WAVS = (_wav(),)
SAMPLES_CSV = (
    "t,x,label,subject\n" + "".join(f"{20 * n},{n % 7}.5,{'ab'[n // 12 % 2]},s{n // 24}\n" for n in range(72))
).encode()
AI8X_MEMORY = (
    "Weight memory: 12,345 bytes out of 442,368 bytes total (3%)\n"
    "Bias memory:   10 bytes out of 2,048 bytes total (0%)\n"
)
AI8X_ANSWERS = "0x50400000, 0xffffffff, 0x00000003, 0x00000001, 0xfffffff0, 0x7fffffff, 0x00000000"
AI8X_REFUSAL = "ERROR: Layer 1: output (size 9000) with input offset 0x1000 exceeds data memory instance size of 8192\n"
LINKER = (
    "Memory region         Used Size  Region Size  %age Used\n           FLASH:       34240 B        48 KB     69.66%\n"
    "             RAM:        4096 B        24 KB     16.67%\n"
)
SIZE = (
    "net.elf  :\nsection      size        addr\n.net_code    7000   134217728\n.io           100   536870912\n"
    ".stack       1024   536871012\nTotal        8124\n"
)
CALL_GRAPH = (
    'graph: { title: "net"\n'
    'node: { title: "net" label: "net\\nnet.c:1:1\\n64 bytes (static)" }\n'
    'node: { title: "conv" label: "conv\\nnet.c:2:1\\n32 bytes (static)" }\n'
    'edge: { sourcename: "net" targetname: "conv" label: "net.c:3:1" }\n}\n'
)


def _onnx() -> bytes:
    """Return a padded convolution, a flattening and a linear layer, for 8x8 images, as exporters write them."""
    weights = {"w": np.ones((2, 1, 3, 3), np.float32), "m": np.ones((128, 10), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="/stem/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="/stem/Relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="/Flatten"),
        helper.make_node("MatMul", ["f", "m"], ["y"], name="/head/MatMul"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 1, 8, 8)), ("y", (1, 10)))
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def _pairs() -> bytes:
    """Return a convolution and a linear layer of int8 between pairs of QuantizeLinear and DequantizeLinear."""
    numbers = {
        "s": np.float32(1 / 64),
        "z": np.int8(-3),
        "w": np.ones((2, 1, 3, 3), np.int8),
        "ws": np.full(2, 0.01, np.float32),
        "wz": np.zeros(2, np.int8),
        "m": np.ones((10, 2), np.uint8),
        "ms": np.float32(0.01),
        "mz": np.uint8(1),
        "b": np.ones(2, np.int32),
        "bs": np.full(2, 1 / 6400, np.float32),
    }

    def pair(source: str, to: str) -> list[Any]:
        return [
            helper.make_node("QuantizeLinear", [source, "s", "z"], [f"{to}_q"]),
            helper.make_node("DequantizeLinear", [f"{to}_q", "s", "z"], [to]),
        ]

    nodes = [
        *pair("x", "i"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["br"], axis=0),
        helper.make_node("Conv", ["i", "wr", "br"], ["c"], name="/stem/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        *pair("r", "a"),
        helper.make_node("Add", ["a", "a"], ["d"]),
        *pair("d", "e"),
        helper.make_node("GlobalAveragePool", ["e"], ["g"]),
        *pair("g", "h"),
        helper.make_node("Flatten", ["h"], ["f"]),
        helper.make_node("DequantizeLinear", ["m", "ms", "mz"], ["mr"]),
        helper.make_node("Gemm", ["f", "mr"], ["l"], name="/head/Gemm", transB=1),
        *pair("l", "y"),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 1, 8, 8)), ("y", (1, 10)))
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], tensors)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


ONNX_FILE = _onnx()
ONNX_PAIRS = _pairs()
