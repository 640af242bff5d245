import json
from collections import Counter

import pytest

from automcu_ray.core.feasibility import Change, FeasibilityReport, Rung, Violation
from automcu_ray.networks.candidate import Candidate
from automcu_ray.networks.spec import ArchitectureSpec
from automcu_ray.problem.task import Task
from automcu_ray.records.record import Record
from automcu_ray.sizing.footprint import footprint
from automcu_ray.testing.searcher_contract import drive
from searchers.dialogue.feedback_memory import Memory
from searchers.dialogue.prompts import Prompter, starting_candidate
from searchers.dialogue.reply_schemas import Advice
from searchers.engines.base import Message, Prompt, Request
from searchers.engines.offline.draft import Draft
from searchers.engines.offline.engine import OfflineEngine
from searchers.gate.gate import Gate
from searchers.tune_searchers import LLMMemorySearch
from tests.searchers.conftest import make_task, refused

pytestmark = pytest.mark.thorough

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
    searcher.budget.trained, searcher.budget.proposals = trained, proposals
    drive(searcher, 100)
    return searcher


def ask(prompt: Prompt, role: str, seed: int = 0) -> str:
    return OfflineEngine().complete([Request(role=role, **prompt._asdict(), seed=seed)])[0].text


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
    prompt = Prompter(task).generator(Memory(), None)
    reply = OfflineEngine().complete([Request(role="generator", **prompt._asdict())])[0]
    assert (reply.model, reply.finish_reason, reply.prompt_tokens) == ("offline-rules", "stop", 0)


def test_equal_requests_get_equal_replies_and_another_seed_another(task: Task) -> None:
    prompt = Prompter(task).generator(Memory(), None)
    assert ask(prompt, "generator", 1) == ask(prompt, "generator", 1)
    assert ask(prompt, "generator", 1) != ask(prompt, "generator", 2)


def test_generator_carries_out_the_suggestion(task: Task) -> None:
    network = {"backbone": [{"type": "conv", "out_channels": 4}, {"type": "residual", "out_channels": 16}]}
    advice = Advice(problem="Refused for RAM.", suggestion="Set layer_1.out_channels to 4.", network=network)
    reply = ask(Prompter(task).generator(Memory(), advice), "generator")
    assert json.loads(reply)["backbone"] == network["backbone"]


def test_the_fix_of_a_refusal_is_carried_out_at_once(task: Task) -> None:
    spec = ArchitectureSpec.model_validate({"backbone": [{"type": "conv", "out_channels": 64}]})
    fix = Change(where="layer_1.out_channels", before=64, after=41)
    violation = Violation(rung=Rung.LINK, resource="flash", found_bytes=60_000, limit_bytes=49_152, message="", fix=fix)
    memory = Memory().after(refused(task.space.candidate(spec, number=1), violation))
    advice = Advice.model_validate_json(ask(Prompter(task).improver(memory), "improver"))
    assert advice.suggestion == "Set layer_1.out_channels to 41."
    network = json.loads(ask(Prompter(task).generator(memory, advice), "generator"))
    assert network["backbone"] == [{"type": "conv", "out_channels": 41}]


@pytest.mark.parametrize(
    "network", [None, "x", {"backbone": []}, {"backbone": [{"type": "conv", "out_channels": 1e6}]}]
)
def test_generator_makes_an_edit_of_its_own_of_what_it_cannot_carry_out(task: Task, network: object) -> None:
    memory, advice = Memory(), Advice(problem="p", suggestion="Make it better!", network=network)
    if network is None:  # as a language model advises
        memory = memory.after(Record(candidate=starting_candidate(task), status="ok"))
    reply = ask(Prompter(task).generator(memory, advice), "generator")
    found = task.space.candidate(ArchitectureSpec.model_validate_json(reply))
    assert found.hash != task.space.candidate(starting_candidate(task).spec).hash


def test_a_request_without_its_data_is_an_error_reply() -> None:
    reply = OfflineEngine().complete([Request(role="generator", messages=(Message(role="user", content="hi"),))])[0]
    assert reply.finish_reason == "error"
    assert "offline reads no prompts" in reply.error


def test_what_a_prompt_was_written_from_is_no_part_of_what_is_recorded(task: Task) -> None:
    prompt = Prompter(task).generator(Memory(), None)
    bare, whole = (Request(role="generator", messages=prompt.messages, subject=s) for s in (None, prompt.subject))
    assert whole.key == bare.key
    assert Request.model_validate_json(whole.model_dump_json()) == bare


def test_a_draft_says_its_changes_by_the_numbers_that_the_layers_had() -> None:
    layers = [{"type": "conv", "out_channels": 8}, {"type": "max_pool"}, {"type": "residual", "out_channels": 8}]
    draft = Draft(ArchitectureSpec.model_validate({"backbone": [*layers, {"type": "conv", "out_channels": 16}]}))
    draft.layers()[0]["kernel_size"] = 5
    draft.remove(1)
    draft.remove(1)
    draft.insert({"type": "mbconv", "out_channels": 8}, 1)
    draft.insert({"type": "conv", "out_channels": 4}, 0)
    draft.set(Change(where="layer_4.out_channels", before=16, after=12))
    assert draft.spec().compact()["backbone"] == draft.layers()
    assert [layer.get("out_channels") for layer in draft.layers()] == [4, 8, 8, 12]
    assert draft.sentences() == (
        'Insert {"type": "conv", "out_channels": 4} after layer_0. Set layer_1.kernel_size to 5. '
        'Insert {"type": "mbconv", "out_channels": 8} after layer_1. Remove layer_2. Remove layer_3. '
        "Set layer_4.out_channels to 12."
    )
