"""What is taken home: strict C that prepares what training saw, names that stay names, a check that tells."""

import ctypes
import dataclasses
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image, ImageOps
from safetensors.numpy import load_file

from automcu_ray.commands.verify import check
from automcu_ray.core.errors import ConfigError
from automcu_ray.problem.precision import Precision
from automcu_ray.reports.handover import flashing
from automcu_ray.testing.networks import deployed_network
from backends.c_qemu.gcc_flags import CORE_FLAGS
from backends.c_qemu.handover import RECIPE, SUMS, api
from tests.backends.c_qemu.handover.bundles import HOSTILE, make_bundle
from tests.backends.c_qemu.test_stream import FRONT_ENDS, noise, small_network
from tests.backends.conftest import read_target

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")
SHOW = """#include <stdio.h>
#include "net.h"
int main(void) { for (int i = 0; i < NET_CLASSES; i++) { puts(net_class_names[i]); putchar(0); } }
"""


@pytest.fixture(scope="module")
def bundle(qemu: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "bundle"
    make_bundle(folder, deployed_network("plain", "int8"), read_target("rp2040"))
    return folder


@pytest.mark.thorough
def test_a_bundle_is_verified_with_nothing_but_itself_and_the_tools(bundle: Path, tmp_path: Path) -> None:
    argv = ["python3", "-I", str(bundle / "verify.py"), "--host"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    words = {line[:23].strip(): line[23:36].strip() for line in done.stdout.splitlines()[:-1]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"RAM, bytes", "Flash, bytes", "outputs in QEMU", "instructions", "outputs on the host"} <= words.keys()
    assert {"firmware.elf", "firmware.bin", "firmware.hex", "firmware.uf2"} <= words.keys()
    assert not list(bundle.rglob("__pycache__"))
    assert set(words.values()) == {"same"}


@pytest.mark.thorough
def test_the_command_says_what_differs(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "bundle"
    subprocess.run(["cp", "-r", bundle, other], check=True)
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps({**manifest, "flash_bytes": 1}))
    source = other / "src" / "net.c"
    head, weights = source.read_text().split("static const float ", 1)
    source.write_text(f"{head}static const float {weights.replace('0x1.', '0x1.f', 1)}")
    blocks = other / "firmware.uf2"
    blocks.write_bytes(blocks.read_bytes()[:-512])
    status, said = check(other)
    assert status == 1 and "outputs in QEMU        DIFFERENT" in said and "the manifest says 1" in said
    assert "files                  DIFFERENT    3 of" in said and "firmware.uf2           DIFFERENT" in said


@pytest.mark.thorough
@pytest.mark.parametrize("images", [1, 80])
def test_counts_that_differ_by_image_are_found_again(qemu: None, images: int, tmp_path: Path) -> None:
    """The manifest tells the largest over what the board ran, so all of that is in the bundle, and nothing else."""
    manifest = make_bundle(tmp_path / "b", deployed_network("plain", "int8"), read_target("rp2040"), images=images)
    assert len(np.load(tmp_path / "b" / "test_vectors.npz")["inputs"]) == manifest.board_images == images
    status, said = check(tmp_path / "b")
    assert status == 0 and f"{images} of {images} test vectors bit-equal" in said, said


def _with(bundle: Path, folder: Path, **changes: object) -> Path:
    """A bundle of its recipe and vectors alone, changed, and its sums."""
    folder.mkdir()
    for name in ("manifest.json", "test_vectors.npz"):
        (folder / name).write_bytes((bundle / name).read_bytes())
    recipe = json.loads((bundle / RECIPE).read_text())
    (folder / RECIPE).write_text(json.dumps({**recipe, **changes}))
    for name in ("src", "harness"):
        subprocess.run(["cp", "-r", bundle / name, folder], check=True)
    (folder / SUMS).write_text("")
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"core_flags": ["-fplugin=/tmp/evil.so"]},
        {"compile_flags": ["-include/etc/passwd"]},
        {"link_flags": ["-Wl,-T/etc/passwd"]},
        {"harness_flags": ["@/etc/passwd"]},
        {"board": {"script": "../net", "uart": "none", "uart_base": 0}},
        {"board": {"script": "net", "uart": "-x", "uart_base": 0}},
        {"board": {"script": "net", "uart": "none", "uart_base": "0 -fplugin=x"}},
        {"board": None},
    ],
)
def test_a_recipe_gives_no_options_of_its_own(bundle: Path, changes: dict[str, object], tmp_path: Path) -> None:
    status, said = check(_with(bundle, tmp_path / "bundle", **changes))
    assert status == 2 and said.splitlines()[-1].startswith("error: "), said


