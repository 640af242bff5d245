"""Stands in for ST's tool: reads an ONNX file, writes a report in the layout of Core 2.2, JSON and C; fails on demand.

Sizes are worked out from the file, as plainly as possible: weights are its int8, int32 and float constants, RAM the
largest tensor with input and output. FAKE_STEDGEAI says how it misbehaves; figures and numbers are this file's own.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import onnx
from onnx import numpy_helper

LIBRARY, NETWORK, DATA = (9000, 16, 0, 0), (700, 900, 1400, 120), (48, 16, 88, 0)
WEIGHT_PADDING = 4
FAILURES = {
    "unsupported": "NOT IMPLEMENTED: Unsupported layer types: ConvInteger,\nMatMulInteger\n\nWARNING: All log messages",
    "order": "NOT IMPLEMENTED: Order of dimensions of input cannot be interpreted",
    "internal": "INTERNAL ERROR: 'NoneType' object has no attribute 'shape'",
    "tool_error": "TOOL ERROR: Weights are incompatible with model: 10 loaded, 9 found",
}


def measure(path: str) -> dict[str, int]:
    """Return weights, activations (input and output among them) and macc of a file."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    quantised = [tensor for tensor in graph.initializer if tensor.name.endswith(("/weight", "/bias"))]
    kept = sum(numpy_helper.to_array(tensor).nbytes for tensor in quantised or graph.initializer)
    shapes = [value.type.tensor_type.shape.dim for value in (*graph.input, *graph.value_info, *graph.output)]
    tensors = [math.prod(dim.dim_value for dim in shape) for shape in shapes]
    return {"weights": kept, "activations": 2 * max(tensors), "macc": 10 * kept}


def row(name: str, numbers: tuple[int, ...]) -> str:
    return f" {name:<30} " + " ".join(f"{number:>8,}" for number in numbers) + " \n"


Arrays = list[tuple[str, int, str]]


def text_report(command: str, model: str, weights: int, activations: int, macc: int, arrays: Arrays) -> str:
    """Return a report as Core 2.2 lays it out, with the sections that need a compiler."""
    runtime = tuple(map(sum, zip(LIBRARY, NETWORK, DATA, strict=True)))
    stored, live = (0, weights + WEIGHT_PADDING, 0, 0), (0, 0, 0, activations)
    total = tuple(map(sum, zip(runtime, stored, live, strict=True)))
    table = "".join(
        f"{at:<6} {name:<30} {size}/{size:<10} {domain:<25} s8 \n" for at, (name, size, domain) in enumerate(arrays)
    )
    return (
        f"ST Edge AI Core v2.2.0-77777 0badc0de\nCreated date          : 2026-01-02 03:04:05\n\n"
        f"Exec/report summary ({command})\n{'-' * 60}\n"
        f"model_name         :   {model}   \n"
        f"macc               :   {macc:,}   \n"
        f"weights (ro)       :   {weights:,} B ({weights / 1024:.2f} KiB) (1 segment)   \n"
        f"activations (rw)   :   {activations:,} B ({activations / 1024:.2f} KiB) (1 segment) *   \n"
        f"ram (total)        :   {activations:,} B ({activations / 1024:.2f} KiB) = {activations:,} + 0 + 0   \n"
        f"{'-' * 60}\n\nModel name - {model}\n"
        f"0      image (Input, )              [b:1]        | \n"
        f"       stem (Conv2D, Conv)          [b:1,c:8]    | \n"
        f"1      head (Gemm, Gemm)            [b:1,c:5]    | \n"
        f"model/c-model: macc={macc:,}/{macc:,}  weights={weights:,}/{weights:,}  activations=--/{activations:,}\n"
        f"\nGenerated C-graph summary\nactivations size      : {activations} (1 segment)\n"
        f"weights size          : {weights} (1 segment)\nmacc                  : {macc}\n\n"
        f"C-Arrays ({len(arrays)})\n------ ---\nc_id   name (*_array)   item/size\n------ ---\n{table}------ ---\n\n"
        f"C-Layers (1)\n\nComplexity report (model)\n"
        f"macc={macc:,} weights={weights:,} act={activations:,} ram_io=0\n \n"
        ' Requested memory size by section - "stm32f4" target\n'
        " ------------------------------ -------- \n module                             text   rodata    data   bss \n"
        + row("NetworkRuntime1020_CM4_GCC.a", LIBRARY)
        + row("network.o", NETWORK)
        + row("network_data.o", DATA)
        + row("RT total**", runtime)
        + row("weights", stored)
        + row("activations", live)
        + row("io", (0, 0, 0, 0))
        + row("TOTAL", total)
        + " *  toolchain objects (libm/libgcc*)\n  \n"
        '  Summary - "stm32f4" target\n               FLASH (ro)      %*   RAM (rw)       % \n'
        f"  RT total    {sum(runtime[:3]):>11,}   50.0% {sum(runtime[2:]):>10,}   50.0% \n"
        f"  TOTAL       {sum(total[:3]):>11,}         {sum(total[2:]):>10,}         \n  *  rt/total\n"
    )


