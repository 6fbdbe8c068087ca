"""A Mac for tests: specs as they are there, and something that stands for ``sandbox-exec``."""

from __future__ import annotations

import sys
from pathlib import Path

from mudroom.core.confinement.spec import Bind, Copy, HostView, SandboxSpec

WORK = b"/Users/ann/Library/mudroom/p-1/forks/f/copy/work"
PRIVATE = b"/Users/ann/Library/mudroom/p-1/forks/f/private"
STATE = b"/Users/ann/Library/mudroom"
SPEC = SandboxSpec(
    project=b"/Users/ann/src/project",
    view=Copy(WORK),
    cwd=WORK,
    home=PRIVATE + b"/home",
    scratch=PRIVATE,
    namespaces=False,
    binds=(
        Bind(b"/usr", b"/usr"),
        Bind(b"/bin", b"/bin"),
        Bind(b"/System/Library", b"/System/Library"),
        Bind(b"/private/etc", b"/private/etc"),
        Bind(b"/opt", b"/opt"),
        Bind(b"/Users/ann/.cargo/bin", b"/Users/ann/.cargo/bin"),
        Bind(b"/Users/ann/src/project/.mudroom", b"/Users/ann/src/project/.mudroom"),
    ),
    masks=(b"/Users/ann/.cargo/bin/credentials.toml",),
    rlimits=((4, 1, 1),),
)
BARE = SPEC._replace(
    home=b"/Users/ann",
    network="open",
    around=HostView(
        hidden=(STATE, b"/Users/ann/.ssh", b"/Users/ann/.aws", b"/Users/ann/Library/Keychains"),
        covered=(b"/Users/ann/.netrc",),
        live=(Bind(b"/Users/ann/.claude", b"/Users/ann/.claude", writable=True),),
    ),
)

_FAKE = """#!{python} -IS
import os, sys
sys.path.insert(0, {here!r})
from sbpl import parse
words = [os.fsencode(word) for word in sys.argv[1:]]
if words[0] != b"-f" or words[2] != b"--":
    sys.exit("usage")
with open(words[1], "rb") as stream:
    text = stream.read()
with open({log!r}, "ab") as stream:
    stream.write(words[3] + b"\\n")
try:
    profile = parse(text)
except Exception as error:
    print("sandbox-exec:", error, file=sys.stderr)
    os._exit(65)
if {nested!r}:
    print("sandbox-exec: sandbox_apply: Operation not permitted", file=sys.stderr)
    os._exit(71)
os.execv(words[3], words[3:])
"""


def fake_sandbox_exec(directory: Path, *, nested: bool = False) -> bytes:
    """Make a program with the interface of sandbox-exec(1): it reads the profile, rejects an unreadable one, and
    confines nothing. Beside it, ``log`` lists the programs that it was asked to start."""
    path = directory / "sandbox-exec"
    here, log = str(Path(__file__).parent), str(directory / "log")
    path.write_text(_FAKE.format(python=sys.executable, here=here, log=log, nested=nested))
    path.chmod(0o755)
    return bytes(path)


_ENFORCING = """#!{python} -IS
import os, sys
sys.path[:0] = [{here!r}, {source!r}]
from sbenforce import main
main({settings!r}, [os.fsencode(word) for word in sys.argv[1:]])
"""


def enforcing_sandbox_exec(directory: Path, **settings: object) -> bytes:
    """Make a program with the interface of sandbox-exec(1) that confines, on Linux (``sbenforce.py``)."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "sandbox-exec"
    here = Path(__file__).parent
    source = str(here.parents[2] / "src")
    path.write_text(_ENFORCING.format(python=sys.executable, here=str(here), source=source, settings=settings))
    path.chmod(0o755)
    return bytes(path)
