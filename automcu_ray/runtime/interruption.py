"""Ctrl-C and SIGTERM: both end a run in the same way, whatever it is doing, even where code of others catches one."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_USUAL_STATUS = 130  # of what Ctrl-C ends, as shells have it
_received: int | None = None  # the first signal
_urgent = False  # nothing that is under way can come to its end


def listen() -> None:
    """Let both signals raise KeyboardInterrupt; called again after Ray has put handlers of its own in their place."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Listen within a block as a process of its own would: no signal of before counts, its handlers come back."""
    global _received, _urgent
    _received, _urgent = None, False
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if here else {}
    listen()
    try:
        yield
    finally:
        _received, _urgent = None, False
        for number, handler in before.items():
            signal.signal(number, handler)


def postpone() -> None:
    """Hold SIGTERM back until `deliver`, in this thread and in those that it starts meanwhile.

    For seconds, while Ray's C++ connects this process, a handler of its own would print a stack and abort. Any thread
    that lets the signal through would run it, so this comes before all libraries that start some.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def deliver() -> None:
    """Let SIGTERM through again, to handlers of ours; raises KeyboardInterrupt where one has come."""
    listen()
    _let_through()
    check()


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


os.register_at_fork(after_in_child=_let_through)  # else Ray's own processes would not hear it


def check() -> None:
    """Raise the KeyboardInterrupt that code of others has caught: a signal has come, and the run still goes on."""
    if _received is not None:
        raise KeyboardInterrupt


def tell_tune() -> None:
    """Pass a signal that code of others has caught on to Tune's handler, as a step of Tune begins.

    Tune lets the step end and frees its trials' share of the machine. One that had a KeyboardInterrupt raised in it
    would free nothing, and what this process searches next would wait for that share for good. So it is raised only
    where Tune has no handler, or where nothing can be waited for.
    """
    if _received is None:
        return
    if _urgent or not tune_listens():
        raise KeyboardInterrupt
    _told(None)  # else it knows, and has put the usual handler back


def _told(frame: FrameType | None) -> bool:
    """Call the handler that Tune has for Ctrl-C while trials run: it lets a step end. Return whether there is one."""
    tunes = signal.getsignal(signal.SIGINT)
    if not callable(tunes) or tunes is interrupt:
        return False
    tunes(signal.SIGINT, frame)
    return True


def tune_listens() -> bool:
    """Return whether Tune, started in this thread, sets a handler of its own for Ctrl-C."""
    unset = int(os.environ.get("TUNE_DISABLE_SIGINT_HANDLER", "0"))
    return not unset and threading.current_thread() is threading.main_thread()


def urgent() -> bool:
    """Return whether `interrupt_main` has been called: what was under way cannot be waited for."""
    return _urgent


def status() -> int:
    """Return the exit status of what was interrupted: 128 and the signal's number."""
    return _USUAL_STATUS if _received is None else 128 + _received


def seen_by_tune() -> Callable[[], bool]:
    """Return what says, while Tune runs, that a signal has come: Tune has then put the usual handler back.

    Tune looks at it when a step begins, and not while it waits, up to ten minutes, for a searcher's next trial.
    """
    usual = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread()  # elsewhere Tune sets no handler
    return lambda: ours and signal.getsignal(signal.SIGINT) is usual


def interrupt_main() -> None:
    """Raise KeyboardInterrupt in the main thread, whatever it is doing, where it listens; called by another thread."""
    global _urgent
    if signal.getsignal(signal.SIGTERM) is interrupt:
        _urgent = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def interrupt(number: int, frame: FrameType | None = None) -> None:
    """Handle a signal: raise KeyboardInterrupt, or tell Ray Tune, which lets a step end."""
    global _received
    if _urgent:
        raise KeyboardInterrupt
    _received = _received or number
    if number == signal.SIGTERM and _told(frame):
        return
    raise KeyboardInterrupt
