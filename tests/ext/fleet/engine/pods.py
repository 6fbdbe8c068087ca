"""Pods made from namespaces, and a ``kubectl`` that knows ``exec -i POD -- WORDS``: without a cluster. No test is here.

Each pod has its own user, mount, network and process namespace, its own /proc and its own home. The network has no
device that is up, so only the two pipes lead to it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

KUBECTL = """#!/bin/sh
# kubectl exec -i POD -- WORDS
[ "$1 $2" = "exec -i" ] && [ "$4" = -- ] || { echo "error: unknown command" >&2; exit 1; }
pod=$3; shift 4
[ -e "@PODS@/$pod/pid" ] || { echo "Error from server (NotFound): pods \\"$pod\\" not found" >&2; exit 1; }
exec nsenter --target "$(cat "@PODS@/$pod/pid")" --user --mount --net --pid --preserve-credentials \\
    env -i PATH="$PATH" HOME="@PODS@/$pod/home" PYTHONPATH="@PYTHONPATH@" MUDROOM_STATE="@PODS@/$pod/state" \\
    MUDROOM_KEEPER=0 "$@"
"""


@contextmanager
def pods(top: Path, *names: str) -> Iterator[tuple[Path, dict[str, int]]]:
    """Yield the path to ``kubectl`` and the processes that hold the pods. All are ended with the block."""
    path = ":".join(each for each in sys.path if each)
    kubectl = top / "kubectl"
    kubectl.write_text(KUBECTL.replace("@PODS@", str(top)).replace("@PYTHONPATH@", path))
    kubectl.chmod(0o755)
    with ExitStack() as stack:
        held = {name: stack.enter_context(_pod(top / name)) for name in names}
        yield kubectl, held


@contextmanager
def _pod(place: Path) -> Iterator[int]:
    for below in ("home", "state"):
        (place / below).mkdir(parents=True, mode=0o700)
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    holder = subprocess.Popen(
        [*command, sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n", "no namespaces"
        init = int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0])
        (place / "pid").write_text(f"{init}\n")
        yield init
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()


def end(pod: int) -> None:
    """End a pod's first process, and with it all others (pid_namespaces(7))."""
    os.kill(pod, signal.SIGKILL)
