"""What an attack is made of: helpers before it, a small honest network behind it.

The helpers pass the static screen, as an author who knows it would write them: what it refuses is in the attack itself.
"""

PRELUDE = """
import dataclasses
import torch
from torch import nn

def borrowed(name):
    # A module that no network needs, by a door that the screen leaves open.
    return dataclasses.sys.modules["importlib"].import_module(name)

ctypes, errno, fcntl, gc, json, mmap, os, resource = map(
    borrowed, ("ctypes", "errno", "fcntl", "gc", "json", "mmap", "os", "resource")
)
signal, socket, stat, struct, sys, threading, time = map(
    borrowed, ("signal", "socket", "stat", "struct", "sys", "threading", "time")
)
libc = ctypes.CDLL(None, use_errno=True)
found = []

def attempt(what, action):
    # What does not fail has escaped.
    try:
        action()
    except Exception:
        return
    found.append(what)

def call(what, number, *arguments):
    # A system call by its number on x86-64.
    if libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)) >= 0:
        found.append(what)

def read(path):
    with borrowed("io").open(path, "rb") as file:
        if not file.read(1 << 16):
            raise OSError("empty")

def write(path):
    with borrowed("io").open(path, "wb") as file:
        file.write(b"mark")

def report():
    if found:
        raise SystemExit("ESCAPED " + ", ".join(found))
"""

NET = """
report()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))
"""


def program(attack: str) -> str:
    """Return the whole code of an attack."""
    return f"{PRELUDE}\n{attack.strip()}\n{NET}"
