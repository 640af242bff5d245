"""ST Edge AI Core (STM32Cube.AI, X-CUBE-AI): ONNX -> C for the user's own STM32 project, with ST's figures.

The tool itself was not at hand when this was written: options and environment follow ST's documentation, reports were
read from public projects (X-CUBE-AI 5.0 to ST Edge AI Core 3.0), and the tests run a stand-in. Not checked against the
real tool: exit codes, where each version leaves its files, and that it takes our operators and integer inputs.
"""

import functools
import os
import re
import shutil
from pathlib import Path
from typing import Literal

from automcu_ray.core.errors import ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport, Rung, Violation
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.networks.graph import Graph
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.problem.task import Task
from backends import int8_graph, qdq
from backends.base import Backend, Firmware, check_bounds_of_whole_tensors
from backends.programs import Completed, Runner, cpu_seconds, missing, run_program, scratch_folder
from backends.qdq import importable
from backends.source_fingerprint import SHARED, digest
from backends.stedgeai.json_reports import read_json
from backends.stedgeai.report import VendorReport, agreed
from backends.stedgeai.text_reports import read_text
from backends.stedgeai.verdict import judge, refusal

TOOL, OLDER_TOOL, GCC = "stedgeai", "stm32ai", "arm-none-eabi-gcc"
WHERE = "https://www.st.com/en/development-tools/stedgeai-core.html"
NAME, MODEL = "network", "network.onnx"
WORKSPACE, OUTPUT = "workspace", "output"
REPORT_BYTES = 4 << 20  # text reports in the wild have up to 180 kB, JSON 245 kB
_SOURCE = re.compile(rf"(?:stai_)?{NAME}\w*\.(?:c|h)|{NAME}_generate_report\.txt")
_SERIES = re.compile(r"stm32([a-z]\d|w[a-z]{1,2})")
_BROKEN = re.compile(r"\b(?:INTERNAL|TOOL) ERROR\b|^E\d{3}\b")
_CROSS = re.compile(r"^ *X-cross #1 .*$", re.MULTILINE)


