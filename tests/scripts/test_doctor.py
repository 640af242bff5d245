"""The doctor: says what can run and what is missing, whatever state the machine and its plugins are in."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from automcu_ray.commands import doctor
from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.config_files import names
from backends import BACKENDS
from backends.boards import BOARDS
from backends.programs import missing
from searchers import SEARCHERS
from searchers.engines import ENGINES

pytestmark = pytest.mark.thorough


@pytest.fixture
def tools() -> None:
    if absent := missing(["arm-none-eabi-gcc", "qemu-system-arm", "bwrap"]):
        pytest.skip(f"needs {', '.join(absent)}")


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any of the programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("OPENAI_API_KEY", "AUTOMCU_MODEL", "AUTOMCU_BASE_URL", "OPENAI_BASE_URL", "STEDGEAI_CORE_DIR"):
        monkeypatch.delenv(name, raising=False)


def run_doctor(
    capsys: pytest.CaptureFixture[str], as_json: bool = False, settings: list[str] | None = None
) -> tuple[int, str]:
    """Return exit status and output."""
    with pytest.raises(typer.Exit) as stop:
        doctor.doctor(as_json=as_json, settings=settings)
    return stop.value.exit_code, capsys.readouterr().out


def find(kind: str, name: str, *settings: str) -> doctor.Finding:
    told = doctor.Settings.parse(settings)
    (found,) = [one for one in doctor.find_all(told) if (one.kind, one.name) == (kind, name)]
    return found


def test_json_names_every_plugin_and_target_and_the_exit_status_is_that_of_a_run_without_flags(
    tools: None, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run_doctor(capsys, as_json=True)
    told = json.loads(said)
    assert status == 0
    found = {(one["kind"], one["name"]): one for one in told["findings"]}
    plugins = {"backend": BACKENDS, "board": BOARDS, "engine": ENGINES, "searcher": SEARCHERS}
    assert {(kind, name) for kind, table in plugins.items() for name in table} <= found.keys()
    assert found["backend", "c_qemu"]["usable"] and "arm-none-eabi-gcc 1" in found["backend", "c_qemu"]["version"]
    assert found["board", "qemu"]["version"].startswith("QEMU emulator version")
    assert "instructions" in found["board", "qemu"]["does"] and "flash" in found["backend", "c_qemu"]["does"]
    assert found["engine", "offline"]["usable"] and found["jail", "bubblewrap"]["usable"]
    assert [target["name"] for target in told["targets"]] == names("target")
    assert {target["mark"] for target in told["targets"]} <= {"emulated", "build only", "vendor"}
    assert told["machine"]["torch"] and told["machine"]["cpus"]
    assert all(one["usable"] or one["needs"] for one in told["findings"])


def test_a_bare_machine_gets_the_lines_that_install_what_is_missing(bare_machine: None) -> None:
    assert "apt install gcc-arm-none-eabi libnewlib-arm-none-eabi" in find("backend", "c_qemu").needs
    assert "apt install qemu-system-arm" in find("board", "qemu").needs
    assert "apt install bubblewrap" in find("jail", "bubblewrap").needs
    assert "AUTOMCU_MODEL" in find("engine", "openai").needs
    run = find("run", "default")
    assert not run.usable and "arm-none-eabi-gcc" in run.needs


def test_a_bare_machine_is_exit_status_1_and_the_screen_says_why(
    bare_machine: None, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = run_doctor(capsys)
    assert status == 1
    assert "board qemu needs: qemu-system-arm: apt install qemu-system-arm" in told
    assert "stm32f405" in told and "netduinoplus2" in told


def test_a_broken_plugin_is_named_and_hides_no_other(tools: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "gone", "backends.nowhere:Nothing")
    monkeypatch.setitem(BACKENDS, "absent", "backends.c_qemu.backend:Nothing")
    monkeypatch.setitem(SEARCHERS, "odd", "tests.scripts.test_doctor:Unreadable")
    found = {(one.kind, one.name): one for one in doctor.find_all()}
    assert "it is broken: ModuleNotFoundError: No module named 'backends.nowhere'" in found["backend", "gone"].needs
    assert "it is broken: AttributeError" in found["backend", "absent"].needs
    assert "it is broken: RuntimeError: no docstring for you" in found["searcher", "odd"].needs
    assert found["backend", "c_qemu"].usable and found["run", "default"].usable


class Refusing(type):
    @property
    def __doc__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no docstring\nfor you")


class Unreadable(metaclass=Refusing):
    pass


def test_what_a_program_says_cannot_steer_the_terminal(
    tools: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = tmp_path / "qemu-system-arm"
    fake.write_text("#!/bin/sh\nprintf 'QEMU \\033[2Jrubbish\\n'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(shutil.which('sh') or '/bin/sh').parent}:/usr/bin:/bin")
    assert "\033[2J" not in run_doctor(capsys)[1]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_broken_target_is_a_finding_and_hides_no_other(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "target").mkdir()
    shutil.copy(doctor.CONFIGS / "target" / "rp2040.yaml", tmp_path / "target")
    (tmp_path / "target" / "mine.yaml").write_text("name: mine\ncore: cortex-m99\n")
    (tmp_path / "target" / "worse.yaml").write_text("{")
    monkeypatch.setattr(doctor, "CONFIGS", tmp_path)
    monkeypatch.setattr(doctor, "names", lambda group: ["mine", "rp2040", "worse"])
    monkeypatch.setattr(doctor, "find_all", lambda settings: iter([doctor.Finding("run", "default", usable=True)]))
    status, said = run_doctor(capsys, as_json)
    assert status == 0 and "rp2040" in said and "cortex-m99" in " ".join(said.split())
    if as_json:
        told = json.loads(said)
        assert [target["name"] for target in told["targets"]] == ["rp2040"]
        broken = [(one["kind"], one["name"]) for one in told["findings"] if not one["usable"]]
        assert broken == [("target", "mine"), ("target", "worse")]


def test_a_setting_lets_a_backend_be_found_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "izer").mkdir()
    (tmp_path / "ai8xize.py").write_text("")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 1.26.4 2.13.0\n")
    python.chmod(0o755)
    assert not find("backend", "ai8x").usable
    found = find("backend", "ai8x", f"backend.checkout={tmp_path}", f"backend.python={python}")
    assert found.usable and "numpy 1.26.4" in found.version
    assert "llama" in find("engine", "openai", "engine.model=llama").does


@pytest.mark.parametrize(
    ("setting", "why"), [("backend.chekout=x", "no backend has such an option"), ("seed=3", "found 'seed'")]
)
def test_a_setting_for_nobody_is_an_error(setting: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=why):
        doctor.doctor(settings=[setting])


def test_a_path_of_ones_own_hides_no_sandbox(sandbox: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("bwrap", "prlimit", "setpriv"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path))  # no gcc, and nothing that is visible inside
    assert find("jail", "bubblewrap").usable


def test_an_attached_instrument_is_found_by_its_usb_id(monkeypatch: pytest.MonkeyPatch) -> None:
    def attached() -> list[ListPortInfo]:
        ports = [ListPortInfo("/dev/ttyS0"), ListPortInfo("/dev/ttyACM1"), ListPortInfo("/dev/ttyACM0")]
        ports[1].vid, ports[1].pid, ports[1].description = 0x1915, 0xC00A, "PPK2 \x1b[2J"
        ports[2].vid, ports[2].pid, ports[2].description = 0x0483, 0x374B, "STM32 STLink"
        return ports

    monkeypatch.setattr(list_ports, "comports", attached)
    found = {device: doctor._port(device) for device in doctor._ports()}
    assert list(found) == ["/dev/ttyACM0", "/dev/ttyACM1"]
    assert (found["/dev/ttyACM0"].version, found["/dev/ttyACM0"].does) == ("0483:374b", "STM32 STLink")
    assert found["/dev/ttyACM1"].does == "PPK2 [2J; instrument ppk2 by its USB id"
