"""The test images that a network is most sure of, and wrong about: what people look at first."""

from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from automcu_ray.deploy.export import DeployedNetwork
from automcu_ray.records.manifest import Mistake
from trainables.datasets.base import Images, Labels

MOST = 12


def worst_mistakes(deployed: DeployedNetwork, outputs: npt.NDArray[Any], labels: Labels) -> tuple[Mistake, ...]:
    """Return the mistakes with the largest softmax, at most twelve, the worst first; outputs are (N, classes)."""
    reals = outputs.astype(np.float64)
    if deployed.output_scale is not None:  # the zero point is the same for all classes: softmax does not see it
        reals *= deployed.output_scale
    shares = softmax(reals, axis=1)
    answers = shares.argmax(axis=1)
    confidence = shares.max(axis=1)
    wrong = np.flatnonzero(answers != labels)
    worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:MOST]
    return tuple(
        Mistake(image=int(at), label=int(labels[at]), answer=int(answers[at]), confidence=float(confidence[at]))
        for at in worst
    )


def draw(mistakes: tuple[Mistake, ...], images: Images, path: Path) -> None:
    """Write the images of mistakes as one PNG, side by side; signals, which are no pictures, leave none."""
    path.unlink(missing_ok=True)
    if not mistakes or images.shape[2] == 1:
        return
    pixels = np.concatenate([images[mistake.image] for mistake in mistakes], axis=2)  # (channels, height, all widths)
    colours = pixels if len(pixels) == 3 else np.repeat(pixels[:1], 3, axis=0)
    matplotlib.image.imsave(path, np.ascontiguousarray(colours.transpose(1, 2, 0)), format="png")
