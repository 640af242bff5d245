"""A network that the user already has: through the ladder, onto the emulated board, into a bundle."""

import hashlib
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from automcu_ray.core.errors import BoardError, ConfigError, ToolchainError
from automcu_ray.core.feasibility import FeasibilityReport
from automcu_ray.core.folder_lock import held
from automcu_ray.deploy import foreign
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.deploy.pixels import KNOWN, Pixels
from automcu_ray.deploy.untrusted_onnx import ForeignNetwork
from automcu_ray.networks import code_screening
from automcu_ray.networks.candidate import Candidate, GeneratedCode
from automcu_ray.problem.precision import Precision
from automcu_ray.problem.target import Constraints, McuTarget
from automcu_ray.records.events import Brought, FinalistEvaluated, Finished, Started
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import NetworkManifest
from automcu_ray.records.record import Finalist, TrainingSummary
from automcu_ray.reports.console import say
from automcu_ray.reports.run_report import write_report
from automcu_ray.run.plan import Plan
from automcu_ray.runtime.config_files import CONFIGS, names, read_yaml
from automcu_ray.runtime.run_folder import RunFolder, host, versions
from backends.toolchain import Toolchain, in_words_of_the_spec
from trainables.datasets.base import Dataset
from trainables.finalists.board_check import run_on_board
from trainables.finalists.finalist import FinalistPipeline, Trained, run_finalist, take_through
from trainables.finalists.test_evaluation import evaluate_on_test
from trainables.jail.toolchain import hopeless

SAMPLE = 256  # images that tell in which form a network takes its pixels


