"""The journal's events and the manifest: typed, and on disk what all versions have written."""

import json
from pathlib import Path
from typing import Any

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.records import events
from automcu_ray.records.journal import Repository
from automcu_ray.records.manifest import NetworkManifest, TableManifest
from automcu_ray.records.record import Finalist

REPORT = {"feasible": True, "backend": "c_qemu", "rung": "link", "ram_bytes": 9000, "flash_bytes": 30000}
TRAINING = {"val_accuracy": 0.95, "val_accuracy_float": 0.96, "epochs": 12, "device": "cpu", "seed": 1}
CANDIDATE = {"number": 1, "hash": "ab", "spec": {"backbone": [{"type": "conv", "out_channels": 8}]}, "proposer": "me"}
BOARD = {"name": "qemu", "images": 16, "bit_equal_images": 16, "largest_difference": 0.0, "agrees": True}
ATTEMPT = {"number": 1, "tool_calls": 3, "refused": ["harness"], "ended": "submitted", "notes": "smaller loops"}
OBSERVATION = {"attempt": 1, "checks": [{"name": "files", "passed": True}], "objective": 12.0, "sha256": "00"}
SCORE = {"proxy": "full", "reading": "deployed", "value": 0.9, "seconds": 12.5}
TREND: dict[str, Any] = {"outcomes": 1, "trained": 1, "success_rate": 1.0, "first_accuracy": 0.95}
TABLE = {"table": "NAS-Bench-201", "number": 3, "hash": "cd", "architecture": "|x~0|", "val_accuracy": 0.9}
TABLE |= {"test_accuracy": 0.89, "board_agrees": None}
BUFFER = {"layer": "layer_1", "start_bytes": 0, "size_bytes": 64, "first": 0, "last": 0, "is_scratch": False}
ADDED_SINCE = {
    "memory_map",
    "classes",
    "preparation",
    "confusion",
    "mistakes",
    "backend",
    "board_agrees",
    "second_opinions",
    "quantised",
    "test_vectors",
    "data",
    "teacher",
    "learning",
    "test_figures",
    "test_figures_float",
    "trivial_figures",
    "anomaly",
}
NETWORK: dict[str, Any] = {
    "target": "stm32f405",
    "backend": "c_qemu",
    "precision": "int8",
    "hash": "ab",
    "number": 1,
    "ram_bytes": 9000,
    "flash_bytes": 30000,
    "ram_limit_bytes": 24576,
    "flash_limit_bytes": 49152,
    "memory": {"ram": None, "flash": None, "operators": ["Conv"], "notes": []},
    "board": "qemu",
    "board_images": 128,
    "bit_equal_images": 128,
    "board_agrees": True,
    "board_largest_difference": 0.0,
    "instructions": 912345,
    "instructions_limit": None,
    "estimated_latency_ms": None,
    "profile": [],
    "memory_map": {"arena_bytes": 64, "steps": ["layer_1"], "buffers": [BUFFER]},
    "stack_used_bytes": 488,
    "stream": None,
    "second_opinions": [],
    "val_accuracy": 0.95,
    "val_accuracy_float": 0.96,
    "test_accuracy": 0.94,
    "test_macro_f1": None,
    "quantised": [{"method": "ptq", "val_accuracy": 0.95, "val_accuracy_float": 0.96}],
    "test_images": 360,
    "input": {"shape": [1, 8, 8], "scale": 0.01, "zero_point": -128},
    "output": {"scale": 0.1, "zero_point": 3},
    "test_vectors": "images, inputs and labels",
    "test_accuracy_float": 0.945,
    "learning": {"kind": "classification", "metric": "accuracy", "loss": "cross_entropy", "targets": []},
    "test_figures": {},
    "test_figures_float": {},
    "trivial_figures": {},
    "anomaly": None,
    "seeds": {"run": 0, "winner": 1},
    "data": {"name": "digits", "split_seed": 0, "train": 1167, "val": 270, "test": 360, "sha256": "00"},
    "teacher": None,
    "versions": {"torch": "2.13.0"},
    "architecture": {"backbone": [{"type": "conv", "out_channels": 8}]},
    "layers": {"node0": "layer_0"},
    "classes": ["zero", "one"],
    "preparation": "A picture.",
    "confusion": [[3, 1], [0, 4]],
    "mistakes": [],
}
LATEST: list[dict[str, Any]] = [
    {
        "event": "started",
        "at_s": 1.79e9,
        "resumed": False,
        "versions": {"torch": "2.13.0"},
        "engine": {"name": "offline", "model": "rules", "is_language_model": False},
        "host": {"machine": "x86_64", "system": "Linux"},
        "data": NETWORK["data"],
    },
    {"event": "proposed", "candidate": CANDIDATE},
    {"event": "record", "record": {"candidate": CANDIDATE, "status": "ok", "feasibility": REPORT}},
    {
        "event": "searched",
        "seconds": 9.5,
        "slot_busy_share": None,
        "interrupted": False,
        "trend": {**TREND, "best_accuracy": 0.95, "distinct_candidates": 1, "distinct_accuracies": 1},
        "gave_up": "",
    },
    {"event": "teacher", "number": 1, "hash": "ab"},
    {"event": "finalist", "number": 1, "hash": "ab", "training": TRAINING, "feasibility": REPORT, "board": BOARD},
    {"event": "test_read", "reader": "winner ab", "images": 360},
    {"event": "finished", "manifest": NETWORK, "seconds": 21.0},
    {"event": "finished", "manifest": TABLE},
    {"event": "finished", "manifest": None, "seconds": 21.0},
    {"event": "measured", "measured": {"key": "k", "number": 1, "probe": "full", "repeat": 1, "scores": [SCORE]}},
    {"event": "brought", "file": "model.onnx", "command": "automcu deploy model.onnx", "changes": []},
    {"event": "attempt_made", "attempt": ATTEMPT},
    {"event": "attempt_observed", "observation": OBSERVATION},
    {"event": "decided", "decision": "ship", "agent": "", "numbers": [1], "reason": "the best", "at_s": 1.8e9},
    {"event": "tool_called", "role": "training", "tool": "train", "number": 1, "reply": "{}", "said": "no"},
    {"event": "sentence_read", "sentence": "digits", "said": "read by both", "cost": {"prompt_tokens": 700}},
]
FIRST: list[dict[str, Any]] = [  # as the first version wrote them
    {key: value for key, value in LATEST[0].items() if key != "data"},
    {"event": "searched", "seconds": 9.5, "slot_busy_share": 0.9, "interrupted": True, "gave_up": ""},
    {"event": "test_read", "hash": "ab", "images": 360},
    {"event": "finished", "manifest": {k: v for k, v in NETWORK.items() if k not in ADDED_SINCE}, "seconds": 21.0},
]