def arrays_of(path: str, activations: int) -> Arrays:
    """Return arrays named as ST names them, after the tensors of the first and the last node with weights."""
    nodes = [node for node in onnx.load(path).graph.node if node.op_type in ("Conv", "Gemm")]
    names = ["".join(c if c.isalnum() else "_" for c in node.output[0]) for node in (nodes[0], nodes[-1])]
    return [
        (f"{names[0]}_output", activations // 2, "activations/**default**"),
        (f"{names[1]}_weights", 1 << 10, "weights/weights"),
        (f"{names[0]}_bias", 32, "weights/weights"),
    ]


def c_info(model: str, weights: int, activations: int, macc: int, kernel_flash: int | None = 1) -> str:
    pools = [("ACC_WRITE", activations), ("ACC_READ", weights)]
    return json.dumps(
        {
            "buffers": [{"name": "stem_output_array", "size_bytes": 10, "is_param": False}],
            "environment": {"tools": [{"name": "ST.EdgeAI.Core", "version": "2.2.0-77777"}]},
            "graphs": [{"name": model, "nodes": [{"description": "Conv2D", "macc": macc}]}],
            "memory_footprint": {
                "activations": activations,
                "io": [0, 0],
                "weights": weights,
                "kernel_flash": kernel_flash,
            },
            "memory_pools": [{"rights": rights, "used_size_bytes": size} for rights, size in pools],
        }
    )


def main() -> int:
    command, mode = sys.argv[1], os.environ.get("FAKE_STEDGEAI", "")
    if command == "--version":
        print("what?" if mode == "no_version" else "ST Edge AI Core v2.2.0-77777 0badc0de")
        return 0
    if mode in FAILURES:
        print(f"ST Edge AI Core v2.2.0-77777 0badc0de\n{FAILURES[mode]}")
        return 0 if mode in ("unsupported", "internal") else 1
    if mode == "hang":
        time.sleep(600)
    if mode == "rubbish":
        sys.stdout.buffer.write(bytes(range(256)) * 100)
        return 0
    if mode == "fails_in_silence":
        return 3
    return work(command, mode, dict(zip(sys.argv[2:], sys.argv[3:], strict=False)))


def work(command: str, mode: str, options: dict[str, str]) -> int:
    """Write what a command that succeeds writes; some modes spoil it."""
    found = measure(options["--model"])
    model, output = Path(options["--model"]).stem, Path(options["--output"])
    if mode == "generate_grows" and command == "generate":
        found["weights"] += 8
    if mode == "fills_the_disk":
        with (output / "network_data.c").open("wb") as file:
            for _ in range(8):
                file.write(os.urandom(1 << 20))
    report = text_report(command, model, arrays=arrays_of(options["--model"], found["activations"]), **found)
    changes = {
        "cut_off": report[: len(report) // 2],
        "no_compiler": report[: report.index(" Requested")],
        "another_model": report.replace(f"   {model}   ", "   other   "),
    }
    (output / f"network_{command}_report.txt").write_text(changes.get(mode, report))
    other = {**found, "weights": found["weights"] + (mode == "json_disagrees")}
    compiled = None if mode == "no_compiler" else 1
    (Path(options["--workspace"]) / "network_c_info.json").write_text(c_info(model, **other, kernel_flash=compiled))
    if mode == "remark":
        print("E: stem layer - number of I/O tensor is not coherent: 0/1")
    if command == "generate":
        for name in ("network.c", "network.h", "network_data.c", "network_data.h"):
            (output / name).write_text(f"/* {name} */\n")
    if command == "validate":
        print(" X-cross #1   100.00%   0.001408418   0.000273437   0.004749658   0.999   'logits', 10 x int8(1x5)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
