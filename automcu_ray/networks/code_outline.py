"""An outline of generated code in one line: the layers that its text makes, in order. Nothing of the code is run."""

import ast

MOST_WORDS = 40
_ARGUMENT_CHARS = 12
_UNSAID = {"bias": False, "padding": 1, "inplace": True}  # usual, and hardly of weight


def outline(code: str) -> str:
    """Return the calls of capitalised names, such as `Conv2d(1,16,3)`, with their arguments that are plain values.

    A helper's layers stand once, where its text stands: a loop over them is not followed. "" where there is no layer.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func)[:1].isupper()]
    calls = [call for call in calls if _name(call.func) not in ("Sequential", "ModuleList", "ModuleDict")]
    calls.sort(key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))  # what is inside comes first
    words = [_word(call) for call in calls]
    return " ".join(words[:MOST_WORDS]) + (" ..." if len(words) > MOST_WORDS else "")


def _word(call: ast.Call) -> str:
    arguments = [_value(argument) for argument in call.args]
    for keyword in call.keywords:
        plain = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg is not None and (keyword.arg not in _UNSAID or plain != _UNSAID[keyword.arg]):
            arguments.append(f"{_cut(keyword.arg)}={_value(keyword.value)}")
    return f"{_cut(_name(call.func))}({','.join(arguments)})"


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _value(node: ast.expr) -> str:
    """Return a number or a name; "?" for all else, so that no text of the code comes along."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return _cut(str(node.value))
    return _cut(node.id) if isinstance(node, ast.Name) else "?"


def _cut(text: str) -> str:
    return text[:_ARGUMENT_CHARS]
