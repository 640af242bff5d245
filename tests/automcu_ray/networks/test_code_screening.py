"""Code out of replies: what is taken, what is refused with which words, and what counts as the same."""

import ast
import contextlib
from collections.abc import Callable

import pytest

from automcu_ray.networks.code_screening import CodeError, code_hash, extract, runnable, screen

NET = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(x.flatten(1))
"""


def test_the_last_complete_block_with_a_net_is_the_code() -> None:
    first, last = NET.replace("64", "32"), NET
    reply = f"Before:\n```python\n{first}```\nBetter:\n```py\n{last}```\nUse it so:\n```python\nNet()\n```\n"
    assert extract(reply) == NET


def test_bare_code_is_taken_without_the_words_before_it() -> None:
    assert extract(f"Here is the network.\n\n{NET}") == NET


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("I cannot do that.", "no Python code"),
        (f"```python\n{NET}", "cut off"),
        (f"```python\n{NET.replace('nn.Linear(64, 10)', 'nn.Linear(64')}\n```", "line 8: syntax error"),
        (NET.replace("return self.fc(x.flatten(1))", "..."), "line 11: a placeholder"),
        (NET.replace("return self.fc(x.flatten(1))", "pass"), "line 10: a placeholder"),
        (NET.replace("return self.fc(x.flatten(1))", "raise NotImplementedError"), "line 10: a placeholder"),
        (NET.replace("nn.Linear(64, 10)", "xxx"), "line 8: a placeholder"),
        (NET.replace("nn.Linear(64, 10)", "TODO"), "line 8: a placeholder"),
    ],
)
def test_what_is_no_whole_network_is_refused_with_a_reason(reply: str, why: str) -> None:
    with pytest.raises(CodeError, match=why):
        extract(reply)


def test_an_ellipsis_that_indexes_is_no_placeholder() -> None:
    code = NET.replace("x.flatten(1)", "x[..., :].flatten(1)")
    assert extract(code) == code


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("import torch\n", "import os\nos.getcwd()\n", r"line 1: import of os: a network needs only .*torch\.nn"),
        ("import torch\n", "from os import getcwd as c, path\nc()\n", r"line 1: import of os"),
        ("import torch\n", "from os import *\n", r"line 1: import of os"),
        ("import torch\n", "import torch.hub\ntorch.zeros(1)\n", r"line 1: import of torch\.hub"),
        ("import torch\n", "from . import torch\n", "line 1: import of"),
        ("import torch\n", "from torch import load\n", r"line 1: torch\.load"),
        ("import torch\n", "import torch as t\nt.save(1, 'x')\n", r"line 2: torch\.save"),
        ("super()", "super().__class__.__subclasses__()", "line 7: the attribute __"),
        ("x.flatten(1)", "eval('x')", "line 11: eval"),
        ("x.flatten(1)", "__builtins__", "line 11: __builtins__"),
        ("x.flatten(1)", "globals()", "line 11: globals"),
        ("class Net(nn.Module)", "class Net", "subclass of nn.Module"),
        ("class Net", "class Network", "must define"),
        ("def forward", "def backward", "no forward method"),
        ("def __init__", "def init", "no __init__ method"),
        ("64", "6" * 50_000, "characters, more than the limit"),
    ],
)
def test_the_screen_says_what_does_not_belong(old: str, new: str, why: str) -> None:
    with pytest.raises(CodeError, match=why):
        screen(NET.replace(old, new))


def test_imports_that_are_never_used_and_harmless_ones_are_tolerated() -> None:
    unused = (
        "import os\nimport torchvision.models as models\nfrom torchvision.ops import nms, MLP\nimport numpy as np\n"
    )
    used = unused + NET.replace("nn.Linear(64, 10)", "nn.Linear(int(np.prod([8, 8])), 10)")
    screen(used)
    left = ast.unparse(runnable(used))
    assert "numpy" in left and "torchvision" not in left and "import os" not in left
    assert [type(node) for node in runnable(used).body[:4]] == [ast.Pass, ast.Pass, ast.Pass, ast.Import]
    with pytest.raises(CodeError, match=r"line 3: import of torchvision\.ops"):
        screen(used.replace("x.flatten(1)", "MLP(1, [1])(x)"))


def test_layers_may_be_set_and_found_by_name() -> None:
    named = NET.replace("self.fc = nn.Linear(64, 10)", "setattr(self, 'fc', nn.Linear(64, 10))")
    screen(named.replace("self.fc(", "getattr(self, 'fc')(").replace("super()", "super(self.__class__, self)"))


def test_a_base_class_may_leave_its_forward_to_others() -> None:
    method = "\n\n    def forward(self, x):\n        raise NotImplementedError('for others')\n"
    base = NET.replace("class Net", "class Base").partition("\n\n    def forward")[0] + method
    code = base + NET.partition("\n\n\n")[2].replace("class Net(nn.Module)", "\n\nclass Net(Base)")
    assert extract(code) == code
    screen(code)
    with pytest.raises(CodeError, match="a placeholder"):
        extract(base.replace("class Base", "class Net"))


@pytest.mark.parametrize("read", [extract, screen, code_hash])
@pytest.mark.parametrize("deep", ["-" * 5000 + "1", "+".join("1" * 5000), "a" + ".b()" * 5000])
def test_deep_nesting_is_a_reason_and_no_crash(read: Callable[[str], object], deep: str) -> None:
    for depth in (len(deep), len(deep) // 3):
        code = NET.replace("(nn.Module)", f"({deep[-depth:].lstrip('+.b()')}, nn.Module)")
        with contextlib.suppress(CodeError):  # how deep is too deep is Python's own affair
            read(code)


def test_what_is_nested_too_deeply_is_said() -> None:
    with pytest.raises(CodeError, match="nested too deeply"):
        code_hash("x = " + "-" * 2000 + "1\n" + NET)


def test_a_long_reply_is_refused_before_it_is_read() -> None:
    with pytest.raises(CodeError, match="more than the limit"):
        extract(NET + "x = [" + "1, " * 20_000 + "oops\n")


def test_a_name_of_the_author_s_own_is_no_builtin() -> None:
    screen(NET.replace("forward(self, x)", "forward(self, input)").replace("x.flatten", "input.flatten"))


def test_a_net_may_inherit_what_it_needs_from_a_class_beside_it() -> None:
    screen(NET.replace("class Net(", "class Base(") + "\n\nclass Net(Base):\n    pass\n")


def test_comments_docstrings_and_layout_do_not_make_another_network() -> None:
    commented = NET.replace("    def forward", "    # the way\n\n    def forward").replace(
        "        super()", '        """Make it."""\n        super()'
    )
    assert code_hash('"""A net."""\n' + commented.replace("(64, 10)", "(64,\n  10)")) == code_hash(NET)
    assert code_hash(NET.replace("64", "65")) != code_hash(NET)
    assert len(code_hash(NET)) == 12


def test_an_objection_is_short_whatever_the_name() -> None:
    with pytest.raises(CodeError) as refusal:
        screen(f"import {'a' * 5_000} as long\nlong.run()\n")
    assert len(str(refusal.value)) == 300
