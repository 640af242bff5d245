"""What is said of a process that could not say it itself."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os._exit(1)", "error: it's gone; $HOME\n"),
        ("os.kill(os.getpid(), 9)", "error: it's gone; $HOME\n"),
        ("sys.exit(3)", ""),
        ("pass", ""),
        ("os.system('kill -9 $(pgrep -P %d)' % os.getpid())", ""),  # the process beside is gone
    ],
)
def test_only_an_end_without_a_word_is_told(end: str, said: str) -> None:
    script = f"""if True:
        import os, sys
        from automcu_ray.runtime.last_words import last_words
        with last_words("error: it's gone; $HOME"):
            {end}
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert done.stderr == said


def test_what_would_stay_behind_goes_with_it() -> None:
    script = """if True:
        import os, subprocess
        from automcu_ray.runtime.last_words import last_words
        with last_words("error: gone") as also_end:
            left = [subprocess.Popen(["sleep", "240"], stdout=subprocess.DEVNULL) for _ in range(2)]
            also_end([one.pid for one in left])
            os._exit(1)
    """
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.stderr == "error: gone\n"  # which is read to its end: the sleepers, who hold it open, are dead
