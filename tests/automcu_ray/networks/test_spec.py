"""Specs: the paper's JSON, constructibility, hashes, sampling and mutation."""

import json
import re
from pathlib import Path
from random import Random

import pytest
import torch
from pydantic import ValidationError

from automcu_ray.deploy.torch_network import Network
from automcu_ray.networks.graph import ConstructibilityError
from automcu_ray.networks.lowering import lower
from automcu_ray.networks.search_space import TYPES, Space
from automcu_ray.networks.spec import ArchitectureSpec, explain
from automcu_ray.sizing.footprint import footprint

CIFAR = (3, 32, 32)
DATA = Path(__file__).parent / "data"
CIFAR_SPACE = Space(input_shape=CIFAR, num_classes=10)


def spec(*layers: dict[str, object], head: dict[str, object] | None = None) -> ArchitectureSpec:
    return ArchitectureSpec.model_validate({"backbone": list(layers), "head": head or {}})


def refusal(*layers: dict[str, object], head: dict[str, object] | None = None) -> str:
    with pytest.raises(ConstructibilityError) as caught:
        lower(spec(*layers, head=head), CIFAR, 10)
    return str(caught.value)


def paper_example(name: str) -> ArchitectureSpec:
    """An example as typeset: a key may be broken after its opening quote, a comma stand before a closing bracket."""
    whole_keys = re.sub(r'"\s*\n\s*"?(?=\w+":)', '"', (DATA / f"{name}.json").read_text())
    return ArchitectureSpec.model_validate_json(re.sub(r",(\s*[}\]])", r"\1", whole_keys))


class TestPaperExamples:
    @pytest.mark.parametrize("name", ["paper000_candidate", "paper000_repository_entry"])
    def test_parses_as_typeset_builds_and_runs_forward(self, name: str) -> None:
        graph = lower(paper_example(name), CIFAR, 10)
        logits = Network(graph)(torch.randn(2, *CIFAR))
        assert logits.shape == (2, 10)
        assert torch.isfinite(logits).all()

    def test_repository_entry_has_the_papers_flash_within_one_percent(self) -> None:
        graph = lower(paper_example("paper000_repository_entry"), CIFAR, 10)
        assert 4 * footprint(graph, "float32").parameters / 1024 == pytest.approx(64.41, rel=0.01)

    def test_dict_is_ordered_by_the_number_in_the_key_and_equals_the_list(self) -> None:
        a, b = {"type": "conv", "out_channels": 4}, {"type": "pointwise", "out_channels": 8}
        layers = {f"layer_{i}": a for i in range(1, 10)} | {"layer_11": a, "layer_10": b}
        assert ArchitectureSpec.model_validate({"backbone": layers}).backbone[9].type == "pointwise"
        assert ArchitectureSpec.model_validate({"backbone": {"layer_1": a}}) == spec(a)


class TestConstructibility:
    def test_wrong_in_channels_names_layer_field_rule_and_value(self) -> None:
        message = refusal(
            {"type": "conv", "out_channels": 8}, {"type": "pointwise", "in_channels": 6, "out_channels": 4}
        )
        assert message == "layer_2.in_channels: must equal the 8 channels that reach this layer, found 6"

    def test_kernel_larger_than_its_input(self) -> None:
        shrink = [{"type": "max_pool", "kernel_size": 8}] * 1
        message = refusal(*shrink, {"type": "avg_pool", "kernel_size": 5})
        assert message == "layer_2.kernel_size: must not exceed its padded input of 4x4, found 5"

    def test_ghost_needs_a_multiple_of_its_ratio(self) -> None:
        message = refusal({"type": "ghost", "out_channels": 10, "ratio": 4})
        assert message == "layer_1.out_channels: must be a multiple of ratio 4, found 10"

    def test_head_must_have_the_tasks_classes(self) -> None:
        message = refusal({"type": "conv", "out_channels": 8}, head={"num_classes": 7})
        assert message == "head.num_classes: must equal the 10 classes of the task, found 7"

    def test_unknown_field_and_bad_value_are_explained_in_one_line(self) -> None:
        with pytest.raises(ValidationError) as caught:
            spec({"type": "conv", "out_channels": 8}, {"type": "conv", "out_channels": 8, "kernel_size": 4})
        assert "layer_2" in explain(caught.value) and "found 4" in explain(caught.value)
        assert "\n" not in explain(caught.value)

    @pytest.mark.parametrize("rubbish", [[], None, {"backbone": []}, {"backbone": {"a": {}}}])
    def test_rubbish_is_refused(self, rubbish: object) -> None:
        with pytest.raises(ValidationError):
            ArchitectureSpec.model_validate(rubbish)