def test_a_report_finds_in_the_readme_how_the_firmware_is_flashed(bundle: Path) -> None:
    pieces = flashing(bundle / "README.md")
    assert pieces and "serial port" in pieces[0][1] and "#" not in pieces[0][1]


def test_no_bundle_or_links_in_it_are_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"should be a bundle with verify\.json"):
        check(tmp_path)
    folder = _with(bundle, tmp_path / "linked")
    (folder / "src" / "passwd.h").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match=r"found the link 'passwd\.h'"):
        check(folder)


def test_names_of_classes_are_text_in_c_and_in_cplusplus(bundle: Path, host_gcc: None, tmp_path: Path) -> None:
    (tmp_path / "show.c").write_text(SHOW)
    src = bundle / "src"
    subprocess.run(["gcc", *STRICT, "-std=c99", "-trigraphs", "-c", src / "net.c"], cwd=tmp_path, check=True)
    for compiler, language in (("gcc", ("-std=c99", "-trigraphs")), ("g++", ("-std=c++11", "-x", "c++"))):
        sources = ["show.c", src / "net_api.c"]
        argv = [compiler, *STRICT, *language, f"-I{src}", *sources, "-x", "none", "net.o", "-lm", "-o", "show"]
        subprocess.run(argv, cwd=tmp_path, check=True)
        said = subprocess.run([tmp_path / "show"], capture_output=True, check=True).stdout
        assert said.decode().split("\n\0")[:-1] == list(HOSTILE)


def test_a_name_is_cut_between_characters_and_bad_text_is_no_error() -> None:
    assert api.literal("ä" * 40) == '"' + "\\303\\244" * 32 + '"'
    assert api.literal("a\0\ud800?") == '"a\\000\\077\\077"'
    assert api.literal("b" * 63 + "ä") == f'"{"b" * 63}"'


