"""Tool calls as an engine writes them."""

import json

import pytest

from searchers.agent.actions import UnusableAction, read_action


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "read", "path": "artifact/net.c"}',
        'I will look first.\n```json\n{"tool": "read", "path": "artifact/net.c"}\n```\n{"tool": "submit"}',
        '{ "path": "artifact/net.c", "tool": "read" } and then more',
    ],
)
def test_the_first_call_is_read(text: str) -> None:
    found = read_action(text)
    assert (found.tool, found.path) == ("read", "artifact/net.c")


def test_content_keeps_its_lines() -> None:
    assert read_action('{"tool": "write", "path": "a", "content": "x\ny"}').content == "x\ny"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "submit",
        "{tool: submit}",
        '{"tool": "delete"}',
        '{"tool": "read", "path": 7}',
        '{"tool": "read", "sudo": true}',
        '{"tool": "read", "offset": -1}',
        '{"a":' * 20_000,
        json.dumps({"tool": "run", "command": "x" * 9000}),
    ],
)
def test_anything_else_is_unusable_in_one_short_line(text: str) -> None:
    with pytest.raises(UnusableAction) as caught:
        read_action(text)
    assert len(str(caught.value)) <= 330
