"""SWE-bench's evaluation, and mini-swe-agent's runs for it, on forks of prepared repositories instead of images.

    report = evaluate("predictions.json", "instances.json", "prepared", run_id="mine")

``prepared`` is a directory with a git repository of each instance, at its ``base_commit`` and named by its
``instance_id``, in which the tests can run. Commands see it as ``/testbed``; it never changes. SWE-bench's own code
applies the patches, reads the logs and grades. Its logs and reports are where it writes them.
"""

from __future__ import annotations

import functools
import os
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mudroom import api
from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import EndedCommand, ForkWorkspace
from mudroom.library.argument import environment_of
from mudroom.library.room import Room
from mudroom.policy.config import places, project_settings
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

with vendor("swebench"):
    from swebench.harness import run_evaluation
    from swebench.harness.reporting import make_run_report
    from swebench.harness.utils import EvaluationError, get_predictions_from_file, run_threadpool

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTBED = "/testbed"
"""Where SWE-bench's images have the repository."""
OUTPUT = 100 << 20
"""Bytes of a test log."""
_PATCHED = threading.Lock()
"""Guards the functions of SWE-bench's modules that are replaced."""


class InstanceWorkspace(ForkWorkspace):
    """A fork of an instance's prepared repository, which its commands see as ``/testbed``. It can be read, and
    discarded, but not applied. Without the network."""

    def __init__(self, projects: str | os.PathLike[str], instance_id: str, agent: str | None = None) -> None:
        """``agent``: as which the policy judges the commands; None: they are the caller's own. Raise UsageError if the
        repository is absent."""
        project = os.path.join(os.fspath(projects), instance_id)
        if instance_id in ("", ".", "..") or "/" in instance_id or not os.path.isdir(project):
            raise api.UsageError(f"no prepared repository of {instance_id}", f"git clone REPOSITORY {project}")
        variables, notes = environment_of(None), list[str]()
        located = places(variables)
        session = api.Session.open(
            os.fsencode(os.path.realpath(project)),
            appears_at=TESTBED.encode(),
            state=os.path.join(located.state, b"swe-bench", os.fsencode(instance_id)),
            home=located.home,
            environ=variables,
            settings=project_settings(os.fsencode(project), variables, notes.append)._replace(network="none"),
            agent=agent,
        )
        super().__init__(room=Room(session, notes, lambda _cancellation: None))


class _Ended(NamedTuple):
    exit_code: int
    output: bytes


class _Container(NamedTuple):
    """The methods of a container that SWE-bench calls."""

    id: str
    workspace: InstanceWorkspace

    def start(self) -> None:
        """Do nothing: commands begin its sandbox."""

    def exec_run(self, cmd: str | Sequence[str], workdir: str | None = None, user: str | None = None) -> _Ended:
        ended = self.run(cmd, workdir)
        return _Ended(ended.exit_code, ended.output)

    def run(self, cmd: str | Sequence[str], workdir: str | None = None, timeout: float | None = None) -> EndedCommand:
        words = [_here(word) for word in (shlex.split(cmd) if isinstance(cmd, str) else cmd)]
        return self.workspace.run(words, cwd=workdir, timeout=timeout, limit=OUTPUT)


def _here(place: str) -> str:
    """Return where a file at the root of a container is in the sandbox, whose root cannot be written to."""
    return f"/tmp{place}" if place == "/eval.sh" or place.startswith("/image_assets/") else place


def _create(projects: str | os.PathLike[str], test_spec: Any, _client: Any, _run: str, logger: Any) -> _Container:
    try:
        workspace = InstanceWorkspace(projects, test_spec.instance_id)
    except api.MudroomError as error:
        raise EvaluationError(test_spec.instance_id, str(error), logger) from error
    return _Container(workspace.fork.name, workspace)


def _copy(container: _Container, source: Path, destination: Any) -> None:
    content = source.read_bytes()
    if source.name == "eval.sh":
        content = content.replace(b" /image_assets/", b" /tmp/image_assets/")
    container.workspace.write(_here(str(destination)), content)


def _timed(container: _Container, cmd: str, timeout: float | None = 60) -> tuple[str, bool, float]:
    begun = time.monotonic()
    ended = container.run(cmd, timeout=timeout)
    return ended.text, ended.timed_out, time.monotonic() - begun


def _remove(_client: Any, container: _Container | None, _logger: Any) -> None:
    if container is not None:
        container.workspace.discard()


@contextmanager
def _replaced(module: Any, **functions: Any) -> Iterator[None]:
    with _PATCHED:
        before = {name: getattr(module, name) for name in functions}
        vars(module).update(functions)
        try:
            yield
        finally:
            vars(module).update(before)


def evaluate(
    predictions: str,
    dataset: str,
    projects: str | os.PathLike[str],
    *,
    run_id: str,
    split: str = "test",
    instance_ids: Sequence[str] = (),
    workers: int = 1,
    timeout: int = 1800,
    report_dir: str = ".",
) -> Path:
    """Return the path of the report, as ``swebench.harness.run_evaluation.main`` does. ``predictions``: a file, or
    "gold". ``dataset``: a file of instances, or a name. ``timeout``: seconds for an instance's tests."""
    chosen = list(instance_ids)
    rows = get_predictions_from_file(predictions, dataset, split, instance_ids=chosen or None)
    by_id = {row["instance_id"]: row for row in rows if not chosen or row["instance_id"] in chosen}
    instances = run_evaluation.get_dataset_from_preds(dataset, split, chosen, by_id, run_id, False)
    run_evaluation.write_run_metadata(run_id, dataset, split, None)
    specs = [run_evaluation.make_test_spec(instance) for instance in instances]
    with _replaced(
        run_evaluation,
        create_container=functools.partial(_create, projects),
        copy_to_container=_copy,
        exec_run_with_timeout=_timed,
        cleanup_container=_remove,
    ):
        payloads = [(spec, by_id[spec.instance_id], None, run_id, timeout) for spec in specs]
        run_threadpool(run_evaluation.run_instance, payloads, workers)
    whole = run_evaluation.load_instances(dataset, split, chosen or None, None)
    report: Path = make_run_report(by_id, whole, run_id, report_dir=report_dir)
    return report


@contextmanager
def agent_runs(projects: str | os.PathLike[str]) -> Iterator[None]:
    """In the block mini-swe-agent's ``run.benchmarks.swebench`` works on forks of prepared repositories."""
    with vendor("mini-swe-agent"):
        from minisweagent.run.benchmarks import swebench as runs

        from mudroom.ext.orchestra.mini_swe_agent import MudroomEnvironment, MudroomEnvironmentConfig

    class Environment(MudroomEnvironment):
        def __init__(self, instance_id: str, config: dict[str, Any]) -> None:
            self.config = MudroomEnvironmentConfig(**config)
            self.workspace = InstanceWorkspace(projects, instance_id, self.config.agent)

    def environment(config: dict[str, Any], instance: dict[str, Any]) -> Environment:
        return Environment(instance["instance_id"], config.get("environment", {}))

    with _replaced(runs, get_sb_environment=environment):
        yield
