"""``mudroom worker --stdio --engine NAME``: a cluster as one worker (``ext/fleet/engine/coordinator.py``).

Objects for an origin's bases are in ``worker/ORIGIN/cluster`` in the state directory. Errands and their outcomes are on
the nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.objects import ObjectStore
from mudroom.ext.fleet.engine import ray
from mudroom.ext.fleet.worker.frame_stream import FrameStream, origin_hello
from mudroom.ext.fleet.worker.stdio import checked_name, private_directory, refuse
from mudroom.policy.config import places

ENGINES = {"ray": ray.coordinate}


def serve_cluster(read: int, write: int, environ: Mapping[bytes, bytes], engine: str, jobs: int | None) -> None:
    """Serve one link until its origin is gone and the commands on all nodes have ended. ``jobs``: on each node.

    Raise what the engine raises if there is no cluster or it is not safe, LinkError if the origin speaks another
    protocol."""
    frames = FrameStream(read)
    try:
        hello = origin_hello(frames.next())
        top = private_directory(places(environ).state + b"/worker")
        origin = private_directory(top + b"/" + os.fsencode(checked_name(hello.origin)))
        store = ObjectStore(origin + b"/cluster")
        ENGINES[engine](frames, write, hello, store, environ, jobs)
    except (MudroomError, OSError) as error:
        refuse(write, error)
        raise
