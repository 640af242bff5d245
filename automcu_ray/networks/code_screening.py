"""Candidates that are PyTorch source: read from a reply, screened, hashed (paper 002, section 3.2).

The contract: `class Net(nn.Module)`, made by `Net()` or by as much of `Net(in_channels=..., num_classes=...)` as its
`__init__` takes; `forward` turns float images (N, channels, height, width) into logits (N, classes).

The screen is for early refusals that teach. It is no security: that is the jail's, which takes any code.
"""

import ast
import contextlib
import hashlib
import re
from collections.abc import Iterator

MAX_CHARACTERS = 40_000
MODULES = (
    *("__future__", "abc", "collections", "collections.abc", "copy", "dataclasses", "enum", "functools", "itertools"),
    *("math", "numbers", "numpy", "operator", "random", "typing", "typing_extensions", "warnings"),
    *("torch", "torch.nn", "torch.nn.functional", "torch.nn.init"),
    *("torch.nn.modules", "torch.nn.parameter", "torch.nn.utils"),
)
_NEEDED = "torch, torch.nn (functional, init, modules, parameter, utils), " + ", ".join(
    name for name in MODULES if "." not in name and name not in ("torch", "typing_extensions")
)
_BUILTINS = frozenset(
    """__import__ breakpoint compile delattr dir eval exec exit globals input locals open quit vars""".split()
)
_TORCH = frozenset(
    """classes compile distributed export from_file hub jit library load multiprocessing onnx ops package save
    serialization storage utils""".split()
)
_SPECIAL = frozenset(
    """__annotations__ __call__ __class__ __doc__ __getitem__ __init__ __iter__ __len__ __name__ __post_init__ __repr__
    __version__""".split()
)
_PLACEHOLDER = re.compile(r"x{3,}|TODO|FIXME|placeholder|your_code(_here)?", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_BARE = re.compile(r"^(import |from |class |def |@)", re.MULTILINE)
_DEFINES_NET = re.compile(r"^class\s+Net\b", re.MULTILINE)


class CodeError(ValueError):
    """Code that cannot be a candidate: what is wrong, in words that its author can act on."""


def extract(text: str) -> str:
    """Return the Python of a reply: the last complete fenced block that defines Net, or the text where it is bare code.

    Raises:
        CodeError: there is none, it stops before its end, is too long, or a placeholder stands where code should.
    """
    blocks: list[str] = [block for block in _FENCE.findall(text) if _DEFINES_NET.search(block)]
    if blocks:
        code = blocks[-1]
    elif "```" in text and _DEFINES_NET.search(text):
        raise CodeError("the code block has no end: the reply was cut off; write shorter code")
    elif _DEFINES_NET.search(text) and (start := _BARE.search(text)):
        code = text[start.start() :]
    else:
        raise CodeError("no Python code that defines `class Net(nn.Module)` was found in the reply")
    code = code.strip("\n") + "\n"
    _refuse_long(code)
    _refuse_placeholders(_parse(code))
    return code


def screen(code: str) -> None:
    """Return if code looks like a network and nothing else; imports that are never used do not count.

    Raises:
        CodeError: the first reason against it.
    """
    _refuse_long(code)
    tree = _without_unused_imports(_parse(code))
    _refuse_placeholders(tree)
    own, torch_names = set[str](), {"torch"}  # names with a meaning of their own: `input` may name an argument
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Import):
            torch_names |= {alias.asname or "torch" for alias in node.names if alias.name == "torch"}
    for node in ast.walk(tree):
        if why := _objection(node, own, torch_names):
            raise CodeError(f"line {getattr(node, 'lineno', 1)}: {why}"[:300])  # names may be of any length
    with _bounded_depth():
        _want_net(tree)


def runnable(code: str) -> ast.Module:
    """Return what is run of code: all of it but imports that are never used, which may not be installed.

    Raises:
        CodeError: a syntax error.
    """
    return _without_unused_imports(_parse(code))


def code_hash(code: str) -> str:
    """Return 12 hex digits that comments, docstrings and layout do not change.

    Raises:
        CodeError: a syntax error, or expressions nested too deeply.
    """
    tree = _parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    with _bounded_depth():
        return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def _refuse_long(code: str) -> None:
    if len(code) > MAX_CHARACTERS:
        raise CodeError(f"the code has {len(code)} characters, more than the limit of {MAX_CHARACTERS}")


