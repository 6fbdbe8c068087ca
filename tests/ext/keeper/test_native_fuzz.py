"""The native client under the address and undefined-behaviour sanitizers: any keeper, words, variables, first lines."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kept import PATIENCE, compile_client

from native_init import COMPILERS
from tiers import SEED, sample

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
DENIED = 77
"""Exit code of the sanitizers here."""
STATES = (b"apply", b"exec", b"log", b"run", b"status", b"ls", b"no-such-verb", b"")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not COMPILERS:
        pytest.skip("no C compiler")
    try:
        return compile_client(tmp_path_factory.mktemp("sanitized"), *SANITIZERS)
    except subprocess.CalledProcessError:
        pytest.skip("no C compiler")


def some_bytes(choice: random.Random, most: int) -> bytes:
    """Return bytes without NUL, some of them of the client's own words."""
    pieces = [b"--", b"--b", b"/fd/", b"/proc/", b"=", b":", b"/", b"\xff\xfe", b"LC_", b"PYTHONPATH", b"\n", b"x"]
    return b"".join(choice.choice(pieces) for _piece in range(choice.randrange(most)))


@pytest.mark.deep
@pytest.mark.limit(400)
def test_any_input(sanitized: Path, tmp_path: Path) -> None:
    choice = random.Random(SEED)
    script = sanitized.with_name("mudroom-python")
    for number in range(sample(400)):
        first = b"#!" + choice.choice([os.fsencode(sys.executable), some_bytes(choice, 9), b"/" + b"x" * 5000])
        script.write_bytes(first + choice.choice([b"", b" -E", b" ", b"\r", b" -E -I"]) + choice.choice([b"\n", b""]))
        words = [choice.choice(STATES), *(some_bytes(choice, 40) for _word in range(choice.randrange(6)))]
        environment = {b"ASAN_OPTIONS": b"exitcode=%d:detect_leaks=0" % DENIED, b"HOME": os.fsencode(tmp_path)}
        for _variable in range(choice.randrange(8)):
            name = some_bytes(choice, 3).replace(b"=", b"") or b"NAME"
            environment[name] = some_bytes(choice, 60)
        for name in (b"MUDROOM_STATE", b"XDG_STATE_HOME", b"HOME", b"PYTHONPATH"):
            if choice.randrange(3) == 0:
                environment[name] = choice.choice([b"", b"/", b"/" + b"y" * 5000, some_bytes(choice, 9)])
        environment.pop(b"LD_PRELOAD", None)
        done = subprocess.run(
            [os.fsencode(sanitized), *words], env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
        assert done.returncode != DENIED and b"ERROR: " not in done.stderr, (number, done.stderr[-2000:])
        assert b"runtime error" not in done.stderr, (number, done.stderr[-2000:])


@pytest.mark.deep
@pytest.mark.limit(400)
def test_any_keeper(sanitized: Path, tmp_path: Path) -> None:
    """One that says anything, at any time, reads nothing or something, and goes at any time."""
    choice = random.Random(SEED)
    sanitized.with_name("mudroom-python").write_text(f"#!{sys.executable}\nimport os\nos._exit(99)\n")
    directory = tmp_path / "state/keeper"
    directory.mkdir(parents=True, mode=0o700)
    environment = {"MUDROOM_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}
    asked = {**environment, "MUDROOM_KEEPER": "only"}
    answer = subprocess.run([sanitized, "ls"], env=asked, capture_output=True, text=True, check=False)
    name = answer.stdout.split()[2]
    environment["ASAN_OPTIONS"] = f"exitcode={DENIED}:detect_leaks=0"
    with contextlib.chdir(directory), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        for number in range(sample(300)):
            said = [choice.randbytes(choice.randrange(3)) for _part in range(choice.randrange(4))]
            if choice.randrange(2):
                said = [choice.choice([b"g", b"gs", b"gse", b"gse\7"]), *said]
            reads = choice.randrange(3)

            def be_keeper(said: list[bytes] = said, reads: int = reads) -> None:
                connection, _address = listener.accept()
                with connection:
                    connection.settimeout(0.05)  # it would wait for a client that waits for it
                    try:
                        for part in said:
                            connection.sendall(part)
                            if reads:
                                connection.recv(4 if reads == 1 else 65536)
                    except OSError:
                        pass  # the client has gone

            thread = threading.Thread(target=be_keeper)
            thread.start()
            done = subprocess.run(
                [sanitized, "ls", "x" * choice.choice([1, 100_000])],
                env=environment, capture_output=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
            thread.join()
            assert done.returncode in {99, 125, *range(DENIED), *range(DENIED + 1, 256)}, (number, said, done.stderr)
            assert b"ERROR: " not in done.stderr and b"runtime error" not in done.stderr, done.stderr[-2000:]
