"""Count how many of a run's network proposals keep to their JSON schema; exit 1 unless all do, and enough came."""

import json
import sys
from collections import Counter
from pathlib import Path

import jsonschema

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from searchers.engines.base import Reply, Request
from searchers.engines.recording.recorded_calls import read_calls


def fault(request: Request, reply: Reply) -> str:
    """Return what is wrong with a reply, in a few words; "" where it ended by itself and its schema accepts it."""
    if reply.finish_reason != "stop":
        return reply.error or f"finish_reason {reply.finish_reason!r}"
    try:
        jsonschema.validate(json.loads(reply.text), request.json_schema or {})
    except (ValueError, jsonschema.ValidationError) as error:
        return str(error).splitlines()[0][:100]
    return ""


def main(run: Path, wanted: int) -> int:
    """Print the counts of one run; return the exit status."""
    calls, _ = read_calls(run / "llm" / "calls.jsonl")
    faults = [fault(call.request, call.reply) for call in calls if call.request.role == "generator"]
    valid = faults.count("")
    replies = [call.reply for call in calls]
    prompt, cached = sum(reply.prompt_tokens for reply in replies), sum(reply.cached_tokens for reply in replies)
    written, seconds = sum(reply.completion_tokens for reply in replies), sum(reply.seconds for reply in replies)
    print(
        f"{run.name}: {valid} of {len(faults)} generator replies are schema-valid, {wanted} wanted; {len(calls)} calls,"
    )
    print(f"  {prompt} prompt tokens ({cached} of them cached), {written} written, {seconds:.0f} s of waiting in all")
    for reason, count in Counter(filter(None, faults)).most_common(5):
        print(f"  {count} x {reason}")
    return int(valid < len(faults) or valid < wanted)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
