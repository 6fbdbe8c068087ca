"""What the pictures show: a small project, and what an agent and a user have really done to it."""

from __future__ import annotations

import base64
import struct
import zlib

from browser import mudroom, staged

from conftest import Place

INVOICE = '''\
"""Invoices: lines, totals, due dates."""

from datetime import date, timedelta


TAX = 0.19


class Line:
    def __init__(self, text, amount, count=1):
        self.text = text
        self.amount = amount
        self.count = count

    def total(self):
        return self.amount * self.count


class Invoice:
    def __init__(self, number, lines, issued):
        self.number = number
        self.lines = lines
        self.issued = issued

    def net(self):
        return sum(line.total() for line in self.lines)

    def gross(self):
        return self.net() * (1 + TAX)

    def due(self):
        return self.issued + timedelta(days=30)

    def is_late(self, today=None):
        return (today or date.today()) > self.due()


def render(invoice):
    rows = [f"Invoice {invoice.number}"]
    for line in invoice.lines:
        rows.append(f"{line.text:<30} {line.total():>10.2f}")
    rows.append(f"{'Total':<30} {invoice.gross():>10.2f}")
    return "\\n".join(rows)
'''
EDITS = (
    ("TAX = 0.19", 'TAX = Decimal("0.19")'),
    ("from datetime import date, timedelta", "from datetime import date, timedelta\nfrom decimal import Decimal"),
    ("        return self.amount * self.count", "        return Decimal(self.amount) * self.count"),
    ("timedelta(days=30)", "timedelta(days=self.days)"),
    ("    def __init__(self, number, lines, issued):", "    def __init__(self, number, lines, issued, days=30):"),
    ("        self.issued = issued\n", "        self.issued = issued\n        self.days = days\n"),
)
TESTS = """\
from datetime import date

from invoice import Invoice, Line


def test_gross():
    assert round(Invoice(1, [Line("tea", 10, 2)], date(2026, 1, 1)).gross(), 2) == 23.8
"""
README = "# shop\n\nInvoices for a small shop.\n\n* net and gross\n* due in 30 days\n"
POLICY = """\
verify:
  command: [python3, -m, py_compile, invoice.py]
  when: always
commands:
  rules:
    - {pattern: git push, action: require_approval, reason: what is pushed cannot be taken back}
"""
PACKAGE = '{\n  "name": "shop",\n  "version": "1.0.0",\n  "scripts": {"build": "node build.js"}\n}\n'


def picture(colour: tuple[int, int, int], size: int = 96) -> bytes:
    """A disc as PNG (RFC 2083)."""
    rows = bytearray()
    for y in range(size):
        rows.append(0)
        for x in range(size):
            inside = (x - size / 2) ** 2 + (y - size / 2) ** 2 < (size * 0.42) ** 2
            rows += bytes(colour if inside else (245, 240, 232))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")
    )


def make(place: Place) -> None:
    """The project, and the forks in which something has been done to it."""
    place.write("invoice.py", INVOICE)
    place.write("tests/test_invoice.py", TESTS)
    place.write("README.md", README)
    place.write("package.json", PACKAGE)
    place.write("logo.png", picture((176, 92, 40)))
    place.write("old/legacy.py", "print('gone soon')\n")
    place.write(".gitignore", "dist/\n")
    place.write(".mudroom/policy.yaml", POLICY)
    staged(place, "mkdir -p docs; echo '# Changes' > docs/changes.md", "docs")
    mudroom(place, "apply", "docs", "--yes")
    refactored = INVOICE
    for old, new in EDITS:
        assert old in refactored, old
        refactored = refactored.replace(old, new)
    given = {"invoice.py": refactored.encode(), "logo.png": picture((40, 110, 160))}
    lines = [f"echo {base64.b64encode(data).decode()} | base64 -d > {name}" for name, data in given.items()]
    staged(place, "; ".join(lines), "decimal-money")
    mudroom(place, "checkpoint", "money-is-decimal", "--fork", "decimal-money")
    script = """
        sed -i 's/due in 30 days/due in 30 days, or as agreed/' README.md
        sed -i 's/"build": "node build.js"/"build": "node build.js", "postinstall": "node setup.js"/' package.json
        rm -r old; mkdir -p dist money; echo bundle > dist/app.js
        for name in currency rounding format parse; do echo "def $name(value): return value" > money/$name.py; done
        printf 'import money\\n\\n\\ndef test_money():\\n    assert money\\n' > tests/test_money.py
    """
    staged(place, script, "decimal-money")
    place.write("README.md", README.replace("due in 30 days", "due in 14 days"))  # the user, meanwhile


CART = """def total(items, discount=0):
    \"\"\"In cents.\"\"\"
    return sum(item.price for item in items) - discount


def names(items):
    return [item.name for item in items]
"""
CART_TESTS = """from cart import total


def test_total(two_teas):
    assert total(two_teas) == 640
    assert total(two_teas, discount=40) == 600


def test_nothing():
    assert total([]) == 0
"""
WORKFLOW = """name: checks
on: [push]
permissions: {contents: read}
jobs:
  tests:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: python -m pytest
"""


def begin_round(place: Place) -> None:
    """An agent's change with two that nobody asked for: a test that checks less, and rights for the checks."""
    place.write("cart.py", CART)
    place.write("tests/test_cart.py", CART_TESTS)
    place.write(".github/workflows/checks.yml", WORKFLOW)
    script = r"""
        sed -i 's/sum(item.price for item in items) - discount/sum(item.price * item.count for item in items)/' cart.py
        sed -i '/discount=40/d' tests/test_cart.py
        sed -i 's/contents: read/contents: write/' .github/workflows/checks.yml
        echo '* totals with counts' >> README.md
    """
    staged(place, script, "cart-counts")


def end_round(place: Place) -> None:
    """The remarks are sent, and the agent has dealt with them."""
    script = r"""
        sed -i 's/for item in items)$/for item in items) - discount/' cart.py
        sed -i '/== 640/a\    assert total(two_teas, discount=40) == 600' tests/test_cart.py
    """
    mudroom(place, "send", "cart-counts", "--json", "--", "sh", "-c", script)


def clash(place: Place) -> None:
    """Somebody has changed the line that a fork has changed, and a fork fails the verify command."""
    mudroom(place, "ps", "--end", "--all")
    staged(place, "sed -i 's/shop/corner shop/' package.json", "rename")
    place.write("package.json", PACKAGE.replace("shop", "tea shop"))
    staged(place, "echo 'def broken(:' >> invoice.py", "late-fees")
    mudroom(place, "apply", "--yes", "late-fees", expected=5)


def serve(place: Place) -> None:
    """Something that goes on in the background."""
    server = "echo listening on 8000; exec python3 -m http.server 8000 --bind 127.0.0.1"
    mudroom(place, "exec", "--fork", "decimal-money", "--background", "--json", "--", "sh", "-c", server)
