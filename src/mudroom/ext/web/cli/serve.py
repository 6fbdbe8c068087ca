"""``mudroom serve``: the page, its API, and agents' cards for other agents, on loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

from mudroom.cli.terminal.context import Context
from mudroom.core.known_agents import agent_cards
from mudroom.core.system.search_path import absolute_entries
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.web.cli.page_server import environment_of
from mudroom.ext.web.server.guard import is_forwarded
from mudroom.ext.web.server.login import CookieKey, Login, write_own
from mudroom.ext.web.server.registry import RunningServer, ServerRegistry, ending, new_code
from mudroom.ext.web.state.server_state import ServerState
from mudroom.policy.config import places
from mudroom.stage import disk
from mudroom.stage.private_directory import require_private
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


EXAMPLES = """\
examples:
  mudroom serve                                   the page; prints an address that opens it, once
  mudroom serve --open                            the same, in the browser
  mudroom serve --link                            another address, of the server that runs
  mudroom serve --forget                          every browser is logged out, and none is notified
  mudroom serve --url-prefix /x --host-name box.example   behind a proxy, at https://box.example/x/
  mudroom serve --host-name localhost:8080        for ssh -L 8080:localhost:8765; the same port needs no name
  mudroom serve --port 0 --json                   any free port; one JSON object with the address and the token
  mudroom serve --card a.json --card b.json       agents' A2A cards, each at /agents/ID/.well-known/agent-card.json