@pytest.mark.parametrize("size", [(12, 12), (40, 31), (13, 50), (5, 7), (300, 12)])
def test_pictures_are_prepared_as_pillow_does_it(
    bundle: Path, host_gcc: None, size: tuple[int, int], tmp_path: Path
) -> None:
    picture = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    text = f'#include "{bundle}/src/net_api.c"\nconst void *make(const uint8_t *of, uint32_t width, uint32_t height);\n'
    text += "const void *make(const uint8_t *of, uint32_t w, uint32_t h) { prepare(of, w, h); return prepared; }\n"
    (tmp_path / "make.c").write_text(text)
    flags = ["-std=c99", *STRICT, "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "make.c", bundle / "src" / "net.c", "-o", "x.so", "-lm"], cwd=tmp_path, check=True)
    make = ctypes.CDLL(str(tmp_path / "x.so")).make
    make.restype = ctypes.POINTER(ctypes.c_int8)
    made = np.ctypeslib.as_array(make(ctypes.c_void_p(picture.ctypes.data), *size), (3, 12, 12)).astype(int) + 128
    wanted = np.asarray(ImageOps.fit(Image.fromarray(picture), (12, 12), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(made - wanted.transpose(2, 0, 1)).max() <= (0 if size == (12, 12) else 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("board", "core", "precision"),
    [
        ("rp2040", "cortex-m0plus", "int8"),
        ("stm32f405", "cortex-m4f", "int8"),
        pytest.param("stm32f405", "cortex-m4f", "float32", marks=pytest.mark.slow),
        pytest.param("stm32h743", "cortex-m7d", "int8", marks=pytest.mark.slow),
        pytest.param("rp2350", "cortex-m33f", "int8", marks=pytest.mark.slow),
        ("ensemble_e8_hp", "cortex-m55d", "int8"),
    ],
)
def test_the_c_is_strict_for_every_core(gcc: None, board: str, core: str, precision: Precision, tmp_path: Path) -> None:
    target = read_target(board).replace(emulator=None)
    assert target.core == core
    make_bundle(tmp_path / "bundle", deployed_network("plain", precision), target)
    flags = [*CORE_FLAGS[target.core], *STRICT, "-fanalyzer"]
    sources = sorted((tmp_path / "bundle" / "src").glob("*.c"))
    subprocess.run(["arm-none-eabi-gcc", *flags, "-std=c99", "-c", *sources], cwd=tmp_path, check=True)
    argv = [
        "arm-none-eabi-g++",
        *CORE_FLAGS[target.core],
        *STRICT,
        "-std=c++11",
        "-x",
        "c++",
        "-c",
        tmp_path / "bundle" / "src" / "net_api.c",
    ]
    subprocess.run(argv, cwd=tmp_path, check=True)


@pytest.mark.thorough
def test_static_analysers_find_nothing_in_the_c_for_this_computer(bundle: Path, host_gcc: None, tmp_path: Path) -> None:
    sources = sorted((bundle / "src").glob("*.c"))
    subprocess.run(["gcc", *STRICT, "-fanalyzer", "-std=c99", "-c", *sources], cwd=tmp_path, check=True)
    if shutil.which("cppcheck") is None:
        pytest.skip("GCC's analyser found nothing; cppcheck is not here")
    asked = ("--quiet", "--std=c99", "--enable=warning,portability,performance", "--inconclusive", "--error-exitcode=1")
    done = subprocess.run(["cppcheck", *asked, *sources], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["samples", "log-mel"])
def test_samples_are_classified_and_the_bundle_verified(qemu: None, name: str, tmp_path: Path) -> None:
    front_end = FRONT_ENDS[name]
    samples = noise(front_end, front_end.span + 5 * front_end.step)
    pictures = np.stack([front_end.window(samples[i * front_end.step :]) for i in range(6)])
    deployed = dataclasses.replace(small_network(pictures), front_end=front_end)
    make_bundle(tmp_path / "bundle", deployed, read_target("stm32f405"), classes=tuple("abcdefghij"))
    status, said = check(tmp_path / "bundle")
    assert status == 0 and "outputs in QEMU        same" in said, said
    src, main = tmp_path / "bundle" / "src", tmp_path / "bundle" / "examples" / "host" / "main.c"
    argv = ["gcc", *STRICT, "-std=c99", f"-I{src}", main, *src.glob("*.c"), "-lm", "-o", "show"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "show"], input=samples.tobytes(), capture_output=True, check=True)
    wanted = [chr(ord("a") + int(found)) for found in deployed.run(pictures).argmax(axis=1)]
    assert done.stdout.decode().split()[: len(wanted)] == wanted[: len(done.stdout.decode().split())] != []


def test_files_hold_what_they_say(bundle: Path) -> None:
    weights = load_file(bundle / "weights.safetensors")
    graph = onnx.load(bundle / "network_float32.onnx").graph
    assert {tensor.name: list(tensor.dims) for tensor in graph.initializer} == {
        name: list(value.shape) for name, value in weights.items()
    }
    assert (bundle / "firmware.hex").read_text().startswith(":02000004")
    assert (bundle / "firmware.bin").stat().st_size <= json.loads((bundle / "manifest.json").read_text())["flash_bytes"]
    for line in (bundle / SUMS).read_text().splitlines():
        wanted, name = line.split("  ")
        assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == wanted
    readme = (bundle / "README.md").read_text()
    assert "    3  a\\nb\\\\\n" in readme and "red, green, blue" in readme and "hold BOOTSEL" in readme


@pytest.mark.slow
def test_a_file_from_a_stranger_is_not_read_for_its_weights(gcc: None, tmp_path: Path) -> None:
    deployed = dataclasses.replace(deployed_network("plain", "int8"), foreign=True)
    make_bundle(tmp_path / "theirs", deployed, read_target("stm32f405").replace(emulator=None))
    assert (tmp_path / "theirs" / "src" / "net_api.c").exists()
    assert not (tmp_path / "theirs" / "weights.safetensors").exists()
