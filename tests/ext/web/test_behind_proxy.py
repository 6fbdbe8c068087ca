"""The page where it is not asked for directly: behind nginx as docs/PAGE.md sets it up, and through a port of ssh."""

from __future__ import annotations

import getpass
import http.client
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from browser import HOME, MUDROOM, PATIENCE, Site, browsing, environment, mudroom, serving, staged, watch

from clients import free_port, running, sshd
from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAME = "box.example"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
PAGE = Path(__file__).parents[3] / "docs/PAGE.md"
WHOLE = """
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log stderr notice;
events {{}}
http {{
    access_log {directory}/access.log;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    gzip on;
    {server}
}}
"""
LINES = "".join(f"line {number}\n" for number in range(1, 41))
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class Proxy(NamedTuple):
    site: Site
    tls: int
    plain: int
    directory: Path

    @property
    def host(self) -> str:
        return f"{NAME}:{self.tls}"

    @property
    def login(self) -> str:
        """The address that is printed for it, as far as it is the server's."""
        return f"/mudroom/login?{self.site.told['login'].partition('?')[2]}"

    @contextmanager
    def asked(
        self, path: str, headers: Mapping[str, str] = {}, *, tls: bool = True
    ) -> Iterator[http.client.HTTPResponse]:
        line: http.client.HTTPConnection
        if tls:
            trust = ssl.create_default_context(cafile=str(self.directory / "box.pem"))
            trust.check_hostname = False  # it is dialled by its address
            line = http.client.HTTPSConnection("127.0.0.1", self.tls, timeout=60, context=trust)
        else:
            line = http.client.HTTPConnection("127.0.0.1", self.plain, timeout=60)
        own = {"Host": self.host if tls else f"{NAME}:{self.plain}"}
        try:
            line.request("GET", path, None, {**own, **headers})
            yield line.getresponse()
        finally:
            line.close()


def documented(directory: Path, site: Site, tls: int, plain: int) -> str:
    """The server of docs/PAGE.md, at ports that are free, and without TLS, too."""
    server = PAGE.read_text().partition("```nginx\n")[2].partition("```")[0]
    changes = {
        "listen 443 ssl;": f"listen 127.0.0.1:{tls} ssl; listen 127.0.0.1:{plain};",
        "/etc/nginx/box.example": f"{directory}/box",
        "127.0.0.1:8765": f"127.0.0.1:{site.port}",
    }
    for old, new in changes.items():
        assert old in server
        server = server.replace(old, new)
    return server


@pytest.fixture
def proxy(place: Place, tmp_path: Path) -> Iterator[Proxy]:
    assert NGINX is not None
    tls, plain = free_port(), free_port()
    directory = tmp_path / "nginx"
    directory.mkdir()
    directory.chmod(0o777)  # started by root, it works as somebody else
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    words += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = ["-keyout", str(directory / "box.key"), "-out", str(directory / "box.pem")]
    subprocess.run(["openssl", *words, *files], check=True, capture_output=True)
    names = ("--host-name", f"{NAME}:{tls}", "--host-name", f"{NAME}:{plain}")
    with serving(place, "--url-prefix", "/mudroom", *names) as site:
        config = directory / "nginx.conf"
        config.write_text(WHOLE.format(directory=directory, server=documented(directory, site, tls, plain)))
        with running([NGINX, "-p", str(directory), "-c", str(config)], "start worker process "):
            yield Proxy(site, tls, plain, directory)


@needs_nginx
def test_the_cookie_is_for_the_prefix_and_for_tls_where_there_is_tls(place: Place, proxy: Proxy) -> None:
    mudroom(place, "vault", "init")
    with proxy.asked(proxy.login) as entered:
        assert entered.status == 303
        cookie = str(entered.headers["set-cookie"])
        key = entered.headers["location"].removeprefix("./#k=")
    assert {"Path=/mudroom/", "Secure", "HttpOnly", "SameSite=strict"} == set(cookie.split("; ")[1:])
    known = {"Cookie": cookie.partition(";")[0], "X-Mudroom-Csrf": key}
    with proxy.asked("/mudroom/api/v1/me", known) as me:
        assert me.status == 200
    with proxy.asked("/mudroom/api/v1/me", {**known, "Origin": f"https://{proxy.host}"}) as me:
        assert me.status == 200
    with proxy.asked("/mudroom/api/v1/me", {**known, "Origin": "https://evil.example"}) as other:
        assert other.status == 403
    for host in ("evil.example", NAME, f"{NAME}:1", "127.0.0.1"):
        with proxy.asked("/mudroom/api/v1/me", {**known, "Host": host}) as wrong:
            assert wrong.status == 421
    code = mudroom(place, "serve", "--link").splitlines()[0].partition("?")[2]
    with proxy.asked("/mudroom/login?" + code, tls=False) as entered:
        assert entered.status == 303
        assert "Secure" not in entered.headers["set-cookie"]
    assert (proxy.directory / "access.log").read_text() == ""  # it would hold codes and keys


@needs_nginx
def test_events_come_when_they_happen(place: Place, proxy: Proxy) -> None:
    """Read from a stream that does not end: whoever held them back would hold them for ever."""
    headers = {"Authorization": f"Bearer {proxy.site.told['token']}"}
    mudroom(place, "vault", "init")
    with proxy.asked("/mudroom/api/v1/events", headers) as stream:
        assert stream.status == 200
        assert until(stream, "event: hello")
        staged(place, "echo 1 > a.txt")
        assert until(stream, "event: changed")


