"""Jobs: long work in a thread, known by an id and reported to listeners."""

from __future__ import annotations

import codecs
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from msgspec import structs, to_builtins

from mudroom.ext.web.shape import JobShape, LandedShape, ProblemShape
from mudroom.ext.web.state.hub import Hub
from mudroom.ext.web.state.refusal import Refusal, refusal_of

_KEPT_JOBS = 100
"""Finished jobs kept."""
_OUTPUT = 64 << 10
"""Output characters kept."""


Work = Callable[["JobReporter"], LandedShape | dict[str, Any]]


class Jobs:
    """``_lock`` guards the jobs and their threads."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._lock = hub, threading.Lock()
        self._boot, self._numbers = os.urandom(4).hex(), itertools.count(1)  # ids are unique across restarts
        self._jobs: OrderedDict[str, JobShape] = OrderedDict()
        self._threads: set[threading.Thread] = set()

    def start(self, project: str, fork: str, what: Any, work: Work) -> JobShape:
        with self._lock:
            job = JobShape(f"{self._boot}-{next(self._numbers)}", project, fork, what, "running")
            self._jobs[job.id] = job
            for old in [other for other in self._jobs.values() if other.state != "running"][:-_KEPT_JOBS]:
                del self._jobs[old.id]
            thread = threading.Thread(target=self._run, args=(job.id, work), daemon=True)
            self._threads = {other for other in self._threads if other.is_alive()} | {thread}
            thread.start()
        return job

    def of(self, project: str) -> list[JobShape]:
        """Return a project's running and last finished jobs, oldest first."""
        with self._lock:
            return [job for job in self._jobs.values() if job.project == project]

    def busy(self) -> list[JobShape]:
        with self._lock:
            return [job for job in self._jobs.values() if job.state == "running"]

    def rest(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until no job runs. Return whether none runs."""
        until = time.monotonic() + seconds
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def get(self, identity: str) -> JobShape:
        with self._lock:
            job = self._jobs.get(identity)
        if job is None:
            raise Refusal(404, "not-found", "there is no such job", "the server was started anew, or it was long ago")
        return job

    def update(self, identity: str, **changes: Any) -> None:
        with self._lock:
            job = self._jobs[identity] = structs.replace(self._jobs[identity], **changes)
        data: dict[str, Any] = to_builtins(job)
        self._hub.tell("job", data)

    def append(self, identity: str, text: str) -> None:
        with self._lock:
            job = self._jobs[identity]
            self._jobs[identity] = structs.replace(job, output=(job.output + text)[-_OUTPUT:])
        self._hub.tell("output", {"job": identity, "text": text})

    def _run(self, identity: str, work: Work) -> None:
        try:
            result = work(JobReporter(self, identity))
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the job has to hear of it
            self.update(identity, state="failed", problem=problem_of(error))
            return
        outcome = {"landed": result} if isinstance(result, LandedShape) else {"result": result}
        self.update(identity, state="done", phase="", **outcome)


class JobReporter:
    """The reporter passed to a job's work. Owner: the job's thread."""

    def __init__(self, jobs: Jobs, identity: str) -> None:
        self._jobs, self._identity = jobs, identity
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may be split between pieces

    def phase(self, text: str, done: int, total: int) -> None:
        self._jobs.update(self._identity, phase=text, done=done, total=total)

    def output(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        if text:
            self._jobs.append(self._identity, text)


def problem_of(error: Exception) -> ProblemShape:
    """Return the problem for an exception that the work has raised."""
    try:
        return refusal_of(error).problem
    except Exception as fault:  # noqa: BLE001 - a fault of ours: said as such
        return ProblemShape(
            f"mudroom failed: {type(fault).__name__}: {fault}", "failed", "this is a fault of mudroom's"
        )
