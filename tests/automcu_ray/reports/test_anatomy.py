"""What the report tells of the network that ships."""

from pathlib import Path

from automcu_ray.networks.candidate import Diagnosis
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.records.events import FinalistEvaluated, Finished
from automcu_ray.records.record import EpochFigures
from automcu_ray.reports.anatomy import blocks, lineage, pictures
from automcu_ray.reports.run_report import write_report
from tests.automcu_ray.records.test_events import network_manifest
from tests.automcu_ray.reports.test_run_report import CONFIG, HOSTILE, TASK, finish, repository, trained

PNG = b"\x89PNG\r\n\x1a\n"


def test_lineage_follows_parents_and_origins_and_ends_where_they_go_round() -> None:
    first, second = trained(1, 0.8, hash="a" * 12), trained(2, 0.85, hash="b" * 12, parent="a" * 12)
    third, other = trained(3, 0.9, hash="c" * 12, origin=2), trained(4, 0.7, hash="d" * 12)
    assert lineage([first, second, third, other], 3) == [first, second, third]
    assert lineage([first, second, third, other], 4) == [other]
    assert lineage([first], 9) == []
    one, two = trained(1, 0.8, hash="a" * 12, parent="b" * 12), trained(2, 0.8, hash="b" * 12, parent="a" * 12)
    assert lineage([one, two], 2) == [one, two]


def test_blocks_are_the_layers_with_all_that_they_read() -> None:
    layers = [
        {"type": "conv", "out_channels": 8, "kernel_size": 3, "stride": 2},
        {"type": "residual", "out_channels": 8, "kernel_size": 3},
        {"type": "conv", "out_channels": 8, "kernel_size": 1},
        {"type": "skip", "back": 3},
    ]
    graph = TASK.graph(ArchitectureSpec.model_validate({"backbone": layers, "head": {}}))
    found = blocks(graph)
    assert [block.layer for block in found] == ["layer_1", "layer_2", "layer_3", "layer_4", "head"]
    assert found[0].operators == ("conv 3x3 stride 2 relu",) and found[0].shape == (8, 4, 4)
    assert [block.also_reads for block in found] == [(), (), (), ("layer_1",), ()]
    assert sum(block.parameters for block in found) == sum(op.weights + op.biases for op in graph.ops)
    assert sum(block.macs for block in found) == sum(op.macs for op in graph.ops)


def test_the_report_shows_mistakes_network_lineage_and_learning(tmp_path: Path) -> None:
    parent = trained(1, 0.9, hash="a" * 12)
    said = Diagnosis(problem=HOSTILE, suggestion="Widen layer_1.")
    winner = trained(2, 0.95, hash="b" * 12, parent="a" * 12, diagnosis=said)
    found = repository(parent, winner)
    epochs = (
        *(EpochFigures(epoch=at, val_accuracy=at / 10) for at in (1, 2)),
        EpochFigures(epoch=3, val_accuracy=0.3, rounded=True),
    )
    found.append(FinalistEvaluated(**dict(finish(repository(parent, winner), winner, epochs=epochs))))
    mistakes = [{"image": 7, "label": 1, "answer": 0, "confidence": 0.875}]
    classes = {"classes": [HOSTILE, "one"], "confusion": [[3, 0], [1, 2]], "mistakes": mistakes}
    found.append(Finished(manifest=network_manifest(number=2, hash="b" * 12, **classes), seconds=1.0))
    (tmp_path / "bundle_mistakes.png").write_bytes(PNG)
    write_report(tmp_path / "report.html", CONFIG, TASK, found)
    page = (tmp_path / "report.html").read_text()
    assert "says &lt;/details&gt;" in page and "is one" in page and "87.50 % sure; test image 7" in page
    assert pictures(tmp_path / "bundle_mistakes.png") in page and pictures(tmp_path / "none.png") == ""
    assert 'id="network"' in page and "also reads" not in page.partition('id="network"')[0]
    assert 'id="lineage"' in page and "Widen layer_1." in page
    assert "epochs of full training" in page and "stroke-dasharray" in page
    assert "<script>alert" not in page and "evil.example/x onerror='" not in page
