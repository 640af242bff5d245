"""Render the prompts of a recorded run as the templates are now: count their tokens, and what they tell a second time.

    python scripts/replay_prompts.py runs/NAME                  # every conversation of the run
    python scripts/replay_prompts.py runs/NAME --set searcher.notation=json --show 3
    python scripts/replay_prompts.py runs/NAME --tokenizer /models/Qwen2.5-Coder-7B-Instruct

Nothing is asked: each conversation is begun with what it knew when it was recorded, and rules answer in between, where
a second role follows. So the prompts of a changed template can be judged before any token is paid for.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automcu_ray.core.errors import ConfigError
from automcu_ray.records.journal import Repository
from automcu_ray.run.plan import prepare
from automcu_ray.runtime.config import merge, parse_setting, validate
from automcu_ray.runtime.config_files import read_yaml
from searchers import pick_proposer
from searchers.dialogue.llm_proposer import LLMProposer
from searchers.engines.base import Request
from searchers.engines.recording.recorded_calls import read_beginnings, read_calls
from searchers.engines.simulated import pieces

Count = Callable[[str], int]
_LEAST = 12  # characters of a line that is worth counting as told before


def conversations(run: Path, settings: list[str]) -> Iterator[tuple[int, list[Request]]]:
    """Yield each recorded conversation's number, and what it would ask with the templates and settings of today.

    Raises:
        ConfigError: no run, no recording in it, a wrong setting, or a searcher that asks no engine.
    """
    config = read_yaml(run / "config.yaml")
    for setting in settings:
        merge(config, parse_setting(setting))
    plan = prepare(validate({**config, "engine": {"name": "offline"}}), begun=True)
    asker = pick_proposer(plan.config.searcher, plan.task, seed=plan.config.seed)
    if not isinstance(asker, LLMProposer):
        raise ConfigError(f"searcher {plan.config.searcher.name!r} asks no engine: its run has no prompts.")
    repository = Repository.of_run(run, "replay_prompts")
    records = {record.candidate.number: record for record in repository.records}
    begun, _ = read_beginnings(run / "llm" / "calls.jsonl")
    if not begun:
        raise ConfigError(f"no recorded conversations in {run / 'llm'}.")
    for number in sorted(talk for talk in begun if talk > 0):
        told = begun[number]
        for known in told.known:
            if known in records:
                asker.observe(records[known])
        asker.begun, asker.left = number - 1, told.left
        pending = [repository.proposed[one] for one in told.pending if one in repository.proposed]
        asker.pending = tuple(pending)
        yield number, asker.preview(told.size)


def repeated(text: str, told: set[str]) -> int:
    """Return the characters of lines that an earlier prompt had, and remember all lines."""
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) >= _LEAST]
    again = sum(len(line) for line in lines if line in told)
    told.update(lines)
    return again


def counter(tokenizer: str) -> tuple[str, Count]:
    """Return how tokens are counted: by a model's own tokenizer, else by pieces of words."""
    if not tokenizer:
        return "counted in pieces of words", pieces
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(tokenizer)
    return f"counted by the tokenizer of {tokenizer}", lambda text: len(found.encode(text, add_special_tokens=False))


def main(arguments: argparse.Namespace) -> None:
    """Print a line for each request, and the sums."""
    how, count = counter(arguments.tokenizer)
    told: set[str] = set()
    seen: dict[str, int] = {}
    total = total_again = 0
    print(f"tokens {how}; told before: share of the user message's lines, in characters")
    print("conversation role            system   user  told before  equal to")
    for number, requests in conversations(arguments.run, arguments.settings):
        for request in requests:
            said = "\n".join(message.content for message in request.messages if message.role != "system")
            system, user = count(request.messages[0].content), count(said)
            again = repeated(said, told)
            key = json.dumps([message.content for message in request.messages])
            equal = seen.setdefault(key, number)
            same = f"conversation {equal}" if equal != number else ""
            print(f"{number:12} {request.role:<14}{system:8}{user:7}{again / max(1, len(said)):12.0%}  {same}")
            total, total_again = total + system + user, total_again + again
            if number == arguments.show:
                print(said)
    calls, _ = read_calls(arguments.run / "llm" / "calls.jsonl")
    paid = sum(call.reply.prompt_tokens for call in calls)
    print(f"{total} tokens of prompts now; the recorded run's engine counted {paid} for its own")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a recorded run")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="as in a run")
    parser.add_argument("--tokenizer", default="", help="folder or name of a model, for its own tokenizer (extra hf)")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print what conversation N is told")
    try:
        main(parser.parse_args())
    except ConfigError as error:
        sys.exit(f"error: {error}")
