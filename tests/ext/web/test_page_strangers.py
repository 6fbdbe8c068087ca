"""Other sites in the same browser as the page, with the cookie there: what a real browser sends for them, and gets."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from browser import HOME, Site, mudroom

from conftest import Place
from tiers import daily

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TRY = """
async ([url, options]) => {
  try {
    const answer = await fetch(url, options);
    return answer.type + " " + answer.status + " " + await answer.text();
  } catch (error) {
    return "refused";
  }
}
"""


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A site of somebody else."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title><p>elsewhere</p>")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[int]:
    """Its port, on this machine: for a browser the names of loopback are as far from each other as any two."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def visited(chromium: Browser, site: Site) -> Iterator[Page]:
    """A browser that is logged in, and goes elsewhere."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(site.told["login"])
    page.wait_for_selector(HOME)
    yield page
    context.close()


@pytest.mark.parametrize("host", daily(["localhost", "127.0.0.1"]))
def test_another_site_reads_nothing_and_does_nothing(
    place: Place, site: Site, visited: Page, elsewhere: int, host: str
) -> None:
    """127.0.0.1 with another port is even the same site, and its requests have the cookie."""
    place.write(".git/HEAD", "")
    mudroom(place, "vault", "init")
    project = site.project
    api = f"{site.url}api/v1"
    visited.goto(f"http://{host}:{elsewhere}/")
    body = {"method": "POST", "credentials": "include", "body": '{"name": "made"}'}
    for url, options in (
        (f"{api}/me", {"credentials": "include"}),
        (f"{api}/me?k=x", {"credentials": "include"}),
        (f"{api}/projects/{project}/forks", body),
        (f"{api}/projects/{project}/forks", body | {"headers": {"Content-Type": "application/json"}}),
        (f"{api}/projects/{project}/forks", body | {"headers": {"x-mudroom-csrf": "x"}}),
        (f"{site.url}app.js", {}),
    ):
        assert visited.evaluate(TRY, [url, options]) == "refused"
        if "headers" not in options:
            found = visited.evaluate(TRY, [url, options | {"mode": "no-cors"}])
            assert found in ("refused", "opaque 0 ")
    visited.evaluate(
        """([url]) => {
          const form = document.createElement("form");
          Object.assign(form, {method: "POST", enctype: "text/plain", action: url});
          const field = document.createElement("input");
          Object.assign(field, {name: '{"name": "made", "parent": "', value: '"}'});
          form.append(field);
          document.body.append(form);
          form.submit();
        }""",
        [f"{api}/projects/{project}/forks"],
    )
    visited.wait_for_url("**/forks")
    assert "the request comes from another site" in visited.content()
    assert site.get(f"/projects/{project}")["forks"] == []


def test_another_site_cannot_show_the_page_in_its_own(site: Site, visited: Page, elsewhere: int) -> None:
    visited.goto(f"http://localhost:{elsewhere}/")
    with visited.expect_response(site.url) as answered:
        visited.evaluate(
            "url => { const made = document.createElement('iframe'); made.src = url; document.body.append(made); }",
            site.url,
        )
    assert answered.value.status == 403


@pytest.mark.deep
def test_a_link_of_another_site_leads_in(place: Place, site: Site, visited: Page, elsewhere: int) -> None:
    """As from a terminal in a browser; and to the page, for who is logged in."""
    follow = "url => document.body.appendChild(Object.assign(document.createElement('a'), {href: url})).click()"
    visited.goto(f"http://localhost:{elsewhere}/")
    visited.evaluate(follow, site.url)
    visited.wait_for_url(site.url)
    visited.wait_for_selector(HOME)
    visited.context.clear_cookies()
    visited.goto(f"http://localhost:{elsewhere}/")
    address = mudroom(place, "serve", "--link").splitlines()[0]
    visited.evaluate(follow, address)
    visited.wait_for_url(site.url)
    visited.wait_for_selector(HOME)
    visited.goto(address)
    assert "mudroom serve --link" in visited.content()
