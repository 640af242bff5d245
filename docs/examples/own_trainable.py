"""A searcher of ours in a Ray Tune script of your own: your training, your data, your idea of accuracy.

    python docs/examples/own_trainable.py

The searcher proposes networks that meet the task's analytic limits; the trainable trains each a little. A trial's
config holds the network as `spec`; what it reports as `val_accuracy` is what the searcher learns from.
"""

from typing import Any

import torch
from ray import tune
from sklearn.datasets import load_digits

from automcu_ray import task
from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from searchers.tune_searchers import EvolutionSearch

SAMPLES, EPOCHS = 8, 3


class MyTrainable(tune.Trainable):  # type: ignore[misc]
    """Trains a network for an epoch a step, on images of its own."""

    def setup(self, config: dict[str, Any], task: Task) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        images, labels = load_digits(return_X_y=True)
        self.images = torch.tensor(images, dtype=torch.float32).reshape(-1, *task.input_shape) / 8 - 1
        self.labels = torch.tensor(labels)
        self.network = Network(task.space.graph(ArchitectureSpec.model_validate(config["spec"])))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=3e-3)

    def step(self) -> dict[str, Any]:
        """Train on the first 1,400 images, validate on the others."""
        self.network.train()
        for batch in torch.randperm(1400).split(64):
            loss = torch.nn.functional.cross_entropy(self.network(self.images[batch]), self.labels[batch])
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.network.eval()
        with torch.no_grad():
            right = self.network(self.images[1400:]).argmax(dim=1) == self.labels[1400:]
        return {"val_accuracy": float(right.float().mean()), "done": self.iteration + 1 >= EPOCHS}


def main() -> None:
    """Search, and print the best network."""
    mine = task("digits", target="stm32f405", settings={"constraints.ram": "16KB"})
    searcher = EvolutionSearch(mine, seed=0)
    tuner = tune.Tuner(
        tune.with_parameters(MyTrainable, task=mine),
        tune_config=tune.TuneConfig(search_alg=searcher, num_samples=SAMPLES, max_concurrent_trials=1),
        run_config=tune.RunConfig(verbose=0, checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False)),
    )
    best = tuner.fit().get_best_result("val_accuracy", "max")
    print(f"{best.metrics['val_accuracy']:.4f} {best.config['spec']}")
    print(f"{len(searcher.repository.records)} records, refusals among them")


if __name__ == "__main__":
    main()
