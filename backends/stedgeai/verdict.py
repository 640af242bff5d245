"""What ST's figures mean for a board: the feasibility report of a network, or the tool's refusal of it."""

import re

import onnx

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, FlashUsage, RamUsage, Rung, Violation, over_limit
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.target import Constraints, McuTarget
from backends.qdq import result_name
from backends.stedgeai.report import VendorReport

BACKEND = "stedgeai"
_REFUSED = re.compile(r"NOT IMPLEMENTED: (.+?)(?:\n\s*\n|\Z)", re.DOTALL)
_UNSUPPORTED = re.compile(r"Unsupported layer types:\s*((?:\w+,\s+)*\w+)")


def refusal(said: str) -> Violation | None:
    """Return why the tool does not take a network, from what it printed; None where it says no such thing.

    Its words are `NOT IMPLEMENTED: Unsupported layer types: Range, OneHot`, sometimes over two lines.
    """
    found = _REFUSED.search(said)
    if found is None:
        return None
    message = " ".join(found[1].split())[:300]
    types = _UNSUPPORTED.search(message)
    return Violation(
        rung=Rung.CONVERT,
        resource="operator",
        where=", ".join(kind for kind in re.split(r",?\s+", types[1]) if kind != "stopping") if types else "",
        message=f"ST's tool does not take this network: {message}",
    )


def judge(
    found: VendorReport,
    remarks: tuple[str, ...],
    deployed: DeployedNetwork,
    target: McuTarget,
    constraints: Constraints,
) -> FeasibilityReport:
    """Return the verdict that a report's figures give. The stack is the user's project's, and 0 in the parts.

    Raises:
        ToolchainError: the report lacks what the runtime needs, without which nothing can be said to fit.
    """
    runtime = found.runtime
    if runtime is None or runtime.code_bytes is None or runtime.total_flash_bytes is None:
        raise ToolchainError(
            "ST's report should give the memory of code and runtime, found none: that takes version 8.0 or later, and "
            "arm-none-eabi-gcc on PATH."
        )
    ram = RamUsage(
        arena_bytes=found.activations_bytes,
        io_bytes=found.io_bytes,
        stack_bytes=0,
        data_bss_bytes=runtime.ram_bytes,
        total_bytes=found.ram_bytes + runtime.ram_bytes,
    )
    flash = FlashUsage(
        code_bytes=runtime.code_bytes,
        weights_bytes=runtime.total_flash_bytes - runtime.flash_bytes,
        runtime_bytes=runtime.flash_bytes - runtime.code_bytes,
        total_bytes=runtime.total_flash_bytes,
    )
    needs = (
        ("ram", ram.total_bytes, constraints.ram_limit_bytes(target)),
        ("flash", flash.total_bytes, constraints.flash_limit_bytes(target)),
    )
    violations = tuple(
        _violation(resource, need, limit, found, deployed) for resource, need, limit in needs if need > limit
    )
    return FeasibilityReport(
        feasible=not violations,
        backend=BACKEND,
        rung=Rung.VENDOR,
        ram_bytes=ram.total_bytes,
        flash_bytes=flash.total_bytes,
        ram=ram,
        flash=flash,
        operators=found.operators,
        violations=violations,
        notes=(found.tool, f"macc {found.macs} as ST counts them", "the stack is not in ST's figures", *remarks),
    )


def _violation(resource: str, need: int, limit: int, found: VendorReport, deployed: DeployedNetwork) -> Violation:
    """Return a violation that names the largest array, and the node of the deployed network that it belongs to.

    ST names arrays after the tensor that a node gives: `/fc1/Gemm` becomes `_fc1_Gemm_weights`.
    """
    where, part = "", "."
    if largest := found.largest(in_flash=resource == "flash"):
        names = [node.name for node in onnx.load_from_string(deployed.onnx).graph.node]
        known = {re.sub(r"\W", "_", result_name(name)): name for name in names}
        matching = [name for name in known if largest.name.startswith(f"{name}_")]
        where = known[max(matching, key=len)] if matching else largest.name
        part = f"; the largest array is {largest.name} of {where} ({largest.size_bytes} bytes)."
    return over_limit(Rung.VENDOR, resource, where, need, limit, part=part)
