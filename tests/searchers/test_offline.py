import json
from collections import Counter
from random import Random

import pytest

from automcu_ray.feasibility import Change, FeasibilityReport, Rung, Violation
from automcu_ray.footprint import footprint
from automcu_ray.record import Candidate, Record
from automcu_ray.spec import ArchitectureSpec
from automcu_ray.task import Task
from searchers.engines.base import Message, Request
from searchers.engines.edits import Draft, apply
from searchers.engines.offline import OfflineEngine
from searchers.gate import Gate
from searchers.llm_memory import LLMMemorySearch
from searchers.memory import Memory
from searchers.prompting import Prompter, starting_candidate
from searchers.schemas import Advice
from tests.contracts.searcher_contract import drive
from tests.searchers.conftest import make_task

CODE_BYTES, CODE_BYTES_PER_OPERATOR, OTHER_RAM_BYTES = 5_000, 350, 1_200


class LinkerLike(Gate):
    """Adds to the lower bounds what code, runtime and stack take: about what a linker says."""

    def submit(self, candidate: Candidate) -> FeasibilityReport | None:
        report = super().submit(candidate)
        if report is None or not report.feasible or candidate.spec is None:
            return report
        graph = self.task.space.graph(candidate.spec)
        bounds = footprint(graph, "int8")
        ram = bounds.ram_lower_bound_bytes + OTHER_RAM_BYTES
        flash = bounds.flash_lower_bound_bytes + CODE_BYTES + CODE_BYTES_PER_OPERATOR * len(graph.ops)
        over = tuple(
            Violation(rung=Rung.LINK, resource=name, found_bytes=need, limit_bytes=limit, message=f"{name} overflowed")
            for name, need, limit in (
                ("ram", ram, self.task.ram_limit_bytes),
                ("flash", flash, self.task.flash_limit_bytes),
            )
            if need > limit
        )
        measured = {"ram_bytes": ram, "flash_bytes": flash, "violations": over, "feasible": not over}
        return report.model_copy(update={"rung": Rung.LINK, **measured})


def search(task: Task, seed: int, trained: int = 16, proposals: int = 100) -> LLMMemorySearch:
    searcher = LLMMemorySearch(task, seed=seed)
    searcher.gate = LinkerLike(task)
    searcher.trained_budget, searcher.proposal_budget = trained, proposals
    drive(searcher, 100)
    return searcher


def ask(messages: tuple[Message, ...], role: str, seed: int = 0) -> str:
    return OfflineEngine().complete([Request(role=role, messages=messages, seed=seed)])[0].text


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)], ids=["digits", "cifar10"])
@pytest.mark.parametrize("seed", [0, 1])
def test_sixteen_networks_climb_to_the_limit_and_meet_a_refusal(shape: tuple[int, int, int], seed: int) -> None:
    task = make_task() if shape[1] == 8 else make_task(shape, ram_kb=64, flash_kb=64)
    records = search(task, seed).repository.records
    statuses = Counter(record.status for record in records)
    assert statuses["ok"] == 16
    assert 1 <= statuses["infeasible"] <= 8
    assert len({record.candidate.hash for record in records if record.status == "ok"}) == 16
    sizes = [r.feasibility.flash_bytes or 0 for r in records if r.status == "ok" and r.feasibility]
    assert max(sizes) > 0.9 * task.flash_limit_bytes
    assert sum(size > 0.7 * task.flash_limit_bytes for size in sizes) >= 8


@pytest.mark.parametrize(("ram_kb", "flash_kb"), [(1, 48), (24, 5.5), (0.5, 2)])
def test_limits_that_hardly_anything_meets_end_in_records_not_in_a_crash(ram_kb: float, flash_kb: float) -> None:
    searcher = search(make_task(ram_kb=ram_kb, flash_kb=flash_kb), seed=0, trained=3, proposals=15)
    assert searcher.exhausted
    assert "invalid" not in {record.status for record in searcher.repository.records}


def test_tells_that_it_is_no_language_model(task: Task) -> None:
    assert not OfflineEngine.is_language_model
    reply = OfflineEngine().complete([Request(role="generator", messages=Prompter(task).generator(Memory(), None))])[0]
    assert (reply.model, reply.finish_reason, reply.prompt_tokens) == ("offline-rules", "stop", 0)


def test_equal_requests_get_equal_replies_and_another_seed_another(task: Task) -> None:
    messages = Prompter(task).generator(Memory(), None)
    assert ask(messages, "generator", 1) == ask(messages, "generator", 1)
    assert ask(messages, "generator", 1) != ask(messages, "generator", 2)


def test_generator_carries_out_the_suggestion(task: Task) -> None:
    advice = Advice(
        problem="Refused for RAM.",
        suggestion='Set layer_1.out_channels to 4. Insert {"type": "residual", "out_channels": 16} after layer_2.',
    )
    reply = ask(Prompter(task).generator(Memory(), advice), "generator")
    assert json.loads(reply)["backbone"] == [
        {"type": "conv", "out_channels": 4},
        {"type": "downsample", "out_channels": 16},
        {"type": "residual", "out_channels": 16},
    ]


def test_the_fix_of_a_refusal_is_carried_out_at_once(task: Task) -> None:
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 64}]})
    fix = Change(where="layer_1.out_channels", before=64, after=41)
    violation = Violation(rung=Rung.LINK, resource="flash", found_bytes=60_000, limit_bytes=49_152, message="", fix=fix)
    report = FeasibilityReport(feasible=False, backend="c_qemu", rung=Rung.LINK, violations=(violation,))
    refused = Record(candidate=task.space.candidate(spec, number=1), status="infeasible", feasibility=report)
    memory = Memory().after(refused)
    advice = Advice.model_validate_json(ask(Prompter(task).improver(memory), "improver"))
    assert advice.suggestion == "Set layer_1.out_channels to 41."
    network = json.loads(ask(Prompter(task).generator(memory, advice), "generator"))
    assert network["backbone"] == [{"type": "conv", "out_channels": 41}]


@pytest.mark.parametrize(
    "suggestion",
    ["Make it better!", "Remove layer_99.", "Set layer_1.out_channels to 99999.", "Insert {1} after layer_1."],
)
def test_generator_makes_an_edit_of_its_own_of_what_it_cannot_carry_out(task: Task, suggestion: str) -> None:
    advice = Advice(problem="p", suggestion=suggestion)
    reply = ask(Prompter(task).generator(Memory(), advice), "generator")
    found = task.space.candidate(ArchitectureSpec.model_validate_json(reply))
    assert found.hash != task.space.candidate(starting_candidate(task).spec).hash


def test_a_prompt_of_another_kind_is_an_error_reply() -> None:
    reply = OfflineEngine().complete([Request(role="generator", messages=(Message(role="user", content="hi"),))])[0]
    assert reply.finish_reason == "error"
    assert "offline reads only this project's prompts" in reply.error


def test_sentences_of_a_draft_make_the_same_draft_again(task: Task) -> None:
    rng = Random(0)
    for _ in range(200):
        spec = task.space.sample(rng).spec
        assert spec is not None
        draft = Draft(spec)
        for _ in range(3):
            layers = draft.layers()
            at = rng.randrange(len(layers))
            layers[at]["kernel_size"] = rng.choice([1, 3, 5])
            draft.insert({"type": "residual", "out_channels": rng.randint(1, 99)}, rng.randint(0, len(layers)))
            if rng.random() < 0.5:
                draft.remove(rng.randrange(len(draft.layers())))
        assert apply(spec, draft.sentences()).layers() == draft.layers()
