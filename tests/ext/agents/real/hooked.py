"""A place to try an agent whose commands and edits go through ``mudroom hook``, and ways to break mudroom."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from model_protocols import Answer, Request
from model_server import ModelServer
from real_agents import MUDROOM, Ended, RealAgent, Try
from scenario import Step

BREAKS = {
    "missing": None,
    "timeout": "#!/bin/sh\nexec sleep 1000\n",
    "exit 1": "#!/bin/sh\nexit 1\n",
    "killed": "#!/bin/sh\nkill -9 $$\n",
    "silent": "#!/bin/sh\nexit 0\n",
    "garbage": "#!/bin/sh\necho allow\n",
    "half an answer": "#!/bin/sh\nprintf '{\"hookSpecificOutput\":'\nexit 3\n",
    "empty file": "",
}
"""What mudroom's program is replaced by; None: it is removed."""

WORDS = {
    "claude": ("claude", "-p", "{prompt}", "--allowedTools=Bash,Read,Edit,Write"),
    "codex": ("codex", "exec", "--dangerously-bypass-hook-trust", "{prompt}"),
}
"""Command lines without what takes the agent's own protection away."""


_PATCH = """\
*** Begin Patch
*** Update File: calc.py
@@
-    return a - b
+    return a + b
*** End Patch"""


class Obedient(ModelServer):
    """A model that takes files by the paths that the hook has named: ``NAMED/x`` is the last with this ending."""

    def answer(self, request: Request) -> Answer:
        named = re.findall(r"Read, Edit and Write find it at (\S+) only\.", request.said)

        def path(step: Step) -> str:
            ends = [other for other in named if other.endswith(step.path.removeprefix("NAMED"))]
            return ends[-1] if step.path.startswith("NAMED") and ends else step.path

        self.steps = tuple(step._replace(path=path(step)) for step in self.steps)
        return super().answer(request)


class Hooked(Try):
    """A try with a hook. ``program``: mudroom, as a file that a test may break."""

    def __init__(self, root: Path, agent: RealAgent) -> None:
        super().__init__(root, agent._replace(words=WORDS.get(agent.name, agent.words)))
        self.program = root / "bin/mudroom"
        self.program.parent.mkdir()
        self.repair()
        self.environ["PWD"] = str(self.project)
        self.environ["GEMINI_CLI_TRUST_WORKSPACE"] = "true"  # --skip-trust comes too late for hooks of a project

    def close(self) -> None:
        """Unmount the fork, whatever became of mudroom's program."""
        self.run((*MUDROOM, "unmount", self.agent.name), self.environ)
        super().close()

    def repair(self) -> None:
        text = f"#!{sys.executable} -P\nfrom mudroom.cli import main\nmain()\n"
        self.program.write_text(text)
        self.program.chmod(0o755)

    def record_to(self, directory: Path) -> None:
        """Keep each event and its answer, as files of a number."""
        directory.mkdir()
        real = self.program.parent / "real/mudroom"
        real.parent.mkdir()
        self.program.rename(real)
        text = f"""#!{sys.executable} -P
import os, subprocess, sys
words = [{str(real)!r}, *sys.argv[1:]]
if "hook" not in sys.argv:
    os.execv(words[0], words)
event = sys.stdin.buffer.read()
answer = subprocess.run(words, input=event, capture_output=True).stdout
number = len(os.listdir({str(directory)!r}))
for name, data in (("event", event), ("answer", answer)):
    with open(f"{directory}/{{number:02}}-{{name}}", "wb") as stream:
        stream.write(data)
sys.stdout.buffer.write(answer)
"""
        self.program.write_text(text)
        self.program.chmod(0o755)

    def break_by(self, text: str | None) -> None:
        self.program.unlink()
        if text is not None:
            self.program.write_text(text)
            self.program.chmod(0o755)

    def prepare(self, server: ModelServer) -> None:
        super().prepare(server)
        if self.agent.name == "codex":
            temporary = self.home.parent / "tmp"  # with a home below TMPDIR, codex's sandbox misses its helper program
            temporary.mkdir(exist_ok=True)
            self.environ["TMPDIR"] = str(temporary)
            with (self.home / ".codex/config.toml").open("a") as stream:
                stream.write(f'\n[projects."{self.project}"]\ntrust_level = "trusted"\n')

    def install(self, *options: str) -> str:
        return self.command(str(self.program), "hook", "install", self.agent.name, *options)

    def impatient(self) -> None:
        """Let the guard wait for a second only."""
        own = self.home / ".local/state/mudroom/hooks"
        for path in (*self.project.rglob("*"), *own.rglob("*")):
            if path.is_file() and ".git" not in path.parts:
                text = path.read_bytes()
                changed = text.replace(b"timeout -k 1 20", b"timeout -k 1 1").replace(
                    b"timeout: 20000", b"timeout: 1000"
                )
                if changed != text:
                    path.write_bytes(changed)

    def hooked_steps(self) -> tuple[Step, ...]:
        calc, new = str(self.project / "calc.py"), str(self.project / "notes.md")
        edit = f"sed -i 's/a - b/a + b/' '{calc}'"
        if self.agent.name == "codex":
            edit = f"apply_patch <<'EOF'\n{_PATCH}\nEOF"
        return (
            Step("shell", 'echo "it\'s 2" >made; pwd'),
            Step("read", f"cat '{calc}'", "read", calc),
            Step("edit", edit, "edit", calc, "return a - b", "return a + b"),
            Step("write", f"echo new >'{new}'", "write", new, content="new\n"),
            Step("outside", f"echo x >'{self.other}/x'", "write", str(self.other / "x"), content="x\n"),
            Step("see", "cat calc.py notes.md made"),
            Step("finish", content="Done."),
        )

    def play(self, steps: Sequence[Step] | None = None) -> tuple[ModelServer, Ended]:
        with Obedient(steps or self.hooked_steps()) as server:
            self.prepare(server)
            ended = self.bare(server)
        return server, ended

    def everything(self) -> dict[str, tuple[int, str]]:
        """Return what must stay: the project without mudroom's directory, and the other project."""
        files = {**self.snapshot(), "other": (0, repr(sorted(os.listdir(self.other))))}
        files.pop(".", None)
        return {name: value for name, value in files.items() if not name.startswith((".git/", "opencode.json"))}