Only on this machine's loopback, one server for each state directory. Cards and the files of the page are public there;
everything else wants a login or the token. Ends with Ctrl-C, SIGTERM or SIGHUP."""

PORT = 8765
NEEDED = ("starlette", "uvicorn")
INSTALL = "pip install starlette uvicorn"  # mudroom's own installation has them


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--card", action="append", default=[], metavar="FILE", help="an agent's card; several times")
    parser.add_argument("--root", action="append", default=[], metavar="DIR", help="where projects may be chosen")
    parser.add_argument("--port", type=int, metavar="N", help=f"default: {PORT}; 0: any free one")
    parser.add_argument("--url-prefix", default="", metavar="/PATH", help="the path prefix of a reverse proxy")
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="the host name of a reverse proxy, or a forwarded port; several times",
    )
    parser.add_argument("--open", action="store_true", help="open the browser")
    parser.add_argument("--link", action="store_true", help="only print another address of the server that runs")
    parser.add_argument("--forget", action="store_true", help="only log every browser out, and notify none")
    parser.add_argument("--token", action="store_true", help="print the token for programs, too (--json does)")


def execute(args: argparse.Namespace, context: Context) -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"mudroom serve needs {' and '.join(missing)}", INSTALL)

    state = places(context.environ).state
    directory = disk.real_path(state) + b"/serve"
    registry, key = ServerRegistry(directory), CookieKey(directory)
    if args.forget:
        require_private(state)
        from mudroom.ext.web.push.device import DeviceStore

        key.renew()
        DeviceStore(directory).forget()
        done = json.dumps({"schema": SCHEMA, "forgotten": True})
        context.terminal.out(done if context.as_json else "every browser is logged out, and none is notified")
        return 0
    if args.link:
        return _link(args, context, registry)
    _check(args)
    agents = _agents(args.card, context)
    require_private(state)
    if registry.acquire():
        return _serve(args, context, registry, key, agents)
    return _link(args, context, registry)


SCHEMA = "mudroom.serve/1"
_SEGMENT = regex(r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._~-]+\Z")
_NAME = regex(r"(?=[^:]*[A-Za-z])[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?\Z")


def _check(args: argparse.Namespace) -> None:
    if args.port is not None and not 0 <= args.port < 1 << 16:
        raise UsageError(f"{args.port} is not a port", "0 to 65535")
    for root in args.root:
        if not os.path.isdir(root):
            raise UsageError(f"--root {show(os.fsencode(root))} is no directory", "one below which projects lie")
    args.url_prefix = args.url_prefix.rstrip("/")
    if args.url_prefix and not all(map(_SEGMENT.match, args.url_prefix.removeprefix("/").split("/"))):
        raise UsageError(f"{args.url_prefix!r} is not a prefix", "as in --url-prefix /mudroom")
    args.url_prefix = "/" + args.url_prefix.removeprefix("/") if args.url_prefix else ""
    for name in args.host_name:
        if not _NAME.match(name):
            raise UsageError(f"{name!r} is not the name of a host", "as in --host-name box.example, without http://")
        port = name.partition(":")[2]
        if port and not (port[0] != "0" and int(port) < 1 << 16):
            raise UsageError(f"{name!r} names no port", "1 to 65535, as in --host-name localhost:8080")


def _agents(paths: list[str], context: Context) -> dict[str, tuple[Any, Any]]:
    if not paths:
        return {}

    read = agent_cards("--card")
    from mudroom.ext.agents.cli.a2a_card import card_of

    cards = [read.load_card(os.fsencode(path)) for path in paths]
    agents = {card.agent: (card_of(card, context), card_of(card, context, old=True)) for card in cards}
    if len(agents) < len(cards):
        raise UsageError("two cards are of the same agent", "each agentId once")
    return agents


def _serve(
    args: argparse.Namespace,
    context: Context,
    registry: ServerRegistry,
    key: CookieKey,
    agents: dict[str, tuple[Any, Any]],
) -> int:
    """Serve until a signal ends the server. The caller has acquired the registry."""
    import secrets

    from mudroom.ext.web.push.device import DeviceStore
    from mudroom.ext.web.server.app import build
    from mudroom.ext.web.server.server import listen, serve

    try:
        key.prepare()
        DeviceStore(key.directory).prepare()
        roots = [disk.real_path(os.fsencode(root)) for root in args.root]
        listening = listen(PORT if args.port is None else args.port)
        port: int = listening[0].getsockname()[1]
        running = RunningServer(os.getpid(), port, secrets.token_urlsafe(32), args.url_prefix, args.host_name)
        login = Login(port, running.token, key.key, running.prefix)
        server = ServerState(environment_of(context, roots))
        app = build(server, agents, base_of(running), port, login, running.names, running.prefix)

        def ready() -> None:
            registry.publish(running)
            _print_addresses(args, context, running, login.new_code(), list(agents))

        try:
            serve(app, listening, ready, server.hub.end, lambda: server.push.run(server.hub))
        finally:
            if app.forks is not None:
                app.forks.close()
        server.cancellation.cancel()
        busy = server.jobs.busy()
        if busy:  # a killed apply would be recovered; waiting avoids that
            context.terminal.note(f"{busy[0].what} is at work: it ends first (Ctrl-C leaves it to mudroom recover)")
            server.jobs.rest(_JOB_SECONDS)
    finally:
        registry.release()
    return 0


def _link(args: argparse.Namespace, context: Context, registry: ServerRegistry) -> int:
    """Print another login address for the running server."""
    import time

    until = time.monotonic() + (0 if args.link else _START_SECONDS)
    while (running := registry.find_running()) is None and time.monotonic() < until:
        time.sleep(0.05)  # it holds the registry, but has not published its address yet
    if running is None and args.link:
        raise UsageError("no mudroom serve runs here", "mudroom serve starts one")
    if running is None:
        hint = "pgrep -af 'mudroom serve' shows its process, which kill ends"
        if sys.platform == "win32":
            hint = "tasklist lists the processes of Python, taskkill /f /pid PID ends one"
        raise UsageError("another mudroom serve runs, and does not answer", hint)
    changed = [args.card, args.root, args.host_name, args.url_prefix, args.port not in (None, 0, running.port)]
    if not args.link and any(changed):
        raise UsageError(
            f"mudroom serve runs already (process {running.pid}, port {running.port})",
            f"{ending(running.pid)} ends it; mudroom serve --link prints an address of it",
        )
    _print_addresses(args, context, running, new_code(running), [], "runs already")
    return 0


_JOB_SECONDS = 300.0
"""Seconds for a running apply and its verify command to finish when the server ends."""
_START_SECONDS = 5.0
"""Seconds for a starting server to publish its address."""


def base_of(running: RunningServer) -> str:
    return f"http://127.0.0.1:{running.port}{running.prefix}"


def addresses_of(running: RunningServer) -> list[str]:
    """Return our own address, then an address for each name: https, unless the name leads here without a proxy."""
    plain = [name for name in running.names if name.partition(":")[0].endswith(".localhost") or is_forwarded(name)]
    addresses = [f"http://{name if ':' in name else f'{name}:{running.port}'}{running.prefix}" for name in plain]
    return [
        base_of(running),
        *addresses,
        *(f"https://{name}{running.prefix}" for name in running.names if name not in plain),
    ]


def _print_addresses(
    args: argparse.Namespace, context: Context, running: RunningServer, code: str, agents: list[str], state: str = ""
) -> None:
    base, out = base_of(running), context.terminal.out
    rows = []
    if agents:
        from mudroom.ext.agents.core.a2a import paths_of

        rows = [{"agent": agent, "url": base + path} for agent, path in paths_of(agents).items()]
    login = f"/login?code={code}"
    if context.as_json:
        report = {"schema": SCHEMA, "url": base + "/", "login": base + login, "token": running.token, "agents": rows}
        out(json.dumps(report))
    else:
        for address in addresses_of(running):
            out(address + login)
        ends = f"process {running.pid} {state}" if state else "Ctrl-C ends it"
        out(f"  opens the page for all your projects, once and within ten minutes, on this machine; {ends}")
        if context.environ.get(b"SSH_CONNECTION") and not running.names:
            port = running.port
            out(f"  over ssh: with ssh -L {port}:localhost:{port} from where you sit, it opens there, too")
        for row in rows:
            out(f"  {row['agent']}  {row['url']}/.well-known/agent-card.json")
        if args.token:
            out(f"  token: {running.token}")
    if args.open:
        _open(context, base + login)


def _open(context: Context, address: str) -> None:
    """Open the browser through a file that only this user can read: all users can see a process's arguments
    (``ps``)."""
    import webbrowser
    from html import escape
    from urllib.parse import quote

    path = disk.real_path(places(context.environ).state) + b"/serve/open.html"
    to = escape(address, quote=True)
    write_own(
        path, f'<!doctype html><meta http-equiv="refresh" content="0; url={to}"><title>mudroom</title>\n'.encode()
    )
    search = os.environ.get("PATH")
    # webbrowser searches it for known browsers
    os.environ["PATH"] = absolute_entries(os.defpath if search is None else search)
    try:
        opened = webbrowser.open("file://" + ("/" + quote(path, "/:") if sys.platform == "win32" else quote(path)))
    finally:
        if search is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = search
    if not opened:
        context.terminal.note("no browser could be opened")
