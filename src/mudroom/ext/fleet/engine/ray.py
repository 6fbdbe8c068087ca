"""Ray as an engine: this process, on the cluster's side, is the driver; each node has an actor with a worker.

    origin ══ ssh HEAD mudroom worker --stdio --engine ray ══ an actor for each node ══ mudroom worker --stdio

Rules of this file:
1. The origin is never a driver. The driver unpickles the object that a task returns, which runs the node's code. Only
   frames cross to the origin.
2. A cluster is one trust domain: whoever reaches it runs code on every node, beside the sandboxes. So authentication by
   token has to be on, and TLS, unless all addresses are loopback.
3. mudroom is installed on every node, by its administrator; ``runtime_env`` is not used.
4. The coordinator chooses nodes. An actor holds as many CPUs on its node as it runs errands at once, so Ray gives them
   to nobody else meanwhile.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module

from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.base.objects import ObjectStore
from mudroom.ext.fleet.engine.child import WorkerChild, worker_command
from mudroom.ext.fleet.engine.cluster_node import NodeRelay, RelayError
from mudroom.ext.fleet.engine.coordinator import Coordinator, FrameSource
from mudroom.ext.fleet.wire.message import OriginHello
from mudroom.typing import Any

SILENCE = 30.0
"""Seconds without an actor's answer after which its node is gone. It answers every ``_TURN``."""
_TURN = 5.0
CONNECTION = 10.0
"""Seconds in which the head has to take a connection."""
_LOOK = 2.0
"""Seconds between two looks for new nodes."""
GRACE = 15.0
"""Seconds in which a node that has just been started, or whose worker has ended, is waited for. The head tells a node
and its CPUs one after the other, and a loss only after some missed beats."""
MOST_TRIES = 3
"""Workers that are started on a node during a link: one that ends at once will do so again."""
_AUTH = "https://docs.ray.io/en/latest/ray-security/token-auth.html"


def require_safe(environ: Mapping[bytes, bytes]) -> None:
    """Raise UsageError unless the cluster asks for a token."""
    if environ.get(b"RAY_AUTH_MODE") != b"token":
        raise UsageError(
            "a Ray cluster without authentication runs code of everybody who reaches its ports",
            f"start it, and this, with RAY_AUTH_MODE=token: {_AUTH}",
        )


def require_private(addresses: set[str], environ: Mapping[bytes, bytes]) -> None:
    """Raise UsageError if bytes between nodes can be read on the way."""
    far = sorted(address for address in addresses if not _is_loopback(address))
    if far and environ.get(b"RAY_USE_TLS") != b"1":
        raise UsageError(
            f"the Ray cluster sends sources and results without encryption, to {far[0]}",
            "start it, and this, with RAY_USE_TLS=1 and its certificates (RAY_TLS_SERVER_CERT, …)",
        )


def reachable_address(environ: Mapping[bytes, bytes]) -> str:
    """Return the cluster's address. Raise UsageError if no cluster can have it, MudroomError if nothing answers there:
    Ray itself would try for minutes."""
    address = os.fsdecode(environ.get(b"RAY_ADDRESS", b"auto"))
    if address == "auto":
        return address
    host, _colon, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or int(port) > 0xFFFF:
        raise UsageError(
            f"RAY_ADDRESS={address} is not HOST:PORT of a head", "RAY_ADDRESS=auto finds the one of this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECTION).close()
    except OSError as error:
        raise MudroomError(f"no Ray cluster answers at {address}: {error}", "ray status on its head") from error
    return address


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False  # a name may lead anywhere


class NodeWorker:
    """A node's actor. Each method runs in its own thread (``max_concurrency``), one call at a time."""

    def __init__(self, jobs: int) -> None:
        self._child = WorkerChild(worker_command(jobs))

    def read(self) -> bytes | None:
        return self._child.read(_TURN)

    def write(self, data: bytes) -> None:
        self._child.write(data)

    def end(self) -> None:
        self._child.end()

    def close(self) -> None:
        self._child.close()


class RayRelay(NodeRelay):
    """An actor on one node. Its calls are made by the coordinator's threads; Ray's client is thread-safe."""

    def __init__(self, ray: Any, name: str, node: str, slots: int) -> None:
        """``node``: its id in Ray. ``slots``: errands at once, and the CPUs that are held."""
        self.name, self.slots = name, slots
        self._ray = ray
        strategies: Any = import_module("ray.util.scheduling_strategies")
        self._actor = (
            ray.remote(NodeWorker)
            .options(
                num_cpus=slots,
                max_concurrency=4,
                max_restarts=0,
                scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node, soft=False),
            )
            .remote(slots)
        )
        self._is_there = False
        self.is_over = False
        """Whether its worker has ended, or is not reached any more."""

    def read(self) -> bytes:
        while True:
            data = self._call(self._actor.read, SILENCE if self._is_there else None)
            self._is_there = True
            if data is not None:
                return bytes(data)

    def write(self, data: bytes) -> None:
        self._call(self._actor.write, None, data)

    def end(self) -> None:
        self._call(self._actor.end, None)

    def close(self) -> None:
        self.is_over = True
        with suppress(RelayError):  # the node is gone, and the worker with it
            self._call(self._actor.close, SILENCE)
        self._ray.kill(self._actor)

    def _call(self, method: Any, seconds: float | None, *arguments: object) -> Any:
        try:
            return self._ray.get(method.remote(*arguments), timeout=seconds)
        except (self._ray.exceptions.RayError, OSError) as error:
            raise RelayError(f"Ray does not reach it any more ({type(error).__name__})") from error