class TestShapes:
    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            ({"type": "conv", "out_channels": 8, "kernel_size": 5, "stride": 2}, (8, 16, 16)),
            ({"type": "conv", "out_channels": 8, "padding": 0}, (8, 30, 30)),
            ({"type": "depthwise"}, (3, 32, 32)),
            ({"type": "depthwise", "out_channels": 12}, (12, 32, 32)),
            ({"type": "downsample", "out_channels": 8}, (8, 16, 16)),
            ({"type": "ghost", "out_channels": 8}, (8, 32, 32)),
            ({"type": "bottleneck", "out_channels": 8, "stride": 2}, (8, 16, 16)),
            ({"type": "mbconv", "out_channels": 8, "se_ratio": 0.25, "stride": 2}, (8, 16, 16)),
            ({"type": "residual", "out_channels": 8, "stride": 2}, (8, 16, 16)),
            ({"type": "max_pool"}, (3, 16, 16)),
            ({"type": "avg_pool", "kernel_size": 3, "stride": 2}, (3, 15, 15)),
        ],
    )
    def test_inferred_shape_is_torchs(self, layer: dict[str, object], shape: tuple[int, int, int]) -> None:
        graph = lower(spec(layer), CIFAR, 10)
        assert graph.ops[-3].shape == shape  # before the head's pool and linear
        values = [torch.randn(1, *CIFAR)]
        network = Network(graph).eval()
        hooks = [module.register_forward_hook(lambda m, i, o: values.append(o)) for module in network.layers.values()]
        network(values[0])
        assert len(hooks) == len(graph.ops)
        for op, value in zip(graph.ops[:-1], values[1:], strict=False):
            assert tuple(value.shape[1:]) == op.shape

    def test_parameters_equal_torchs_with_batch_norm_folded(self) -> None:
        layers = [
            {"type": kind, "out_channels": 8} for kind in TYPES if kind not in ("depthwise", "max_pool", "avg_pool")
        ]
        graph = lower(spec(*layers[:4]), CIFAR, 10)
        network = Network(graph)
        weights = sum(p.numel() for n, p in network.named_parameters() if p.ndim > 1)
        assert sum(op.weights for op in graph.ops) == weights


class TestHash:
    def test_equal_networks_have_equal_hashes_however_written(self) -> None:
        short = spec({"type": "conv", "out_channels": 8}, {"type": "downsample", "out_channels": 16})
        long = spec(
            {"type": "conv", "in_channels": 3, "out_channels": 8, "kernel_size": 3, "stride": 1, "padding": 1},
            {"type": "conv", "out_channels": 16, "stride": 2, "use_bn": True, "activation": "relu"},
            head={"type": "classifier", "num_classes": 10},
        )
        assert CIFAR_SPACE.candidate(short).hash == CIFAR_SPACE.candidate(long).hash

    def test_another_activation_is_another_network(self) -> None:
        a = spec({"type": "conv", "out_channels": 8})
        b = spec({"type": "conv", "out_channels": 8, "activation": "relu6"})
        assert CIFAR_SPACE.candidate(a).hash != CIFAR_SPACE.candidate(b).hash

    def test_hash_does_not_change_between_versions(self) -> None:
        """Verdict caches and journals outlive a process: a changed hash is a changed file format."""
        assert CIFAR_SPACE.candidate(spec({"type": "conv", "out_channels": 8})).hash == "9b0b257b79ee"


class TestSpace:
    @pytest.mark.parametrize("shape", [(1, 8, 8), CIFAR, (1, 49, 10)])
    def test_samples_and_mutants_are_constructible_and_differ(self, shape: tuple[int, int, int]) -> None:
        space, rng = Space(input_shape=shape, num_classes=5), Random(0)
        parents = [space.sample(rng) for _ in range(200)]
        mutants = [space.mutate(parent, rng) for parent in parents]
        for candidate in parents + mutants:
            assert candidate.spec is not None
            assert space.graph(candidate.spec).ops[-1].shape == (5, 1, 1)
        assert all(m.hash != p.hash and m.parent == p.hash for m, p in zip(mutants, parents, strict=True))
        assert len({parent.hash for parent in parents}) > 190

    def test_same_seed_same_samples(self) -> None:
        first, second = ([CIFAR_SPACE.sample(rng).hash for _ in range(20)] for rng in (Random(3), Random(3)))
        assert first == second

    def test_every_layer_type_is_sampled(self) -> None:
        rng = Random(0)
        seen = {layer.type for _ in range(100) for layer in (CIFAR_SPACE.sample(rng).spec or spec()).backbone}
        assert seen == set(TYPES)

    def test_compact_json_reads_back(self) -> None:
        rng = Random(1)
        for _ in range(100):
            sampled = CIFAR_SPACE.sample(rng).spec
            assert sampled is not None
            assert ArchitectureSpec.model_validate_json(json.dumps(sampled.compact())) == sampled
