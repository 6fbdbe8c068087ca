"""The launcher's sources: compiled with every warning, analyzed, and fuzzed function by function."""

from __future__ import annotations

import marshal
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher_steps import STEPS
from mudroom.core.system import launcher
from native_init import COMPILERS, PLACE, PROTOCOL, SOURCES, STRICT
from tiers import SEED, sample

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")

HERE = Path(__file__).parent
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def test_the_protocol_is_the_client_s() -> None:
    """A program of another one would end at once, and no command would start: so its file has the protocol's name."""
    assert launcher.PROTOCOL == PROTOCOL
    assert os.path.basename(launcher.LAUNCHER).decode() == PROTOCOL
    assert f'/{PROTOCOL}"' in (PLACE.parent / "hatch_build.py").read_text()


def test_the_table_of_steps_is_in_order() -> None:
    assert list(STEPS) == sorted(STEPS)
    assert len(STEPS) > 35


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_compiler_warns(compiler: str) -> None:
    subprocess.run([compiler, *STRICT, "-fsyntax-only", "-O2", *SOURCES], check=True)


@pytest.mark.deep
def test_the_analyzer_of_gcc_finds_nothing(tmp_path: Path) -> None:
    if "gcc" not in COMPILERS:
        pytest.skip("no gcc here")
    words: list[str | Path] = ["gcc", "-std=c11", "-Werror", "-O2", "-fanalyzer", *SOURCES, "-o", tmp_path / "launcher"]
    subprocess.run(words, check=True)


@pytest.mark.deep
def test_the_analyzer_of_clang_finds_nothing(tmp_path: Path) -> None:
    if "clang" not in COMPILERS:
        pytest.skip("no clang here")
    words: list[str | Path] = ["clang", "--analyze", "-Xclang", "-analyzer-werror", "-std=c11", *SOURCES]
    subprocess.run(words, check=True, cwd=tmp_path)


# --- any input ---

VALUES: dict[str, tuple[Any, ...]] = {
    "p": (b"a/b", b"", b"/x", b"a" * 300), "i": (1, -1, 1 << 40), "b": (b"", bytes(80)),
    "s": (
        (), ((b"a", b"b"),), (("127.0.0.1", 53), ("::1", 80)), ((b"mode", b"755"), (b"flag", None)), (b"a", b"b"),
        (1, 2),
        ((b"max_x", 1, True),), ((b"a", 7),), ((80, 3),),
    ),
}  # fmt: skip
ROWS: tuple[tuple[Any, ...], ...] = (
    ("chmod", -1, 0, -1, 1, True, "", ()),
    ("chown", 0, 1, 4, 2, True, "", ()),
    ("times", 0, 1, 3, 2, True, "", ()),
    ("times", -1, 0, -1, 1, True, "timeval", ()),
    ("times", -1, 0, -1, 1, True, "seconds", ()),
    ("setxattr", -1, 0, -1, 1, False, "", ()),
    ("removexattr", -1, -1, -1, 1, True, "", ()),
    ("refuse", -1, -1, -1, 0, False, "", ()),
    ("connect", -1, -1, -1, 3128, False, "", (("127.0.0.1", 80, 1), ("::1", 81, 2))),
    ("none", -1, 0, -1, 5, True, "", ()),
)
CALL = struct.pack("<QIIiIQ6Q", 1, 1, 0, 0, 0, 0, *[4096] * 6)
"""A waiting call, as the kernel describes it."""
ADDRESSES = (
    struct.pack("<H", 2) + b"\x00\x50" + bytes((127, 0, 0, 1)) + bytes(8),
    struct.pack("<H", 10) + b"\x00\x51" + bytes(4) + bytes(15) + b"\x01" + bytes(4),
    struct.pack("<H", 10) + b"\x00\x50" + bytes(4) + bytes(10) + b"\xff\xff\x7f\0\0\x01" + bytes(4),
    b"\x01\0/x",
)


def beginnings() -> list[bytes]:
    """Return inputs of every kind, of which the others are made."""
    request = {"op": "run", "id": 1 << 40, "plan": [("umask", 18)], "env": {b"a": b"b"}, "held": False, "x": "é"}
    data = marshal.dumps(request, 2)
    found = [b"\0" + data, b"\1" + len(data).to_bytes(4, "little") + data]
    for name, shape in STEPS.items():
        for turn in range(9):
            arguments = [VALUES[letter][turn % len(VALUES[letter])] for letter in shape.replace("?", "")]
            plan = marshal.dumps((("enter",), (name, *arguments), ("hand_over",)), 2)
            found.append(b"\2" + len(plan).to_bytes(2, "little") + plan + bytes(64))
    for row in ROWS:
        data = marshal.dumps((b"", {0: row}, (b"/a", b"")), 2)
        found += [
            b"\3" + len(data).to_bytes(2, "little") + data + (b"\0" + CALL + b"\0\0" + address) * 4
            for address in ADDRESSES
        ]
    return found


def compile_fuzz(directory: Path, compiler: str, *options: str) -> Path:
    program = directory / "fuzz"
    words: list[str | Path] = [compiler, "-std=c11", "-Dmain=launcher_main", "-include", HERE / "calls.h", f"-I{PLACE}"]
    parts = [PLACE / f"{name}.c" for name in ("value", "step", "listener", "mediator", "process", "command")]
    objects = []
    for source in parts:
        target = directory / f"{source.stem}.o"
        subprocess.run([*words, *options, "-c", source, "-o", target], check=True, capture_output=True)
        objects.append(target)
    rest = [word for word in words if word not in ("-include", HERE / "calls.h")]
    done = subprocess.run(
        [*rest, f"-I{HERE}", *options, PLACE / "message.c", PLACE / "rename.c", HERE / "fuzz.c", *objects, "-o",
         program],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no sanitizers: {done.stderr[-500:]}")
    return program


@pytest.mark.deep
@pytest.mark.limit(300)
def test_any_input(tmp_path: Path) -> None:
    program = compile_fuzz(tmp_path, COMPILERS[0], *SANITIZERS, "-DALONE")
    files = []
    for number, data in enumerate(beginnings()):
        files.append(tmp_path / str(number))
        files[-1].write_bytes(data)
    words: list[str | Path] = [program, SEED, str(sample(20) * 20_000), *files]
    environment = {"ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run(words, check=False, capture_output=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-4000:].decode("ascii", "replace")


@pytest.mark.deep
@pytest.mark.limit(400)
def test_inputs_that_reach_new_code(tmp_path: Path) -> None:
    """By libFuzzer, which looks at what an input has reached."""
    if not shutil.which("clang"):
        pytest.skip("no clang")
    program = compile_fuzz(tmp_path, "clang", "-O1", "-g", "-fsanitize=fuzzer,address,undefined")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, data in enumerate(beginnings()):
        (corpus / str(number)).write_bytes(data)
    words: list[str | Path] = [
        program,
        "-max_total_time=100",
        f"-seed={SEED}",
        "-max_len=4096",
        "-close_fd_mask=2",
        corpus,
    ]
    done = subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL, cwd=tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:].decode("ascii", "replace")