def coordinate(
    frames: FrameSource,
    write: int,
    origin: OriginHello,
    store: ObjectStore,
    environ: Mapping[bytes, bytes],
    jobs: int | None,
) -> None:
    """Serve one link with the nodes in this machine's Ray cluster. ``jobs``: errands at once on a node; None: one for
    each CPU.

    Raise UsageError if Ray is not installed or the cluster is not safe, MudroomError if there is none.
    """
    require_safe(environ)
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UsageError("Ray is not installed here", "pip install 'mudroom[ray]' on every node") from error
    address = reachable_address(environ)
    try:
        ray.init(
            address=address,
            namespace="mudroom",
            log_to_driver=False,
            logging_level="ERROR",
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise MudroomError(f"no Ray cluster answers: {reason[0][:200]}", "ray start --head starts one") from error
    over = threading.Event()
    try:
        require_private({node["NodeManagerAddress"] for node in ray.nodes()}, environ)
        coordinator = Coordinator(write, "ray", store, GRACE)
        find = _Finder(ray, jobs)
        relays = find()
        if not relays:
            raise MudroomError("no node of the Ray cluster has a free CPU", "ray status shows its nodes")
        watch = threading.Thread(target=_watch, args=(find, coordinator, over, environ), name="nodes", daemon=True)
        watch.start()
        coordinator.serve(origin, frames, relays)
    finally:
        over.set()
        ray.shutdown()


class _Finder:
    """Makes relays for nodes without a working one. ``_lock`` guards its attributes."""

    def __init__(self, ray: Any, jobs: int | None) -> None:
        self._ray, self._jobs = ray, jobs
        self._lock = threading.Lock()
        self._made: dict[str, list[RayRelay]] = {}
        """By the node's id in Ray."""
        self._names: set[str] = set()

    def __call__(self, is_allowed: Callable[[str], bool] = lambda _address: True) -> list[RayRelay]:
        relays = []
        with self._lock:
            for node in self._ray.nodes():
                slots = int(node["Resources"].get("CPU", 0)) if node["Alive"] else 0
                made = self._made.setdefault(node["NodeID"], [])
                is_served = bool(made) and not made[-1].is_over
                if is_served or len(made) == MOST_TRIES or slots < 1 or not is_allowed(node["NodeManagerAddress"]):
                    continue
                name = made[-1].name if made else self._name(node)
                relays.append(RayRelay(self._ray, name, node["NodeID"], min(self._jobs or slots, slots)))
                made.append(relays[-1])
        return relays

    def _name(self, node: Mapping[str, Any]) -> str:
        """Return a name that a node with this address has on the next link, too: outcomes are kept by it."""
        plain = node.get("NodeName") or node["NodeManagerAddress"]
        name, number = plain, 1
        while name in self._names:
            number += 1
            name = f"{plain}-{number}"
        self._names.add(name)
        return str(name)


def _watch(find: _Finder, coordinator: Coordinator, over: threading.Event, environ: Mapping[bytes, bytes]) -> None:
    """Add nodes that join the cluster."""

    def is_allowed(address: str) -> bool:
        try:
            require_private({address}, environ)
        except UsageError:
            return False
        return True

    while not over.wait(_LOOK):
        for relay in find(is_allowed):
            coordinator.add(relay)