def until(stream: http.client.HTTPResponse, wanted: str) -> bool:
    return any(line.decode().strip() == wanted for line in iter(stream.readline, b""))


@pytest.fixture(scope="module")
def named() -> Iterator[Browser]:
    """A browser that takes the name for this machine, and any certificate for good."""
    with browsing(f"--host-resolver-rules=MAP {NAME} 127.0.0.1") as browser:
        yield browser


@pytest.mark.deep
@needs_nginx
@pytest.mark.slow
@pytest.mark.parametrize("tls", [True, False], ids=["https", "http"])
def test_a_review_through_it(place: Place, proxy: Proxy, named: Browser, tls: bool) -> None:
    """Without TLS the page is no secure context (W3C, Secure Contexts): less of what browsers have is there."""
    place.write("text.txt", LINES)
    staged(place, "sed -i -e 's/^line 3$/LINE 3/' -e 's/^line 30$/LINE 30/' text.txt; echo new > new.txt")
    url = f"https://{proxy.host}/mudroom/" if tls else f"http://{NAME}:{proxy.plain}/mudroom/"
    wrong: list[str] = []
    with named.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800}) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        watch(page, url, wrong)
        page.goto(url + proxy.login.removeprefix("/mudroom/"))
        page.wait_for_selector(HOME)
        assert page.evaluate("isSecureContext") == tls
        (cookie,) = context.cookies()
        assert (cookie.get("path"), cookie.get("secure")) == ("/mudroom/", tls)
        page.goto(f"{url}#/p/{proxy.site.project}/f/try-1/review")
        page.get_by_role("treeitem").filter(has_text="text.txt").click()
        staged(place, "echo more > more.txt")  # while it is looked at
        page.get_by_text("This fork has changed since you looked: 1 more file").wait_for()
        page.get_by_role("button", name="Reload").click()
        page.locator("section.hunk").nth(1).get_by_role("checkbox").first.uncheck()
        page.get_by_role("button", name="Apply 3, 1 of them in part").click()
        page.get_by_text(re.compile("^Applied:")).first.wait_for()
        assert (place.project / "text.txt").read_text() == LINES.replace("line 3\n", "LINE 3\n")
        page.get_by_role("button", name="Undo").click()
        page.get_by_text("taken back").first.wait_for()
        assert (place.project / "text.txt").read_text() == LINES
        page.reload()  # who is logged in stays so
        page.get_by_role("tree", name="Changed files").wait_for()
    assert wrong == []


@contextmanager
def forwarded(directory: Path, local: int, port: int) -> Iterator[None]:
    """``port``, from ``local``: by ssh -L."""
    if shutil.which("sshd", path="/usr/sbin:/usr/bin") is None or shutil.which("ssh") is None:
        pytest.skip("sshd or ssh is not installed")
    directory.mkdir()
    door = free_port()
    options = ["StrictHostKeyChecking=no", f"UserKnownHostsFile={directory}/known", "ExitOnForwardFailure=yes"]
    words = ["-v", "-N", "-F", "none", "-i", str(directory / "robot"), "-p", str(door)]
    words += [word for one in options for word in ("-o", one)]
    words += ["-L", f"127.0.0.1:{local}:localhost:{port}", f"{getpass.getuser()}@127.0.0.1"]
    with (
        running(sshd(directory, door), "Server listening"),
        running(["ssh", *words], "Entering interactive session"),
    ):
        yield


class Came(NamedTuple):
    status: int
    text: str
    headers: Message


def through(port: int, path: str, host: str, **more: str) -> Came:
    """As a browser that has the page at ``host`` asks."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        line.request("GET", path, None, {"Host": host, "Origin": f"http://{host}", **more})
        answer = line.getresponse()
        return Came(answer.status, answer.read().decode(), answer.headers)
    finally:
        line.close()


def test_who_is_here_by_ssh_is_told_how_to_see_it(place: Place) -> None:
    told = {}
    for names in ((), ("--host-name", NAME)):
        with serving(place, *names) as site:
            words = [*MUDROOM, "serve", "--link"]
            env = environment(place) | {"SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"}
            done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
            told[names] = f"ssh -L {site.port}:localhost:{site.port} " in done.stdout
            assert "ssh" not in mudroom(place, "serve", "--link")
    assert list(told.values()) == [True, False]


def test_through_a_port_of_ssh(place: Place, tmp_path: Path) -> None:
    """With the same port on both sides as it is printed; with another one when that is named."""
    local, port = free_port(), free_port()
    with forwarded(tmp_path / "ssh", local, port):
        with serving(place, "--port", str(port)) as site:
            path = site.told["login"].removeprefix(f"http://127.0.0.1:{port}")
            refused = through(local, path, f"localhost:{local}")
            assert refused.status == 421
            assert f"--host-name localhost:{local}" in refused.text
            assert f"the same port on both sides, {port}" in refused.text
            assert through(local, path, f"127.0.0.1:{port}").status == 303
        with serving(place, "--port", str(port), "--host-name", f"localhost:{local}"):
            ours, theirs = mudroom(place, "serve", "--link").splitlines()[:2]
            assert theirs == ours.replace(f"127.0.0.1:{port}", f"localhost:{local}")
            came = through(local, theirs.removeprefix(f"http://localhost:{local}"), f"localhost:{local}")
            assert came.status == 303
            key = came.headers["location"].removeprefix("./#k=")
            known = {"Cookie": came.headers["set-cookie"].partition(";")[0], "X-Mudroom-Csrf": key}
            for host in (f"localhost:{local}", f"127.0.0.1:{local}"):
                assert through(local, "/api/v1/me", host, **known).status == 200