@dataclass(frozen=True)
class Given:
    """The file that a user wants deployed: an ONNX file with its weights, or Python code that is trained first."""

    path: Path
    content: bytes

    @classmethod
    def read(cls, path: Path) -> "Given":
        """Read the file.

        Raises:
            ConfigError: there is none, or of another kind.
        """
        if path.suffix not in (".onnx", ".py"):
            raise ConfigError(f"deploy takes a .onnx file, or a .py file with a torch module, found {path.name!r}.")
        try:
            return cls(path, path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error

    @property
    def candidate(self) -> Candidate:
        """The file as the one candidate of a run.

        Raises:
            ConfigError: code that the jail would not run.
        """
        if self.path.suffix == ".onnx":
            return Candidate(number=1, hash=hashlib.sha256(self.content).hexdigest()[:12], proposer="file")
        code = self.content.decode(errors="replace")
        try:
            code_screening.screen(code)
        except code_screening.CodeError as error:
            raise ConfigError(f"{self.path}: {error}") from error
        return Candidate(
            number=1, hash=code_screening.code_hash(code), network=GeneratedCode(code=code), proposer="file"
        )

    @property
    def architecture(self) -> str:
        """What a manifest calls it: an ONNX file's name and digest, or the code."""
        if self.path.suffix == ".onnx":
            return f"{self.path.name}, SHA-256 {hashlib.sha256(self.content).hexdigest()}"
        return self.content.decode(errors="replace")


@dataclass(frozen=True)
class Adopted:
    """An ONNX file as it ships, what it holds, and what was changed in it."""

    deployed: DeployedNetwork
    holds: ForeignNetwork
    changes: list[str]


@dataclass(frozen=True)
class OnTarget:
    """What one target says of the network: its report, with instructions where its emulator ran it; or why not."""

    target: McuTarget
    report: FeasibilityReport | None = None
    trouble: str = ""

    @property
    def holds(self) -> bool:
        """Whether the network fits."""
        return self.report is not None and self.report.feasible

    @property
    def reason(self) -> str:
        """Why it does not fit, or was not built; "" where it fits."""
        return self.trouble or "; ".join(v.message for v in (self.report.violations if self.report else ()))


def deploy(
    plan: Plan, folder: RunFolder, console: Console, given: Given, adopted: Adopted | None, *, command: str
) -> tuple[Finalist, NetworkManifest | None]:
    """Take a network the whole way: toolchain, board, the test set once, the bundle.

    Code, which nobody has adopted, is first trained in the jail by the trainer's full protocol. There is no manifest
    where the network does not fit or fails; then the finalist's `reason` says why. Journal, report and bundle lie in
    the folder as a search's do; `command` is what the report gives to do it again.
    """
    candidate, task, dataset, config = given.candidate, plan.task, _images(plan), plan.config
    toolchain = None
    if plan.backend is not None:
        toolchain = Toolchain(task, config.backend.name, config.backend.options, folder.toolchain)
    pipeline = FinalistPipeline(
        task=task,
        protocol=config.trainer.full,
        train_split=dataset.train,
        val_split=dataset.val,
        toolchain=toolchain,
        board=plan.board,
        folder=folder.finalists,
        seed=config.seed,
        jail=config.finalist_jail,
        second_opinions=plan.second_opinions,
        recording=dataset.recording,
    )
    started_s = time.monotonic()
    with held(folder.path):
        folder.create(config)
        repository = Repository(folder.journal)
        repository.append(Started(at_s=time.time(), versions=versions(), host=host(), data=dataset.about))
        changes = tuple(adopted.changes) if adopted else ()
        repository.append(Brought(file=given.path.name, command=command, changes=changes))
        with console.status("toolchain and board" if adopted else "training, toolchain and board"):
            if adopted is None:
                finalist = run_finalist(candidate, pipeline)
            else:
                finalist = take_through(candidate, pipeline, lambda _: _as_given(adopted, plan), adopted.changes)
        repository.append(FinalistEvaluated(**dict(finalist)))
        manifest = None
        if finalist.usable:
            about: dict[str, Any] = {"seeds": {"run": config.seed}, "data": dataset.about, "versions": versions()}
            about |= {"architecture": given.architecture, "classes": dataset.classes}
            test = dataset.test.open(f"deployed {finalist.hash}", repository)
            images = config.board.images
            manifest = evaluate_on_test(
                finalist, pipeline, test, board_images=images, bundle=folder.bundle, about=about
            )
            repository.append(Finished(manifest=manifest, seconds=time.monotonic() - started_s))
        write_report(folder.report, config, task, repository)
    return finalist, manifest


def adopt(given: Given, plan: Plan, console: Console, pixels: Pixels | None) -> Adopted:
    """Return an ONNX file as it ships, calibrated on training images.

    Where nobody says what the network takes for a pixel, the form in which it is right most often on SAMPLE training
    images is taken, or best by the task's metric: the first of equals, and the first needs no layer in front. An
    autoencoder takes `symmetric`.

    Raises:
        ConfigError: `pixels` are of other images.
        ToolchainError: the file is refused.
    """
    task, train = plan.task, _images(plan).train
    if task.learning.kind == "anomaly":
        if pixels is not None and not pixels.ours:
            raise ConfigError(
                f"--pixels {pixels}: what an autoencoder gives is compared with what it takes, which here is "
                "(pixel - 128) / 128: --pixels symmetric, or leave it out."
            )
        pixels = KNOWN["symmetric"]
    if pixels is None:
        forms = [form for form in KNOWN.values() if form.fits(task.input_shape[0])]
        some = train.images[:SAMPLE], train.labels[:SAMPLE]
        right = [_deployed(given, plan, form, "float32").deployed.score(task.learning, *some) for form in forms]
        pixels = forms[right.index(max(right))]
        found = ", ".join(f"{form} {share:.3f}" for form, share in zip(forms, right, strict=True))
        told = "right" if task.learning.kind == "classification" else "score"
        say(console, f"pixels: {pixels} ({told} on {len(some[1])} training images: {found}); --pixels says otherwise")
    return _deployed(given, plan, pixels, task.precision)


def _deployed(given: Given, plan: Plan, pixels: Pixels, precision: Precision) -> Adopted:
    task = plan.task
    adopted = foreign.adopt(given.content, task.input_shape, task.num_classes, pixels)
    if adopted.quantised and task.precision == "float32":
        raise ConfigError(f"{given.path.name} is quantised already and ships at int8: leave --precision float32 out.")
    holds = foreign.check(adopted.model, task.input_shape, task.num_classes, pairs=adopted.quantised)
    calibration = _images(plan).train.images[: plan.config.trainer.full.calibration_images]
    if adopted.quantised:  # whatever precision its pixels are tried at
        how: Any = {"pixels": pixels, "calibration": calibration}
        deployed, notes = foreign.deploy_quantised(adopted.model, given.content, task.input_shape, **how)
        return Adopted(deployed, holds, adopted.changes + notes)
    deployed = foreign.deploy(adopted.model, task.input_shape, precision=precision, calibration=calibration)
    return Adopted(deployed, holds, adopted.changes)


def _images(plan: Plan) -> Dataset:
    if not isinstance(plan.dataset, Dataset):
        raise ConfigError(f"deploy wants a data set of images; {plan.dataset.name!r} is a table of results.")
    return plan.dataset


def _as_given(adopted: Adopted, plan: Plan) -> Trained:
    """Return a network that came with its weights as a training that has been: only validation is measured."""
    if over := hopeless(adopted.holds, plan.task):
        raise ToolchainError(over.message)
    val, deployed = _images(plan).val, adopted.deployed
    learning = plan.task.learning
    in_float = deployed.as_float.score(learning, val.images, val.labels)
    found = deployed.score(learning, val.images, val.labels)
    about: Any = {"metric": learning.metric, "metric_value": learning.reported(found), "epochs": 0}
    return TrainingSummary(val_accuracy=found, val_accuracy_float=in_float, **about), deployed


def on_all_targets(adopted: Adopted, plan: Plan, console: Console) -> list[OnTarget]:
    """Return what each target of `configs/target` says of a network within its memory; those emulated run it once."""
    targets = [McuTarget.model_validate(read_yaml(CONFIGS / "target" / f"{name}.yaml")) for name in names("target")]
    found = []
    with tempfile.TemporaryDirectory(prefix="automcu-deploy-") as folder, console.status("") as status:
        for number, target in enumerate(targets, start=1):
            status.update(f"target {number} of {len(targets)}: {target.name}")
            workdir = Path(folder, target.name)
            workdir.mkdir()
            found.append(_on_target(target, adopted, plan, workdir))
    return found


def _on_target(target: McuTarget, adopted: Adopted, plan: Plan, workdir: Path) -> OnTarget:
    task, deployed = plan.task.replace(target=target, constraints=Constraints()), adopted.deployed
    assert plan.backend is not None, "sizes are asked of a toolchain"
    if target.accelerator is not None:
        return OnTarget(target, trouble="only its vendor's toolchain builds for it")
    if over := hopeless(adopted.holds, task):
        return OnTarget(target, trouble=over.message)
    try:
        firmware = plan.backend.build(deployed, target, task.constraints, workdir)
        report = in_words_of_the_spec(firmware.report, deployed)
        if plan.board is not None and firmware.board_elf is not None and target.emulator is not None:
            ran = run_on_board(plan.board, firmware.board_elf, task, deployed, _images(plan).val.images[:1])
            report = report.replace(instructions=ran.instructions)
    except (ToolchainError, BoardError) as error:
        return OnTarget(target, trouble=deployed.in_words(str(error)))
    return OnTarget(target, report)
