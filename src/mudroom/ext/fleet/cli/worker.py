"""``mudroom worker``: this machine as a worker in another one's fleet."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.protocol_streams import take_streams
from mudroom.cli.terminal.signals import end, handling
from mudroom.core.confinement.environment import is_inside
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.base.objects import ObjectStore
from mudroom.ext.fleet.engine import ray
from mudroom.ext.fleet.worker.frame_stream import FrameStream, origin_hello
from mudroom.ext.fleet.worker.link import MOST_GPUS
from mudroom.ext.fleet.worker.stdio import origin_directory, refuse, serve
from mudroom.policy.config import places
from mudroom.policy.setting_type import size

# --- ``mudroom worker --stdio --engine NAME``: a cluster as one worker (``ext/fleet/engine/coordinator.py``) ---
# Objects for an origin's bases are in ``worker/ORIGIN/cluster`` in the state directory. Errands and their outcomes are
# on the nodes.


ENGINES = {"ray": ray.coordinate}


def serve_cluster(read: int, write: int, environ: Mapping[bytes, bytes], engine: str, jobs: int | None) -> None:
    """Serve one link until its origin is gone and the commands on all nodes have ended. ``jobs``: on each node.

    Raise what the engine raises if there is no cluster or it is not safe, LinkError if the origin speaks another
    protocol."""
    frames = FrameStream(read)
    try:
        hello = origin_hello(frames.next())
        origin = origin_directory(places(environ).state, hello.origin)
        store = ObjectStore(origin + b"/cluster")
        ENGINES[engine](frames, write, hello, store, environ, jobs)
    except (MudroomError, OSError) as error:
        refuse(write, error)
        raise


EXAMPLES = """\
examples:
  mudroom fleet add big -- ssh big.example.org mudroom worker --stdio     at the origin; that starts it
  mudroom worker --stdio --jobs 4                                         at most 4 commands at once
  mudroom fleet add lab -- ssh head.lab mudroom worker --stdio --engine ray      the nodes of a Ray cluster

It speaks a protocol on its standard input and output, and has no listening socket. Commands run in forks of the files
that the origin has sent, and nothing lands here. Its state is below mudroom's state directory."""

MOST_JOBS = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stdio", action="store_true", help="speak on standard input and output")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where commands run; default: here")
    parser.add_argument("--jobs", type=int, metavar="N", help="commands at once; default: one for each processor")
    parser.add_argument("--memory", metavar="SIZE", help="memory for commands: 64GB; default: all")
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs for commands; default: all")


def execute(args: argparse.Namespace, context: Context) -> int:
    if not args.stdio:
        raise UsageError(
            "mudroom worker is started by an origin", "mudroom fleet add NAME -- ssh HOST mudroom worker --stdio"
        )
    if args.jobs is not None and not 0 < args.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {args.jobs} is not a number of commands", f"1 to {MOST_JOBS:,}")
    memory = size(args.memory, "--memory") if args.memory else None
    if args.gpus is not None and not 0 <= args.gpus <= MOST_GPUS:
        raise UsageError(f"--gpus {args.gpus} is not a number of GPUs", f"0 to {MOST_GPUS:,}")
    if is_inside(context.environ):
        raise UsageError(
            "mudroom worker runs inside mudroom, where its forks would be lost with the sandbox",
            "start it outside of any sandbox",
        )
    if context.terminal.interactive:
        raise UsageError(
            "mudroom worker speaks a protocol on its standard input, and that is a terminal",
            "an origin starts it: mudroom fleet add NAME -- ssh HOST mudroom worker --stdio",
        )
    os.umask(0o077)  # for state; a command's umask is the origin's
    streams = take_streams()
    with (  # a signal: the commands have ended, their outcomes are kept
        suppress(SystemExit),
        handling({signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: signal.SIG_IGN}),
    ):
        # after a lost connection (SIGHUP) the lease decides
        if args.engine != "local":
            serve_cluster(*streams, context.environ, args.engine, args.jobs)
        else:
            serve(*streams, context.environ, args.jobs or os.cpu_count() or 1, memory, args.gpus)
    return 0
