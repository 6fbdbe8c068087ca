"""The real clients of npm's and Python's registries publish to real servers, through the gate, and are held."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from yard import Yard
from yard import yard as yard

from mudroom.core.network.host_rules import HostRule, held
from mudroom.session import Session

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.both_users,
    pytest.mark.limit(600),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]
_WAIT = 120.0
_NPM = "--no-audit --no-fund --no-update-notifier --ignore-scripts"


def installed(command: str, at: Path) -> None:
    done = subprocess.run(["sh", "-ec", command], cwd=at, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@contextmanager
def served(arguments: list[str], port: int, at: Path, **environ: str) -> Iterator[None]:
    environment = os.environ | environ
    with (
        (at / "log").open("wb") as log,
        subprocess.Popen(arguments, cwd=at, stdout=log, stderr=log, env=environment) as server,
    ):
        try:
            limit = time.monotonic() + _WAIT
            while True:
                try:
                    urlopen(f"http://127.0.0.1:{port}/", timeout=_WAIT).close()
                    break
                except OSError:
                    assert server.poll() is None and time.monotonic() < limit, (at / "log").read_text()
            yield
        finally:
            server.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def here(url: str) -> bytes:
    """What a server tells on this machine, without the gate; empty: it has no such page."""
    try:
        with urlopen(url, timeout=_WAIT) as answer:
            return bytes(answer.read())
    except HTTPError:
        return b""


def opened(yard: Yard, port: int) -> Session:
    rule = HostRule("allow", "registry.example", (port,), private=True, source="the test")
    return yard.session(held(rule))


def test_npm_pnpm_and_yarn_publish_to_verdaccio(yard: Yard) -> None:
    tools, port = yard.root / "verdaccio", free_port()
    tools.mkdir()
    installed(f"npm install {_NPM} verdaccio@5 node-fetch@2.7.0", tools)
    (tools / "config.yaml").write_text(
        "storage: ./storage\nauth: {htpasswd: {file: ./htpasswd}}\nuplinks: {}\n"
        "packages: {'**': {access: $all, publish: $all, unpublish: $all}}\n"
    )
    inside = yard.project / "tools"
    inside.mkdir()
    installed(f"npm install {_NPM} pnpm@9 yarn@1", inside)
    name = f"registry.example:{port}"
    (yard.project / ".npmrc").write_text(f"registry=http://{name}/\n//{name}/:_authToken=none\n")
    (yard.project / "index.js").write_text("module.exports = 1\n")
    clients = {
        "npm": "npm publish", "@team/pnpm": "tools/node_modules/.bin/pnpm publish --no-git-checks",
        "yarn": "tools/node_modules/.bin/yarn publish --non-interactive",
    }  # fmt: skip
    program = ["node", str(tools / "node_modules/.bin/verdaccio"), "-c", "config.yaml", "-l", f"127.0.0.1:{port}"]
    with served(program, port, tools), opened(yard, port) as session:
        for number, (package, command) in enumerate(clients.items(), 1):
            manifest = {"name": package, "version": "1.0.0", "files": ["index.js"], "license": "MIT"}
            done = yard.run(session, f"echo '{json.dumps(manifest)}' > package.json; {command}")
            assert done.exit_code == 0, (package, done.stdout, done.stderr)
            assert [row.refs[0].ref for row in session.changes.pushes("f")][number - 1 :] == [f"{package} 1.0.0"]
            if package == "npm":
                assert b"held: npm 1.0.0 will be published when the fork is applied" in done.stderr, done.stderr
        names = " ".join(clients)
        read = yard.run(
            session, f"mkdir t; cd t; cp ../.npmrc .; echo '{{}}' > package.json; npm install {_NPM} {names}; "
            f"node -p 'require(\"npm\") + require(\"yarn\") + require(\"@team/pnpm\")'; npm view npm version"
        )  # fmt: skip
        assert read.exit_code == 0, read.stderr
        assert read.stdout.splitlines()[-2:] == [b"3", b"1.0.0"], read.stdout
        refused = yard.run(session, "npm dist-tag add npm@1.0.0 next 2>&1 || npm deprecate npm@1.0.0 no 2>&1 || true")
        assert b"this cannot be held" in refused.stdout, refused.stdout
        assert not any(here(f"http://127.0.0.1:{port}/{package}") for package in clients)
        named = [row.name for row in session.changes.pushes("f")]
        landed = session.changes.apply("f", pushes=named, exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")] * 3
        for package in clients:
            assert list(json.loads(here(f"http://127.0.0.1:{port}/{package}"))["versions"]) == ["1.0.0"]
        again = yard.run(session, "cat package.json; npm pack --dry-run; npm view yarn version")
        assert again.stdout.splitlines()[-1] == b"1.0.0", again


PYTHON = "PYTHONPATH=tools " + sys.executable
UPLOADS = {
    "twine": PYTHON + " -m twine upload -u a -p b --repository-url {url}/ dist/*",
    "uv": "tools/bin/uv publish --username a --password b --publish-url {url}/ dist/*",
    "flit": "FLIT_USERNAME=a FLIT_PASSWORD=b FLIT_INDEX_URL={url}/ " + PYTHON + " -m flit publish --no-use-vcs",
    "poetry": "export POETRY_REPOSITORIES_X_URL={url}/; " + PYTHON + " -m poetry publish -n -r x -u a -p b",
}


@pytest.mark.parametrize("client", UPLOADS)
def test_python_clients_publish_to_pypiserver(yard: Yard, client: str) -> None:
    tools, port = yard.project / "tools", free_port()
    installed(f"{sys.executable} -m pip install -q --target tools pypiserver flit {client}", yard.project)
    (yard.project / "tiny.py").write_text('"""A module."""\n\n__version__ = "1.0"\n')
    (yard.project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'
        '[project]\nname = "tiny"\nversion = "1.0"\ndescription = "A module"\n'
        'authors = [{name = "A", email = "a@b.c"}]\n'
    )
    installed(PYTHON + " -m flit build --no-use-vcs", yard.project)
    store, url = yard.root / "store", f"http://registry.example:{port}"
    store.mkdir()
    program = [sys.executable, "-m", "pypiserver", "run", "-p", str(port), "-i", "127.0.0.1", "-P", ".", "-a", ".",
               "--disable-fallback", str(store)]  # fmt: skip
    with served(program, port, yard.root, PYTHONPATH=str(tools)), opened(yard, port) as session:
        done = yard.run(session, UPLOADS[client].format(url=url))
        assert done.exit_code == 0, (done.stdout, done.stderr)
        rows = session.changes.pushes("f")
        built = sorted(path.name for path in (yard.project / "dist").iterdir())
        assert sorted(row.refs[0].ref for row in rows) == [f"tiny 1.0 ({name})" for name in built]
        index = f"--no-cache-dir --no-deps --index-url {url}/simple/ --trusted-host registry.example"
        read = yard.run(
            session,
            f"{PYTHON} -m pip install -q {index} --target t tiny; cat t/tiny.py",
        )
        assert read.stdout == (yard.project / "tiny.py").read_bytes(), read.stderr
        assert list(store.iterdir()) == []
        landed = session.changes.apply("f", pushes=[row.name for row in rows], exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")] * 2
        assert sorted(path.name for path in store.rglob("tiny*") if path.is_file()) == built


def ask(url: str, method: str, message: dict[str, object], token: str = "") -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    login = {"X-Devpi-Auth": b64encode(f"root:{token}".encode()).decode()} if token else {}
    request = Request(url, json.dumps(message).encode(), headers | login, method=method)
    with urlopen(request, timeout=_WAIT) as answer:
        told: dict[str, Any] = json.load(answer)
        return told


def test_twine_publishes_to_devpi(yard: Yard) -> None:
    """Its pages are at ``+simple``, which no upload names: it is not asked whether the version is there, and the index
    itself refuses it."""
    tools, port = yard.root / "devpi", free_port()
    installed(f"{sys.executable} -m venv devpi; devpi/bin/pip install -q devpi-server", yard.root)
    installed(f"{sys.executable} -m pip install -q --target tools flit twine", yard.project)
    (yard.project / "tiny.py").write_text('"""A module."""\n\n__version__ = "1.0"\n')
    (yard.project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["flit_core"]\nbuild-backend = "flit_core.buildapi"\n'
        '[project]\nname = "tiny"\ndescription = "A module"\ndynamic = ["version"]\n'
    )
    installed(PYTHON + " -m flit build --no-use-vcs", yard.project)
    state = ["--serverdir", str(tools / "state")]
    installed(f"bin/devpi-init --no-root-pypi {' '.join(state)}", tools)
    program = [str(tools / "bin/devpi-server"), *state, "--port", str(port)]
    with served(program, port, tools), opened(yard, port) as session:
        outside = f"http://127.0.0.1:{port}"
        token = ask(f"{outside}/+login", "POST", {"user": "root", "password": ""})["result"]["password"]
        ask(f"{outside}/root/dev", "PUT", {"acl_upload": [":ANONYMOUS:"], "bases": [], "volatile": False}, token)
        url = f"http://registry.example:{port}/root/dev"
        done = yard.run(session, UPLOADS["twine"].format(url=url))
        assert done.exit_code == 0, (done.stdout, done.stderr)
        names = [row.name for row in session.changes.pushes("f")]
        assert b"tiny" not in here(f"{outside}/root/dev/+simple/tiny/")
        landed = session.changes.apply("f", pushes=names, exact=True)
        assert [(row.state, row.why) for row in landed.applied.pushes] == [("sent", "")] * 2
        assert here(f"{outside}/root/dev/+simple/tiny/").count(b"<a href") == 2
        (yard.project / "tiny.py").write_text('"""Another one."""\n\n__version__ = "1.0"\n')
        installed(PYTHON + " -m flit build --no-use-vcs", yard.project)
        yard.run(session, UPLOADS["twine"].format(url=url))
        names = [row.name for row in session.changes.pushes("f")]
        again = session.changes.apply("f", pushes=names, exact=True).applied.pushes
        assert {row.state for row in again} == {"refused"}, again
