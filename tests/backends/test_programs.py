import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from automcu_ray.core.errors import ToolchainError, ToolMissingError
from backends import programs
from backends.programs import LOG, LOG_CHARS, OUTPUT_BYTES, missing, run_program, running


def test_command_and_output_are_logged(tmp_path: Path) -> None:
    done = run_program([sys.executable, "-c", "print('hello'); exit(3)"], timeout_s=30, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "hello\n")
    log = (tmp_path / "commands.log").read_text()
    assert "exit(3)" in log and "exit 3\nhello" in log


def test_a_program_that_does_not_end_is_a_toolchain_error(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"should end within 0\.2 s"):
        run_program([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2, cwd=tmp_path)
    assert "should end within 0.2 s; killed" in (tmp_path / "commands.log").read_text()


def test_a_missing_program_comes_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing(["qemu-system-arm"]) == ("qemu-system-arm",)
    with pytest.raises(ToolMissingError, match="apt install qemu-system-arm"):
        run_program(["qemu-system-arm"], timeout_s=1, cwd=tmp_path)


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_program_that_talks_without_end_is_killed_and_its_log_is_short(stream: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=f"at most {OUTPUT_BYTES} bytes"):
        run_program(["sh", "-c", f"yes rubbish{stream}"], timeout_s=30, cwd=tmp_path)
    log = (tmp_path / LOG).read_text()
    assert len(log) < 2 * LOG_CHARS and log.count("rubbish") > 100 and "characters left out" in log


@pytest.mark.parametrize(
    "script",
    [
        "cat /dev/zero > huge; exit 0",
        "i=0; while :; do head -c 300000 /dev/zero > $((i += 1)); done",
        "mkdir -p a/b; head -c 3000000 /dev/zero > a/b/large; sleep 90",
        'cat /dev/zero > "$TMPDIR/huge"; exit 0',
    ],
)
def test_a_program_that_fills_the_disk_is_stopped(script: str, tmp_path: Path) -> None:
    try:
        run_program(["sh", "-c", script], timeout_s=60, cwd=tmp_path, disk_bytes=2_000_000)
    except ToolchainError as error:  # one huge file ends the shell's child, not the shell
        assert "at most 2000000 bytes in its folder" in str(error)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 300_000_000


def test_more_in_a_folder_than_agreed_is_an_error_even_if_the_program_has_ended(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="at most 1000000 bytes in its folder"):
        script = "for i in 1 2 3 4; do head -c 600000 /dev/zero > $i; done"
        run_program(["sh", "-c", script], timeout_s=20, cwd=tmp_path, disk_bytes=1_000_000)


def test_a_program_cannot_wait_for_an_answer_or_leave_somebody_who_holds_its_output(tmp_path: Path) -> None:
    done = run_program(["sh", "-c", "read answer; echo got=$answer; sleep 63.25 &"], timeout_s=30, cwd=tmp_path)
    assert done.stdout == "got=\n"  # and no error that it should have ended
    assert gone("sleep", "63.25")


def test_a_server_is_dead_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), running(["sleep", "60"], cwd=tmp_path) as process:
        raise KeyError
    assert process.returncode == -9


def alive(*words: str) -> bool:
    """Return whether a process with exactly these arguments runs."""
    wanted = b"".join(word.encode() + b"\0" for word in words)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end while we look
            if path.read_bytes() == wanted:
                return True
    return False


def gone(*words: str) -> bool:
    deadline = time.monotonic() + 240
    while alive(*words) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(*words)


def test_children_of_a_program_that_does_not_end_are_killed_too(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError):
        run_program(["sh", "-c", "sleep 61.25 & sleep 61.25"], timeout_s=0.3, cwd=tmp_path)
    assert gone("sleep", "61.25")


@pytest.mark.skipif(bool(missing(["setpriv"])), reason="needs setpriv of util-linux")
def test_a_server_dies_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from backends.programs import running\n"
        f"with running(['sleep', '62.25'], cwd=Path({str(tmp_path)!r})): print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        while not alive("sleep", "62.25"):  # setpriv becomes sleep within milliseconds
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    assert gone("sleep", "62.25")


def test_a_limit_that_somebody_has_set_for_us_stays(tmp_path: Path) -> None:
    ask = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE))"
    script = (
        "import resource, sys; from pathlib import Path; from backends.programs import run_program\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))\n"
        f"argv, cwd = [sys.executable, '-c', {ask!r}], Path({str(tmp_path)!r})\n"
        "said = [run_program(argv, timeout_s=30, cwd=cwd, disk_bytes=size) for size in (1_000_000, 9_000_000)]\n"
        "print([done.stdout.strip() for done in said])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "['(1000000, 3000000)', '(3000000, 3000000)']"


HOLDER = """
import time
from backends.programs import scratch_folder
print(scratch_folder(), flush=True)
time.sleep(60)
"""


def test_scratch_of_a_killed_process_goes_with_the_next_one_and_that_of_a_living_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def holder() -> tuple[subprocess.Popen[str], Path]:
        argv, environment = [sys.executable, "-c", HOLDER], {**os.environ, "TMPDIR": str(tmp_path)}
        process = subprocess.Popen(
            argv, cwd=Path(__file__).parents[2], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (dead, left), (living, held) = holder(), holder()
    foreign = tmp_path / "automcu-notes"
    foreign.mkdir()
    dead.kill()
    dead.wait()
    try:
        third, _ = holder()  # now: what was left is young, and may be about to be held
        third.kill()
        assert left.is_dir() and held.is_dir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(programs, "YOUNG_S", 0)
        own = Path(programs._scratch.__wrapped__(0).name)
        assert own.parent == tmp_path
        assert not left.exists() and held.is_dir() and foreign.is_dir()
    finally:
        living.kill()
