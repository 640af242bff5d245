"""A network on the board: every output beside onnxruntime's."""

from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from automcu_ray.core.errors import BoardError
from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.problem.task import Task
from automcu_ray.records.record import BoardResult
from backends.boards.agreement import compare
from backends.boards.base import Board
from trainables.datasets.base import Images


@retry(retry=retry_if_exception_type(BoardError), stop=stop_after_attempt(2), reraise=True)
def run_on_board(board: Board, elf: Path, task: Task, deployed: DeployedNetwork, images: Images) -> BoardResult:
    """Run images (N, C, H, W) on a board and compare every output with onnxruntime's; tried twice.

    Raises:
        BoardError: the board did not answer as agreed, two times.
    """
    run = board.run(
        elf,
        task.target,
        deployed.encode(images),
        output_dtype=deployed.output_dtype,
        output_count=deployed.num_classes,
    )
    expected = deployed.run(images)
    found = compare(run.outputs, expected, deployed.precision)
    return BoardResult(
        name=board.label(task.target),
        images=len(images),
        bit_equal_images=found.bit_equal,
        largest_difference=found.largest_difference,
        agrees=found.agrees,
        instructions=run.instructions,
        stack_used_bytes=run.stack_used_bytes,
        seconds=run.seconds,
    )