class StEdgeAiBackend(Backend):
    """`analyze` gives the verdict, `generate` the C of a network that fits; the ELF is built by the user's project.

    RAM is activations, input, output and runtime, Flash weights, code and runtime, as the tool compiles them itself:
    for that arm-none-eabi-gcc has to be on PATH. The stack is the user's project's own and in no figure. With
    `validate` the tool also compares its C, run on this computer, with the ONNX file, on its own random inputs.
    `neural_art` names a profile of the NPU of an STM32N6, which then computes what it can.
    """

    name = "stedgeai"
    programs = (TOOL, GCC)
    measures = frozenset({"ram", "flash", "operators"})

    def __init__(
        self,
        *,
        optimization: Literal["balanced", "time", "ram"] = "balanced",
        validate: bool = False,
        neural_art: str | None = None,
        timeout_s: float = 600,
        run: Runner = run_program,
    ) -> None:
        super().__init__(run=run)
        self.optimization = optimization
        self.validate = validate
        self.neural_art = neural_art
        self.timeout_s = timeout_s

    def missing_programs(self) -> tuple[str, ...]:
        return (*(() if find_tool() else (TOOL,)), *missing([GCC]))

    def how_to_install(self) -> str:
        absent = self.missing_programs()
        tool = f"ST Edge AI Core from {WHERE}, then export STEDGEAI_CORE_DIR=<its folder>" if TOOL in absent else ""
        gcc = "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi" if GCC in absent else ""
        return "; ".join(filter(None, (tool, gcc)))

    def unsuitable(self, task: Task) -> str:
        if _SERIES.match(task.target.name):
            return ""
        return (
            f"ST's tool builds for STM32 only. Take a target named stm32..., or backend c_qemu for {task.target.name}"
        )

    def check_bounds(self, graph: Graph, task: Task) -> tuple[Violation, ...]:
        """`--compression none` keeps all weights; ST's planner is its own."""
        return check_bounds_of_whole_tensors(graph, task)

    def version(self) -> str:
        ours = digest(Path(__file__).parent, int8_graph, qdq, *SHARED)
        checked = ", validate" if self.validate else ""
        npu = f", NPU {self.neural_art}" if self.neural_art else ""
        return f"{self._tool_version}, {self.optimization}{checked}{npu}, ours {ours}"

    @functools.cached_property
    def _tool_version(self) -> str:
        said = []
        for argv in ([self._tool(), "--version"], [GCC, "-dumpfullversion"]):
            done = self.run(argv, timeout_s=120, cwd=scratch_folder())
            words = " ".join(done.stdout.split())[:200]
            if done.returncode != 0 or not re.search(r"\d+\.\d+", words):
                raise ToolchainError(f"{argv[0]} should say its version, found {words[:80]!r}.")
            said.append(words)
        return f"{said[0]}, {GCC} {said[1]}"

    def _tool(self) -> str:
        return find_tool() or TOOL  # which `run` will not find: its error says how to install it

    def build(self, deployed: DeployedNetwork, target: McuTarget, constraints: Constraints, workdir: Path) -> Firmware:
        start = cpu_seconds()
        (workdir / MODEL).write_bytes(importable(deployed))
        converted = cpu_seconds()
        found = self._ask("analyze", deployed, target, workdir)
        if isinstance(found, Violation):
            refused = FeasibilityReport(feasible=False, backend=self.name, rung=Rung.CONVERT, violations=(found,))
            return Firmware(refused, None, (), workdir)
        report = judge(*found, deployed, target, constraints)
        sources: tuple[Path, ...] = ()
        if report.feasible:
            sources = self._generate(report, deployed, target, workdir)
            report = report.replace(notes=(*report.notes, *self._validate(deployed, target, workdir)))
        seconds = {str(Rung.CONVERT): converted - start, str(Rung.VENDOR): cpu_seconds() - converted}
        return Firmware(report.replace(seconds_by_rung=seconds), None, sources, workdir)

    def _generate(
        self, report: FeasibilityReport, deployed: DeployedNetwork, target: McuTarget, workdir: Path
    ) -> tuple[Path, ...]:
        """Return the C code, ST's report and the ONNX file that they were made of; its sizes must be the verdict's."""
        found = self._ask("generate", deployed, target, workdir)
        if isinstance(found, Violation):
            raise ToolchainError(f"{TOOL} generate refuses what analyze took: {found.message}. Log: {workdir}.")
        again = judge(*found, deployed, target, Constraints())
        if (again.ram, again.flash) != (report.ram, report.flash):
            raise ToolchainError(f"{TOOL} generate found {again.ram}, {again.flash}, analyze other sizes: {workdir}.")
        written = [p for p in sorted((workdir / OUTPUT).iterdir()) if _SOURCE.fullmatch(p.name) and not p.is_symlink()]
        if not {f"{NAME}.c", f"{NAME}.h"} <= {path.name for path in written}:
            names = [path.name for path in written]
            raise ToolchainError(f"{TOOL} generate should write {NAME}.c and {NAME}.h, found {names}.")
        return (*written, workdir / MODEL)

    def _ask(
        self, command: str, deployed: DeployedNetwork, target: McuTarget, workdir: Path
    ) -> tuple[VendorReport, tuple[str, ...]] | Violation:
        """Return the tool's figures and remarks, or its refusal of the network."""
        done = self._run(command, deployed, target, workdir)
        said = f"{done.stdout}\n{done.stderr}".replace("\r", "")
        if refused := refusal(said):
            return refused
        lines = list(filter(None, map(str.strip, said.splitlines())))
        if broken := next(filter(_BROKEN.search, lines), None):
            raise ToolchainError(f"{TOOL} {command} broke: {broken[:300]}. Log: {workdir}.")
        if done.returncode != 0:
            last = lines[-1][:300] if lines else "silent"
            raise ToolchainError(f"{TOOL} {command} failed ({done.returncode}): {last}. Log: {workdir}.")
        return _read(command, workdir), tuple(line[:300] for line in lines if line.startswith("E: "))[:5]

    def _run(self, command: str, deployed: DeployedNetwork, target: McuTarget, workdir: Path, *more: str) -> Completed:
        for folder in (WORKSPACE, OUTPUT):
            shutil.rmtree(workdir / folder, ignore_errors=True)  # no figure of another run
            (workdir / folder).mkdir()
        tool, series = self._tool(), _SERIES.match(target.name)
        if series is None:
            raise ToolchainError(f"{TOOL} needs a target of the STM32 series, found {target.name!r}.")
        argv = [tool, command, "--model", MODEL, "--type", "onnx", "--name", NAME]
        if Path(tool).name == OLDER_TOOL:  # X-CUBE-AI up to 8 keeps input and output apart unless told otherwise
            argv += ["--series", series[0], "--allocate-inputs", "--allocate-outputs"]
        else:
            argv += ["--target", series[0]]
            argv += ["--st-neural-art", self.neural_art] if self.neural_art else []
            argv += ["--input-data-type", "int8", "--output-data-type", "int8"] if deployed.precision == "int8" else []
        argv += ["--optimization", self.optimization, "--compression", "none", "--verbosity", "1"]
        argv += ["--workspace", WORKSPACE, "--output", OUTPUT, *more]
        return self.run(argv, timeout_s=self.timeout_s, cwd=workdir)

    def validate_on_target(
        self, deployed: DeployedNetwork, target: McuTarget, workdir: Path, port: str, inputs: str
    ) -> None:
        """Let ST's firmware on a board compute `inputs` (a .npy file in `workdir`); what it answers is in the output.

        `port` is as the tool describes one: serial:/dev/ttyACM0:921600.

        Raises:
            ToolchainError: the tool failed.
        """
        more = ("--mode", "target", "--desc", port, "--valinput", inputs)
        done = self._run("validate", deployed, target, workdir, *more)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1][:300]
            raise ToolchainError(f"{TOOL} validate failed on the board ({done.returncode}): {said}. Log: {workdir}.")

    def _validate(self, deployed: DeployedNetwork, target: McuTarget, workdir: Path) -> tuple[str, ...]:
        """Return what the tool says about its C against the ONNX file; () unless asked for."""
        if not self.validate:
            return ()
        folder = workdir / "validate"
        folder.mkdir(exist_ok=True)  # the C of `generate` stays where it is
        shutil.copy(workdir / MODEL, folder)
        done = self._run("validate", deployed, target, folder, "--mode", "host")
        row = _CROSS.search(done.stdout)
        if done.returncode != 0 or row is None:
            raise ToolchainError(f"{TOOL} validate should compare outputs (X-cross), found none. Log: {folder}.")
        return (f"{TOOL} validate: {' '.join(row[0].split())[:200]}",)


