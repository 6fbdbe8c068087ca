"""Ray as an engine: refused where it is not safe; a cluster with two nodes, one of which is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from cluster_nodes import ORIGIN, until

from box import if_namespaces
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.engine.child import WorkerChild
from mudroom.ext.fleet.engine.ray import coordinate, reachable_address, require_private, require_safe
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import encode
from mudroom.ext.fleet.wire.message import frame_of
from tiers import each
from whole_text import whole

TOKEN = {b"RAY_AUTH_MODE": b"token"}


@each("mode", [None, b"", b"disabled", b"k8s", b"TOKEN"])
def test_a_cluster_that_asks_for_no_token_is_refused(mode: bytes | None) -> None:
    require_safe(TOKEN)
    told = (
        "a Ray cluster without authentication runs code of everybody who reaches its ports (start it, and this, with "
        "RAY_AUTH_MODE=token: https://docs.ray.io/en/latest/ray-security/token-auth.html)"
    )
    with pytest.raises(UsageError, match=whole(told)):
        require_safe({} if mode is None else {b"RAY_AUTH_MODE": mode})


@each("address", ["10.0.0.1", "192.168.1.2", "node.example.org", "localhost", "", "::2", "0.0.0.0"])
def test_bytes_between_machines_are_encrypted_or_refused(address: str) -> None:
    require_private({"127.0.0.1", "127.1.2.3", "::1"}, {})
    require_private({"127.0.0.1", address}, {b"RAY_USE_TLS": b"1"})
    told = (
        f"the Ray cluster sends sources and results without encryption, to {address} "
        "(start it, and this, with RAY_USE_TLS=1 and its certificates (RAY_TLS_SERVER_CERT, …))"
    )
    for tls in ({}, {b"RAY_USE_TLS": b"0"}, {b"RAY_USE_TLS": b"true"}):
        with pytest.raises(UsageError, match=whole(told)):
            require_private({"127.0.0.1", address}, tls)


@each("address", ["ray://127.0.0.1:10001", "local", "", "127.0.0.1", "127.0.0.1:x", "h:99999", ":1"])
def test_an_address_that_is_none_of_a_head_is_refused(address: str) -> None:
    told = f"RAY_ADDRESS={address} is not HOST:PORT of a head"
    with pytest.raises(UsageError, match=whole(f"{told} (RAY_ADDRESS=auto finds the one of this machine)")):
        reachable_address({b"RAY_ADDRESS": address.encode()})


def test_a_head_that_does_not_answer_is_named() -> None:
    assert reachable_address({}) == reachable_address({b"RAY_ADDRESS": b"auto"}) == "auto"
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert reachable_address({b"RAY_ADDRESS": address.encode()}) == address
    with pytest.raises(MudroomError, match=f"no Ray cluster answers at {address}"):
        reachable_address({b"RAY_ADDRESS": address.encode()})


class FakeRay(ModuleType):
    """Ray as the worker meets it: it finds a cluster or not, and knows its nodes."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=type("RayError", (Exception,), {}))
        self.error, self.is_over = error, False

    def init(self, **_options: object) -> None:
        if self.error is not None:
            raise self.error

    def nodes(self) -> list[dict[str, Any]]:
        resources = {"CPU": 0.0}
        return [{"NodeID": "1", "NodeManagerAddress": "127.0.0.1", "Resources": resources, "Alive": True}]

    def shutdown(self) -> None:
        self.is_over = True


NOWHERE = ConnectionError("Could not find any running Ray instance.\nPlease specify one.")


@pytest.mark.parametrize(
    ("ray", "message"),
    [
        (None, "Ray is not installed here (pip install 'mudroom[ray]' on every node)"),
        (
            FakeRay(NOWHERE),
            "no Ray cluster answers: Could not find any running Ray instance. (ray start --head starts one)",
        ),
        (FakeRay(), "no node of the Ray cluster has a free CPU (ray status shows its nodes)"),
    ],
)
def test_a_cluster_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, ray: FakeRay | None, message: str) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(MudroomError, match=whole(message)):
        coordinate(cast(Any, None), -1, cast(Any, None), cast(Any, None), TOKEN, None)
    assert ray is None or ray.error is not None or ray.is_over, "Ray's own threads are ended"


def test_the_verb_refuses_before_it_looks_for_ray(tmp_path: Path) -> None:
    """The origin is told by a frame, the user by standard error."""
    hello = encode(frame_of(wire.HELLO, wire.OriginHello(wire.PROTOCOL, "0", ORIGIN, "lab", 60.0)))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MUDROOM_STATE": str(tmp_path / "state")}
    command = [sys.executable, "-m", "mudroom", "worker", "--stdio", "--engine", "ray"]
    done = subprocess.run(command, input=hello, env=environ, capture_output=True, timeout=60, check=False)
    assert done.returncode == 125
    assert b"RAY_AUTH_MODE=token" in done.stdout and done.stderr.count(b"\n") <= 2
    assert b"Traceback" not in done.stderr


def test_a_worker_does_not_see_the_clusters_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("HOME", "/h")
    told = b""
    with WorkerChild(["/usr/bin/env"]) as child:
        while data := child.read(10):
            told += data
    assert b"HOME=/h\n" in told and b"RAY_" not in told


PARENT = """
import sys
from mudroom.ext.fleet.engine.child import WorkerChild
child = WorkerChild(["/bin/sleep", "1000"])
print(child._child.pid, flush=True)
sys.stdin.read()
"""


def test_a_worker_ends_with_the_process_that_started_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    until(lambda: _is_gone(worker))


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_worker_outlives_the_thread_that_asked_for_it() -> None:
    made: list[WorkerChild] = []
    thread = threading.Thread(target=lambda: made.append(WorkerChild(["/bin/sleep", "1000"])))
    thread.start()
    thread.join()
    with made[0] as child:
        assert child.read(0.2) is None


def test_a_worker_is_ended_at_once() -> None:
    with WorkerChild(["/bin/sleep", "1000"]) as child:
        assert child.read(0) is None
        child.close()
        assert child.read(10) == b""
        with pytest.raises(BrokenPipeError):
            child.write(b"x" * (1 << 20))


@pytest.mark.deep
@pytest.mark.both_users
@pytest.mark.limit(300)
@if_namespaces
def test_a_node_of_a_ray_cluster_is_killed_while_errands_run(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    namespaces = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    scenario = Path(__file__).parent / "ray_scenario.py"
    command = ["unshare", *namespaces, sys.executable, str(scenario), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    lines = "".join(told["lines"])
    assert told["ended"] == [], told["nodes"]
    assert "2 nodes" in told["nodes"]
    assert "RAY_AUTH_MODE=token" in told["without token"]
    assert "not usable" in told["wrong token"]
    assert told["killed"], lines
    assert lines.count("the node n2 is gone") >= 2, lines
    assert lines.count("| done") == 4, lines  # two that ran on the other node, and the two that waited
    assert told["forks"].count("r1-") == 4, told["forks"]
    assert told["project"][".env"] == "TOKEN=planted\n"
    assert told["project"]["seen"].splitlines() == ["0", str(tmp_path / "project")]
    assert told["left"] == []
