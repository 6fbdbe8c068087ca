"""What takes a while, and the end of the server meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

from browser import Site, environment, staged

import forked
from conftest import Place
from mudroom.ext.web.state.hub import Hub, Look
from mudroom.ext.web.state.job import JobMessage, Jobs
from test_landing_api import end, verified_by


def test_an_apply_is_not_cut_off_by_the_end_of_the_server(place: Place) -> None:
    wait = f"sleep 62.{os.getpid()}"
    staged(place, "echo 1 > a")
    verified_by(place, f"[sh, -c, '{wait}; true']")
    process = forked.popen(
        ["serve", "--port", "0", "--json"],
        cwd=place.project,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            site = Site(process)
            at = f"/projects/{site.project}/forks/try-1"
            asked = {"reviewed": site.get(f"{at}/changes")["fingerprint"]}
            assert site.ask("POST", f"{at}/apply", asked)[0] == 202
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            assert process.stderr.readline().startswith("note: apply is at work: it ends first")
            end(wait)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (place.project / "a").exists()
    assert not (Path(os.fsdecode(place.state)) / "serve/server.json").exists()


def test_resting() -> None:
    jobs, go, begun = Jobs(Hub(lambda: Look({}, {}))), threading.Event(), threading.Event()

    def work(_told: JobMessage) -> dict[str, bool]:
        begun.set()
        go.wait(60)
        return {"done": True}

    assert jobs.rest(0.0)
    job = jobs.start("p", "f", "measure", work)
    begun.wait(60)
    assert [one.id for one in jobs.busy()] == [job.id]
    assert not jobs.rest(0.01)
    go.set()
    assert jobs.rest(60.0)
    assert jobs.busy() == []
    assert jobs.get(job.id).result == {"done": True}