@contextlib.contextmanager
def _bounded_depth() -> Iterator[None]:
    """Say it to the author where code is nested more deeply than Python's own stack allows."""
    try:
        yield
    except RecursionError as error:
        raise CodeError("the code's expressions are nested too deeply: use loops") from error


def _parse(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        raise CodeError(f"line {error.lineno}: syntax error: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CodeError(f"the code cannot be parsed: {error}") from error


def _without_unused_imports(tree: ast.Module) -> ast.Module:
    """Leave out what is imported from elsewhere than MODULES and never named again, in place; lines stay the same."""
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    class Unused(ast.NodeTransformer):
        def visit_Import(self, node: ast.Import | ast.ImportFrom) -> ast.stmt:
            origin = node.module if isinstance(node, ast.ImportFrom) else None
            known = isinstance(node, ast.ImportFrom) and origin in MODULES and not node.level
            node.names = [
                alias
                for alias in node.names
                if known or alias.name in ("*", *MODULES) or (alias.asname or alias.name.split(".")[0]) in named
            ]
            return node if node.names else ast.copy_location(ast.Pass(), node)

        visit_ImportFrom = visit_Import

    with _bounded_depth():
        Unused().visit(tree)
    return tree


def _refuse_placeholders(tree: ast.Module) -> None:
    abstract = set()  # methods of classes beside Net that are there to be overridden: they raise NotImplementedError
    for node in ast.walk(tree):
        for statement in node.body if isinstance(node, ast.ClassDef) and node.name != "Net" else ():
            if isinstance(statement, ast.FunctionDef) and isinstance(last := statement.body[-1], ast.Raise):
                raised = last.exc.func if isinstance(last.exc, ast.Call) else last.exc
                if isinstance(raised, ast.Name) and raised.id == "NotImplementedError":
                    abstract.add(statement)
    for node in ast.walk(tree):
        dots = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
        word = isinstance(node, ast.Name) and _PLACEHOLDER.fullmatch(node.id)
        empty = False
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "forward") and node not in abstract:
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            empty = all(isinstance(statement, ast.Pass | ast.Raise) for statement in body)
        if dots or word or empty:
            line = getattr(node, "lineno", 1)
            raise CodeError(f"line {line}: a placeholder stands where code should: write the whole network out")


def _objection(node: ast.AST, own: set[str], torch_names: set[str]) -> str:
    """Return what speaks against a node, "" for nothing."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return _objection_to_import(node)
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("__") and node.attr.endswith("__") and node.attr not in _SPECIAL:
            return f"the attribute {node.attr} is not for networks"
        if isinstance(node.value, ast.Name) and node.value.id in torch_names and node.attr in _TORCH:
            return f"torch.{node.attr} is not for networks: use torch, torch.nn and torch.nn.functional"
    if isinstance(node, ast.Name) and node.id not in own:
        if node.id in _BUILTINS:
            return f"{node.id} is not for networks"
        if node.id.startswith("__") and node.id.endswith("__") and node.id not in _SPECIAL:
            return f"{node.id} is not for networks"
    return ""


def _objection_to_import(node: ast.Import | ast.ImportFrom) -> str:
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]
    for module in modules:
        if module not in MODULES or (isinstance(node, ast.ImportFrom) and node.level):
            return f"import of {module}: a network needs only {_NEEDED}"
    if isinstance(node, ast.ImportFrom) and node.module == "torch":
        for alias in node.names:
            if alias.name in _TORCH:
                return f"torch.{alias.name} is not for networks: use torch, torch.nn and torch.nn.functional"
    return ""


def _want_net(tree: ast.Module) -> None:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if "Net" not in classes:
        raise CodeError("the code must define `class Net(nn.Module)` at top level")
    methods: set[str] = set()
    family, bases = ["Net"], set()
    while family:
        node = classes.pop(family.pop(), None)
        for statement in node.body if node else ():
            if isinstance(statement, ast.FunctionDef):
                methods.add(statement.name)
        for base in node.bases if node else ():
            bases.add(ast.unparse(base).rpartition(".")[2])
            family.append(ast.unparse(base))
    if "Module" not in bases:
        raise CodeError("Net must be a subclass of nn.Module")
    for method in ("__init__", "forward"):
        if method not in methods:
            raise CodeError(f"Net has no {method} method")
