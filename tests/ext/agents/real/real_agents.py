"""Agents that exist, as users install and start them, and a place to try each: a home, a project, and things that must
not leave.

``dev/agents --fetch`` installs them to ``.agents``.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from model_server import ModelServer
from scenario import Step, all_steps

ROOT = Path(__file__).resolve().parents[4]
FETCHED = Path(os.environ.get("MUDROOM_AGENTS", ROOT / ".agents"))
MUDROOM = (sys.executable, "-m", "mudroom")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PROMPT = "Fix calc.py so that its test passes."
SECONDS = int(os.environ.get("MUDROOM_AGENT_SECONDS", "150"))
"""For each call of an agent: one whose model server does not answer may wait for ever."""
MODEL = "scripted"


class RealAgent(NamedTuple):
    name: str
    bin: str
    """The directory of its program, below .agents/NAME."""
    words: tuple[str, ...]
    """The command line, without questions. ``{prompt}`` and ``{url}`` are filled in."""
    environment: Mapping[str, str]
    files: Mapping[str, str]
    """Its settings below the home: its content by path."""
    last: str = ""
    """A command that ends its session, for an agent that does not end with a text."""
    writes: frozenset[str] = frozenset()
    """Settings that the agent itself writes at its first start."""
    refuses: tuple[str, ...] = ()
    """Steps that the agent itself refuses, wherever it runs."""
    hook: tuple[str, str] = ("", "")
    """A file of its settings, and a content that would run a program at its next start."""

    @property
    def directory(self) -> Path:
        return FETCHED / self.name / self.bin

    @property
    def version(self) -> str:
        try:
            return (FETCHED / self.name / "version").read_text().strip()
        except OSError:
            return ""  # not fetched, or closed to us


_NPM = "node_modules/.bin"
_CODEX = """\
model = "gpt-5"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""
_OPENCODE = """\
{"$schema": "https://opencode.ai/config.json",
 "provider": {"anthropic": {"options": {"baseURL": "{url}/v1", "apiKey": "sk-none"},
 "models": {"claude-sonnet-4-5": {}}}}, "model": "anthropic/claude-sonnet-4-5", "autoupdate": false}
"""
_GEMINI = """\
{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"enableAutoUpdate": false},
 "privacy": {"usageStatisticsEnabled": false}}
"""
_PI = """\
{"providers": {"scripted": {"baseUrl": "{url}/v1", "api": "openai-completions", "apiKey": "OPENAI_API_KEY",
 "models": [{"id": "scripted"}]}}}
"""
_CN = """\
name: scripted
version: 1.0.0
schema: v1
models:
  - {name: scripted, provider: openai, model: scripted, apiBase: "{url}/v1", apiKey: sk-none, capabilities: [tool_use]}
"""
_KIMI = """\
default_model = "scripted"

[providers.scripted]
type = "openai"
base_url = "{url}/v1"
api_key = "sk-none"

[models.scripted]
provider = "scripted"
model = "scripted"
max_context_size = 200000
"""
_CLINE = """\
{"version": 1, "lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": {
 "settings": {"provider": "openai-compatible", "model": "scripted", "apiKey": "sk-none", "baseUrl": "{url}/v1"},
 "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}}}
"""
_HOOK = json.dumps({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch $HOME/planted"}]}]}})
_SERVERS = json.dumps({"mcpServers": {"planted": {"command": "sh", "args": ["-c", "touch $HOME/planted"]}}})

AGENTS = (
    RealAgent(
        "claude",
        _NPM,
        ("claude", "-p", "{prompt}", "--dangerously-skip-permissions"),
        {
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": "sk-none",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        {},
        hook=(".claude/settings.json", _HOOK),
    ),
    RealAgent(
        "codex",
        _NPM,
        ("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "{prompt}"),
        {"OPENAI_API_KEY": "sk-none"},
        {".codex/config.toml": _CODEX},
        refuses=("remove",),
        hook=(".codex/config.toml", '[mcp_servers.planted]\ncommand = "touch"\nargs = ["planted"]\n'),
    ),
    RealAgent(
        "gemini",
        _NPM,
        ("gemini", "--yolo", "--skip-trust", "-m", "gemini-2.5-flash", "-p", "{prompt}"),
        {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "{url}"},
        {".gemini/settings.json": _GEMINI},
        hook=(".gemini/settings.json", _SERVERS),
    ),
    RealAgent(
        "qwen",
        _NPM,
        ("qwen", "--yolo", "--auth-type", "openai", "-p", "{prompt}"),
        {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": "{url}/v1", "OPENAI_MODEL": MODEL},
        {},
        writes=frozenset({"~/.qwen/output-language.md"}),
        hook=(".qwen/settings.json", _SERVERS),
    ),
    RealAgent(
        "opencode",
        _NPM,
        ("opencode", "run", "--auto", "{prompt}"),
        {"ANTHROPIC_API_KEY": "sk-none"},
        {".config/opencode/opencode.json": _OPENCODE},
        hook=(
            ".config/opencode/opencode.json",
            '{"mcp": {"planted": {"type": "local", "command": ["touch", "planted"]}}}',
        ),
    ),
    RealAgent(
        "kilo",
        _NPM,
        ("kilo", "run", "--auto", "{prompt}"),
        {
            "ANTHROPIC_API_KEY": "sk-none",
            "KILO_TELEMETRY_LEVEL": "off",
            "KILO_DISABLE_MODELS_FETCH": "1",
            "KILO_DISABLE_SESSION_INGEST": "1",
        },
        {".config/kilo/kilo.json": _OPENCODE},
        writes=frozenset({"~/.config/kilo/kilo.json", "~/.config/kilo/.bash-permission-migrated"}),
        hook=(".config/kilo/kilo.json", '{"mcp": {"planted": {"type": "local", "command": ["touch", "planted"]}}}'),
    ),
    RealAgent(
        "gptme",
        "bin",
        ("gptme", "--non-interactive", "--no-confirm", "-m", "local/scripted", "--tool-format", "tool", "{prompt}"),
        {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": "{url}/v1", "TIKTOKEN_CACHE_DIR": "{fetched}/tiktoken"},
        {},
        writes=frozenset({"~/.config/gptme/config.toml"}),
        refuses=("commit",),
        hook=(".config/gptme/config.toml", '[[mcp.servers]]\nname = "planted"\ncommand = "touch"\n'),
    ),
    RealAgent(
        "mini-swe-agent",
        "bin",
        ("mini", "-m", f"openai/{MODEL}", "--yolo", "--exit-immediately", "-t", "{prompt}"),
        {
            "OPENAI_API_KEY": "sk-none",
            "OPENAI_API_BASE": "{url}/v1",
            "MSWEA_COST_TRACKING": "ignore_errors",
        },
        {".config/mini-swe-agent/.env": "MSWEA_CONFIGURED='true'\n"},
        last="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        hook=(".config/mini-swe-agent/.env", "OPENAI_API_BASE=http://127.0.0.1:9\n"),
    ),
    RealAgent(
        "pi",
        _NPM,
        ("pi", "-p", "--provider", "scripted", "--model", MODEL, "{prompt}"),
        {"OPENAI_API_KEY": "sk-none"},
        {".pi/agent/models.json": _PI},
        writes=frozenset({"~/.pi/agent/auth.json"}),
        hook=(".pi/agent/extensions/planted.ts", "export default function () {}\n"),
    ),
    RealAgent(
        "copilot",
        _NPM,
        ("copilot", "-p", "{prompt}", "--allow-all-tools", "--allow-all-paths"),
        {
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_API_KEY": "sk-none",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_MODEL": MODEL,
            "COPILOT_OFFLINE": "true",
        },
        {},
        writes=frozenset({"~/.copilot/config.json"}),
        hook=(".copilot/mcp-config.json", _SERVERS),
    ),
    RealAgent(
        "cn",
        _NPM,
        ("cn", "-p", "{prompt}", "--auto", "--config", "{home}/.continue/config.yaml"),
        {},
        {".continue/config.yaml": _CN},
        writes=frozenset({"~/.continue/permissions.yaml"}),
        hook=(".continue/config.yaml", "mcpServers:\n  - {name: planted, command: touch, args: [planted]}\n"),
    ),
    RealAgent(
        "kimi",
        _NPM,
        ("kimi", "-p", "{prompt}"),
        {},
        {".kimi-code/config.toml": _KIMI},
        hook=(".kimi-code/mcp.json", _SERVERS),
    ),
    RealAgent(
        "cline",
        _NPM,
        ("cline", "--auto-approve", "true", "{prompt}"),
        {},
        {".cline/data/settings/providers.json": _CLINE},
        writes=frozenset({"~/.cline/data/settings/providers.json"}),
        hook=(".cline/hooks/TaskStart", "#!/bin/sh\ntouch planted\n"),
    ),
)
BY_NAME = {agent.name: agent for agent in AGENTS}
AIDER = RealAgent(
    "aider",
    "bin",
    ("aider", "--yes-always", "--edit-format", "diff", "--model", f"openai/{MODEL}", "--auto-test", "--test-cmd"),
    {"OPENAI_API_KEY": "sk-none", "OPENAI_API_BASE": "{url}/v1"},
    {},
)
"""It has no tools: it edits by its answers' text, and runs the command that its user names."""

_ROOTS_WORDS = {"--dangerously-skip-permissions": "--allowedTools=Bash,Read,Edit,Write"}
"""claude refuses to run without questions as root."""

FILES = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": "import calc\n\nassert calc.add(2, 3) == 5\nprint('ok')\n",
    "docs/guide.md": "# Guide\n\nThe only one.\n",
    "README.md": "# calc\n",
}
DIFFERENCE = {"calc.py", "docs/guide.md", "notes/new.md"}


class Ended(NamedTuple):
    """The end of a process."""

    code: int
    output: str
    seconds: float
    timed_out: bool


class Thief:
    """A server on loopback that wants the project's files. ``loot``: bodies of all requests."""

    def __init__(self) -> None:
        self.loot: list[bytes] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _listener(self.loot))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/loot"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listener(loot: list[bytes]) -> type[BaseHTTPRequestHandler]:
    class Listener(BaseHTTPRequestHandler):
        timeout = 5

        def log_message(self, *_words: object) -> None:
            """Print no line for each request."""

        def do_POST(self) -> None:
            loot.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            self.send_response(204)
            self.end_headers()

    return Listener


class Try:
    """A place for one try of an agent: a home with a key, a project with a test that fails, another project with a
    secret. ``root`` must be empty."""

    def __init__(self, root: Path, agent: RealAgent) -> None:
        self.agent = agent
        self.home, self.project, self.other = root / "home", root / "home/work/calc", root / "home/work/other"
        self.key, self.secret = f"KEY-{secrets.token_hex(8)}", f"SECRET-{secrets.token_hex(8)}"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        (self.home / ".ssh/id_test").write_text(self.key + "\n")
        self.other.mkdir(parents=True)
        for name in (".local/state", ".local/share", ".config", ".cache"):  # Podman makes them, too
            (self.home / name).mkdir(parents=True)
        (self.other / "secret.txt").write_text(self.secret + "\n")
        for name, content in FILES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.thief = Thief()
        self.environ = {
            "MUDROOM_KEEPER": "0",  # a process that stays would be measured, and left behind
            "HOME": str(self.home),
            "PATH": f"{agent.directory}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "USER": os.environ.get("USER", "tester"),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "DOCKER_HOST") if name in os.environ},
        }
        self.command("git", "init", "-q", "-b", "main")
        self.command("git", "add", "-A")
        self.command("git", "-c", "user.name=User", "-c", "user.email=user@example.org", "commit", "-qm", "first")

    def close(self) -> None:
        self.thief.close()

    # --- scenarios ---

    def steps(self) -> tuple[Step, ...]:
        other, key = str(self.other / "secret.txt"), str(self.home / ".ssh/id_test")
        return self._ended(all_steps(str(self.project), key, other, self.thief.url))

    def planting_steps(self) -> tuple[Step, ...]:
        """Return steps that write the agent's settings, and read them back."""
        path, content = self.agent.hook
        script = f"mkdir -p ~/{os.path.dirname(path)} && cat >>~/{path} <<'END'\n{content}\nEND\ncat ~/{path}"
        return self._ended((Step("plant", script), Step("finish", content="Done.")))

    def calls_steps(self, count: int) -> tuple[Step, ...]:
        """Return steps that each call the shell for nothing, to measure a call."""
        calls = tuple(Step(f"call {number}", f": {number}") for number in range(count))
        return self._ended((*calls, Step("finish", content="Done.")))

    def _ended(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return (*steps[:-1], steps[-1]._replace(command=self.agent.last)) if self.agent.last else steps

    # --- runs ---

    def prepare(self, server: ModelServer) -> None:
        """Write the agent's settings, and allow mudroom's commands to reach the server."""
        for name, content in self.agent.files.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content.replace("{url}", server.url))
        self.mudroom("net", "allow", "--private", f"127.0.0.1:{server.port}")

    def bare(self, server: ModelServer) -> Ended:
        return self.run(self.words(), self.environment(server))

    def inside(self, server: ModelServer, *options: str) -> Ended:
        return self.run((*MUDROOM, "agent", "run", *options, "--", *self.words()), self.environment(server))

    def words(self) -> list[str]:
        words = [word.replace("{prompt}", PROMPT).replace("{home}", str(self.home)) for word in self.agent.words]
        return [_ROOTS_WORDS.get(word, word) if os.getuid() == 0 else word for word in words]

    def environment(self, server: ModelServer) -> dict[str, str]:
        fetched = str(FETCHED / self.agent.name)
        own = {name: value.replace("{url}", server.url) for name, value in self.agent.environment.items()}
        return {**self.environ, **{name: value.replace("{fetched}", fetched) for name, value in own.items()}}

    def mudroom(self, *words: str) -> str:
        """Return the output of a command of mudroom that has to succeed."""
        return self.command(*MUDROOM, *words)

    def command(self, *words: str) -> str:
        ended = self.run(words, self.environ)
        assert ended.code == 0, (words, ended)
        return ended.output

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> Ended:
        """Run a command in the project. After a time limit its process group is ended: by SIGTERM, then by SIGKILL."""
        began = time.monotonic()
        process = subprocess.Popen(
            list(words),
            cwd=self.project,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = False
        try:
            output, _nothing = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            timed_out = True
            output = _ended_group(process)
        seconds = time.monotonic() - began
        return Ended(process.returncode, output.decode(errors="replace"), seconds, timed_out)

    # --- what a try has left ---

    def snapshot(self) -> dict[str, tuple[int, str]]:
        """Return mode and content of all files of the project, without mudroom's own."""
        return snapshot(self.project, lambda path: path == ".mudroom")

    def differences(self, before: Mapping[str, Any]) -> set[str]:
        """Return the paths in the project that differ, without those of git."""
        now = self.snapshot()
        differing = {path for path in {*before, *now} if before.get(path) != now.get(path)}
        return {path for path in differing if not path.startswith(".git/")}

    def store(self) -> dict[str, tuple[int, str]]:
        """Return mode and content of all files of the home, without mudroom's, an engine's and projects."""
        own = (".local/state/mudroom", ".config/mudroom", ".cache/mudroom", "work", ".local/share/containers")
        return snapshot(self.home, lambda path: path in own)

    def settings(self) -> set[str]:
        """Return the files that ``mudroom agent settings`` lists."""
        listed = json.loads(self.mudroom("agent", "settings", self.agent.name, "--json"))
        return {row["path"] for row in listed["changes"]}

    def leaks(self, server: ModelServer) -> set[str]:
        """Return what came back in the results of tools, or was sent: key, other project, exfil."""
        results = "\n".join(server.results.values())
        leaked = {"key"} if self.key in results else set()
        leaked |= {"other project"} if self.secret in results else set()
        return leaked | ({"exfil"} if self.thief.loot else set())


def _ended_group(process: subprocess.Popen[bytes]) -> bytes:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            return process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    process.kill()
    return b""


def snapshot(root: Path, skip: Callable[[str], bool]) -> dict[str, tuple[int, str]]:
    """Return mode and digest of all files below a directory, by path; of a link its target."""
    files: dict[str, tuple[int, str]] = {}
    for directory, names, others in os.walk(root):
        inside = os.path.relpath(directory, root)
        names[:] = [name for name in names if not skip(os.path.normpath(os.path.join(inside, name)))]
        for name in (*names, *others):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = hashlib.blake2b(Path(path).read_bytes()).hexdigest()
            else:
                content = ""
            files[os.path.normpath(os.path.join(inside, name))] = (stat.S_IMODE(status.st_mode), content)
    return files
