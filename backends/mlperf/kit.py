"""What MLPerf's runner reads beside the firmware: pictures with labels, a list of devices, scripts of the two modes."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

PERFORMANCE_S = 11  # of one window: the rules want 10 at least
TEST_USB = {0x1209: 0x0001}  # pid.codes' number for tests; a real board has its own
BAUDS = {"energy": 9600, "performance": 115200, "accuracy": 115200}


def write_pictures(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], classes: int, folder: Path) -> None:
    """Write images (N, C, H, W) as the runner sends them: row by row, channels beside each other; and y_labels.csv."""
    folder.mkdir(parents=True)
    lines = []
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        name = f"{number:05}.bin"
        (folder / name).write_bytes(np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes())
        lines.append(f"{name},{classes},{int(label)}\n")
    (folder / "y_labels.csv").write_text("".join(lines))


def write_scripts(folder: Path, model: str, inferences_a_second: float | None) -> None:
    """Write `devices.yaml` and a test script for each mode.

    Performance and energy take five windows of as many inferences as `PERFORMANCE_S` hold; 10 where nobody knows.
    """
    runs = 10 if inferences_a_second is None else max(1, math.ceil(PERFORMANCE_S * inferences_a_second))
    device = {"name": "automcu", "type": "dut", "baud": BAUDS, "usb": TEST_USB}
    (folder / "devices.yaml").write_text(yaml.safe_dump([device]))
    for mode, loop, count in (("accuracy", "loop", 1), ("performance", "loop 5", runs), ("energy", "loop 5", runs)):
        steps = [{loop: ["download", f"infer {count} {0 if mode == 'accuracy' else 1}"]}]
        script = {"name": model, "model": model, "truth_file": "y_labels.csv", "script": steps}
        (folder / f"tests_{mode}.yaml").write_text(yaml.safe_dump({model: script}))