def find_tool() -> str | None:
    """Return ST's tool as a command: on PATH, or where ST's installer put it; None where there is none.

    Source: "Setting environment for ST Edge AI Core", stedgeai-dc.st.com/assets/embedded-docs/setting_env.html.
    """
    core = os.environ.get("STEDGEAI_CORE_DIR", "")
    installed = str(Path(core, "Utilities", "linux", TOOL)) if core else TOOL
    found = next(filter(None, map(shutil.which, (TOOL, installed, OLDER_TOOL))), None)
    return found and os.path.abspath(found)


def _read(command: str, workdir: Path) -> VendorReport:
    """Return the figures of the report that a command left; where there is JSON beside it, both must agree."""
    found = read_text(_text(workdir / OUTPUT / f"{NAME}_{command}_report.txt"))
    if found.model != NAME:
        raise ToolchainError(f"the report should be about {NAME!r}, found {found.model!r}.")
    for folder in (OUTPUT, WORKSPACE) if found.runtime else ():  # without it there is no verdict, and `judge` says why
        path = workdir / folder / f"{NAME}_c_info.json"
        if path.exists():
            other = read_json(_text(path))
            agreed("weights in text and JSON", [found.weights_bytes, other.weights_bytes])
            agreed("activations in text and JSON", [found.activations_bytes, other.activations_bytes])
    return found


def _text(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise ToolchainError(f"{TOOL} should leave {path.name}, found none. Log: {path.parents[1]}.")
    with path.open("rb") as file:
        return file.read(REPORT_BYTES).decode(errors="replace")