def network_manifest(**changes: Any) -> NetworkManifest:
    return NetworkManifest.model_validate({**NETWORK, **changes})


def journal(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("rows", [LATEST, FIRST])
def test_what_earlier_versions_wrote_is_read_and_written_again_with_all_it_said(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    found, again = Repository(journal(tmp_path, rows)), Repository(tmp_path / "again.jsonl")
    again.propose(*found.proposed.values())
    for record in found.records:
        again.add(record)
    again.append(*found.events)
    written = [json.loads(line) for line in (tmp_path / "again.jsonl").read_text().splitlines()]
    told = sorted(rows, key=lambda row: row["event"] not in ("proposed", "record"))
    renamed = ("test_read", "hash")  # its reader is told in words since
    for new, old in zip(written, told, strict=True):
        assert next(iter(new)) == "event"
        _holds(new, {key: value for key, value in old.items() if (old["event"], key) != renamed})


def _holds(new: Any, old: Any) -> None:
    """Check that all that the old value says stands in the new one."""
    if isinstance(old, dict):
        for key, value in old.items():
            _holds(new[key], value)
    elif isinstance(old, list):
        for one, other in zip(new, old, strict=True):
            _holds(one, other)
    else:
        assert new == old


def test_every_kind_of_event_comes_back_as_what_it_is(tmp_path: Path) -> None:
    found = Repository(journal(tmp_path, LATEST))
    kinds = {events.Proposed, events.RecordAdded, *map(type, found.events)}
    assert kinds == set(events.Event.__subclasses__()), "a journal has all of them"
    manifests = [finished.manifest for finished in found.all(events.Finished)]
    assert manifests == [network_manifest(), TableManifest.model_validate(TABLE), None]
    assert found.last(events.Finished) == events.Finished(manifest=None, seconds=21.0)
    finalist = found.last(events.FinalistEvaluated)
    assert isinstance(finalist, Finalist) and finalist.usable
    assert Repository().last(events.Finished) is None


def test_a_manifest_is_written_with_the_keys_that_it_always_had() -> None:
    assert network_manifest().model_dump(mode="json") == NETWORK
    assert list(network_manifest().model_dump()) == list(NETWORK)
    assert TableManifest.model_validate(TABLE).model_dump() == TABLE


def test_a_key_of_a_later_version_is_passed_over(tmp_path: Path) -> None:
    rows = [{**LATEST[6], "by": "someone"}, {**LATEST[7], "manifest": {**NETWORK, "energy_uj": 3.0}}]
    found = Repository(journal(tmp_path, rows))
    assert found.last(events.TestRead) == events.TestRead(reader="winner ab", images=360)
    assert found.last(events.Finished) == events.Finished(manifest=network_manifest(), seconds=21.0)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"event": "paused"}, "Input tag 'paused' found using 'event' does not match any of the expected tags: 'start"),
        ({"at_s": 1.0}, "Unable to extract tag using discriminator 'event'"),
        ([1], "Input should be an object"),
        ({"event": "teacher", "number": 1}, "teacher.hash: Field required"),
        ({"event": "record", "record": {"candidate": CANDIDATE}}, "record.record.status: Field required"),
        ({"event": "proposed", "candidate": {**CANDIDATE, "later": 1}}, "later: Extra inputs are not permitted"),
        ({"event": "finished", "manifest": [1]}, "manifest.network: "),
        ({"event": "finished", "manifest": {"table": "x"}}, "manifest.table.number: Field required"),
    ],
)
def test_an_event_that_cannot_be_understood_is_one_line_that_names_it(tmp_path: Path, row: Any, why: str) -> None:
    with pytest.raises(ConfigError) as found:
        Repository(journal(tmp_path, [LATEST[0], row]))
    assert "journal.jsonl line 2 is not a journal event (" in str(found.value)
    assert why in str(found.value) and "\n" not in str(found.value)
