"""mudroom as the environment of mini-swe-agent.

    mini --environment-class mudroom.ext.orchestra.mini_swe_agent.MudroomEnvironment

or in its configuration, ``environment:`` with ``environment_class`` and the fields of ``MudroomEnvironmentConfig``. The
fork stays after the run: ``mudroom diff``, ``mudroom apply``.
"""

from __future__ import annotations

import platform

from mudroom.ext.orchestra.vendor import vendor
from mudroom.ext.orchestra.workspace import ForkWorkspace
from mudroom.typing import Any

with vendor("mini-swe-agent"):
    from minisweagent.environments.local import LocalEnvironment, LocalEnvironmentConfig
    from minisweagent.utils.serialize import recursive_merge


class MudroomEnvironmentConfig(LocalEnvironmentConfig):
    project: str = "."
    fork: str | None = None
    """None: a new one."""
    agent: str = "mini-swe-agent"
    """As which the policy judges the commands."""
    interpreter: tuple[str, ...] = ("bash", "-c")


class MudroomEnvironment(LocalEnvironment):
    def __init__(self, *, config_class: type = MudroomEnvironmentConfig, **kwargs: Any) -> None:
        super().__init__(config_class=config_class, **kwargs)
        config = self.config
        self.workspace = ForkWorkspace(
            config.project, fork=config.fork, agent=config.agent, cwd=config.cwd, env=config.env
        )

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        command = [*self.config.interpreter, action.get("command", "")]
        ended = self.workspace.run(command, cwd=cwd or None, timeout=timeout or self.config.timeout)
        output = {"output": ended.text, "returncode": ended.exit_code, "exception_info": ""}
        if ended.timed_out:
            why = f"the command ran out of time after {timeout or self.config.timeout} seconds"
            output |= {
                "returncode": -1,
                "exception_info": f"An error occurred while executing the command: {why}",
                "extra": {"exception_type": "TimeoutExpired", "exception": why},
            }
        self._check_finished(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the configuration and the system's names, and none of this process's variables."""
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)
        return merged

    def cleanup(self) -> None:
        """End its commands. The fork stays if it has changes."""
        self.workspace.close()
