"""What is said of a process that could not say it itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.processes import everyone


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os._exit(1)", "error: it's gone; $HOME\n"),
        ("os.kill(os.getpid(), 9)", "error: it's gone; $HOME\n"),
        ("sys.exit(3)", ""),
        ("pass", ""),
        # Ray's C++, which ends a driver without a raylet, kills all its children before
        ("time.sleep(2); os.system('kill -9 $(pgrep -P %d)' % os.getpid()); os._exit(1)", "error: it's gone; $HOME\n"),
    ],
)
def test_only_an_end_without_a_word_is_told(end: str, said: str) -> None:
    script = f"""if True:
        import os, sys, time
        from automcu_ray.runtime.last_words import last_words
        with last_words("error: it's gone; $HOME"):
            {end}
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert done.stderr == said


def test_the_agents_of_its_own_ray_go_with_it_and_nobody_elses(tmp_path: Path) -> None:
    """Stand-ins: what Ray's agents are known by is the word in their title and logs in their session's folder."""
    script = """if True:
        import os, subprocess, sys
        from pathlib import Path
        from automcu_ray.runtime.last_words import last_words
        def start(title, driver):
            log = Path(sys.argv[1]) / f"session_2026-11-23_18-59-11_406165_{driver}" / "log"
            log.parent.mkdir(exist_ok=True)
            return subprocess.Popen([title, "240"], executable="/bin/sleep", stdout=log.open("w"), stderr=log.open("w"))
        with last_words("error: gone"):
            ours, others = os.getpid(), 10 * os.getpid() + 1
            print(*[start(*one).pid for one in (("ray::RuntimeEnvAgent", ours), ("an agent", others), ("sleep", ours))])
            sys.stdout.flush()
            os._exit(1)
    """
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120
    )  # their output is read to its end: the process beside holds it open until it has looked for agents
    agent, *others = map(int, done.stdout.split())
    assert done.stderr == "error: gone\n"
    alive = {one.pid for one in everyone()}
    assert agent not in alive and alive.issuperset(others)
    for other in others:
        os.kill(other, signal.SIGKILL)
