"""Tests and checks that say less than before, each with its reason."""

from __future__ import annotations

from mudroom.core.text.linediff import diff_lines, split_lines
from mudroom.ext.order.core.weakened import weakened
from tiers import each


def reasons(path: str, old: str, new: str) -> set[str]:
    sides = split_lines(old.encode()), split_lines(new.encode())
    found = weakened(path.encode(), *sides, diff_lines(*sides))
    return {reason for words in found.values() for reason in words}


def test_(*lines: str) -> str:
    return "def test_a():\n" + "".join(f"    {line}\n" for line in lines)


test_.__test__ = False  # type: ignore[attr-defined]

EQUAL = "assert f(1) == 3"
PY = "tests/test_a.py"
JS_OLD = "it('adds', () => {\n  expect(f(1)).toBe(3);\n});\n"
GO_OLD = 'func TestA(t *testing.T) {\n\tif f(1) != 3 {\n\t\tt.Fatal("no")\n\t}\n}\n'
RUST_OLD = "#[test]\nfn test_a() {\n    assert_eq!(f(1), 3);\n}\n"
JAVA_OLD = "@Test\nvoid testA() {\n  assertEquals(3, f(1));\n}\n"


@each(
    ("path", "old", "new", "reason"),
    [
        (PY, test_(EQUAL, "assert g()"), test_(EQUAL), "test_a has 1 assertion fewer"),
        (PY, test_(EQUAL), test_("# " + EQUAL, "pass"), "test_a has 1 assertion fewer"),
        (PY, test_(EQUAL), test_("'''", EQUAL, "'''"), "test_a has 1 assertion fewer"),
        (PY, test_(EQUAL), test_("assert f(1)"), "test_a: an assertion says less"),
        (PY, test_(EQUAL), test_("assert f(1) is not None"), "test_a: an assertion says less"),
        (PY, test_(EQUAL), test_("assert f(1) in (3, 4)"), "test_a: an assertion says less"),
        (PY, test_(EQUAL), test_("assert isinstance(f(1), int)"), "test_a: an assertion says less"),
        (PY, test_(EQUAL), test_("assert f(1) == pytest.approx(3)"), "test_a: an assertion says less"),
        (PY, test_(EQUAL), test_("assert f(1) == 3 or g()"), "test_a: an assertion says less"),
        (PY, test_(EQUAL), test_("assert True"), "test_a: an assertion that is always true"),
        (PY, test_(EQUAL), test_("assert f(1) == f(1)"), "test_a: an assertion that is always true"),
        (PY, test_(EQUAL), test_("assert f(1) == 3 or True"), "test_a: an assertion that is always true"),
        (PY, test_(EQUAL), test_("assert f(1) == 4"), "test_a: another value is expected"),
        (
            PY,
            test_("self.assertEqual(f(1), 3)"),
            test_("self.assertEqual(f(1), 4)"),
            "test_a: another value is expected",
        ),
        (PY, test_("self.assertEqual(f(1), 3)"), test_("self.assertTrue(f(1))"), "test_a: an assertion says less"),
        (PY, test_("assert f() < 5"), test_("assert f() < 50"), "test_a: a bound is wider"),
        (PY, test_("assert f() > 5"), test_("assert f() > 1"), "test_a: a bound is wider"),
        (
            PY,
            test_("assert f() == approx(1, rel=1e-9)"),
            test_("assert f() == approx(1, rel=0.5)"),
            "test_a: a tolerance is wider",
        ),
        (
            PY,
            test_("self.assertAlmostEqual(f(), 1, places=9)"),
            test_("self.assertAlmostEqual(f(), 1, places=1)"),
            "test_a: a tolerance is wider",
        ),
        (
            PY,
            test_("with pytest.raises(KeyError):", "    f()"),
            test_("with pytest.raises(Exception):", "    f()"),
            "test_a: a wider exception is expected",
        ),
        (
            PY,
            test_("with pytest.raises(KeyError, match='x'):", "    f()"),
            test_("with pytest.raises(KeyError):", "    f()"),
            "test_a: a wider exception is expected",
        ),
        (
            PY,
            test_("with pytest.raises(KeyError):", "    f()"),
            test_("with pytest.raises((KeyError, OSError)):", "    f()"),
            "test_a: a wider exception is expected",
        ),
        (PY, test_(EQUAL), test_("if g():", "    " + EQUAL), "test_a asserts only under a condition"),
        (
            PY,
            test_(EQUAL),
            test_("try:", "    " + EQUAL, "except Exception:", "    pass"),
            "test_a asserts only under a condition",
        ),
        (
            PY,
            test_(EQUAL),
            test_("with contextlib.suppress(AssertionError):", "    " + EQUAL),
            "test_a asserts only under a condition",
        ),
        (PY, test_(EQUAL), test_("return", EQUAL), "test_a asserts only under a condition"),
        (PY, test_(EQUAL), test_("for x in ():", "    " + EQUAL), "test_a asserts only under a condition"),
        (PY, test_(EQUAL), "@pytest.mark.skip\n" + test_(EQUAL), "test_a is skipped, or may fail"),
        (PY, test_(EQUAL), "@pytest.mark.xfail(reason='x')\n" + test_(EQUAL), "test_a is skipped, or may fail"),
        (PY, test_(EQUAL), test_("pytest.skip('x')", EQUAL), "test_a is skipped, or may fail"),
        (
            PY,
            "class TestA:\n    def test_b(self): assert a\n",
            "@unittest.skip('x')\nclass TestA:\n    def test_b(self): assert a\n",
            "TestA.test_b is skipped, or may fail",
        ),
        (PY, test_(EQUAL), "pytestmark = pytest.mark.skip\n" + test_(EQUAL), "a whole module or class is skipped"),
        (PY, test_(EQUAL), "__test__ = False\n" + test_(EQUAL), "a whole module or class is skipped"),
        (PY, test_(EQUAL), test_(EQUAL).replace("test_a", "_test_a"), "test_a is deleted"),
        (PY, test_(EQUAL) + "x = 1\n", "x = 1\n", "test_a is deleted"),
        (PY, test_(EQUAL), test_(EQUAL) + "def test_a(): pass\n", "test_a is defined twice: the first is not run"),
        (PY, test_(EQUAL), "def test_a(:\n", "the tests cannot be read any more"),
        (
            PY,
            "@pytest.mark.parametrize('a', [1, 2])\n" + test_(EQUAL),
            "@pytest.mark.parametrize('a', [1])\n" + test_(EQUAL),
            "test_a has fewer cases",
        ),
        (
            PY,
            "def check(a):\n    assert a\n    assert a.b\n",
            "def check(a):\n    assert a\n",
            "check has 1 assertion fewer",
        ),
        ("a.test.js", JS_OLD, JS_OLD.replace("it(", "it.skip("), "a test is skipped, or others are"),
        ("a.test.js", JS_OLD, JS_OLD.replace("it(", "xit("), "a test is skipped, or others are"),
        ("a.test.js", JS_OLD, JS_OLD.replace("it(", "it.only("), "a test is skipped, or others are"),
        ("a.test.js", JS_OLD, JS_OLD.replace("  expect", "  // expect"), "1 assertion fewer"),
        (
            "a.test.js",
            JS_OLD,
            JS_OLD.replace("  expect(f(1)).toBe(3);\n", "  /*\n  expect(f(1)).toBe(3);\n  */\n"),
            "1 assertion fewer",
        ),
        ("a.test.ts", JS_OLD, JS_OLD.replace("toBe(3)", "toBeTruthy()"), "an assertion says less"),
        ("a.test.js", JS_OLD, JS_OLD.replace("toBe(3)", "toBe(4)"), "another value is expected"),
        ("a.test.js", JS_OLD + "f();\n", "f();\n", "adds is deleted"),
        (
            "a.test.js",
            JS_OLD,
            JS_OLD.replace("  expect(f(1)).toBe(3);", "  if (false) {\n  expect(f(1)).toBe(3);\n  }"),
            "assertions that never run",
        ),
        ("a_test.go", GO_OLD, GO_OLD.replace("t.Fatal", "t.Log"), "an assertion says less"),
        ("a_test.go", GO_OLD, GO_OLD.replace("\tif", "\tt.Skip()\n\tif"), "a test is skipped, or others are"),
        ("a_test.go", GO_OLD, GO_OLD.replace("!= 3", "!= 4"), "another value is expected"),
        ("a_test.go", GO_OLD + "var x = 1\n", "var x = 1\n", "TestA is deleted"),
        (
            "src/lib.rs",
            RUST_OLD,
            RUST_OLD.replace("assert_eq!(f(1), 3)", "assert!(f(1) > 0)"),
            "an assertion says less",
        ),
        ("src/lib.rs", RUST_OLD, RUST_OLD.replace("#[test]", "#[test]\n#[ignore]"), "a test is skipped, or others are"),
        (
            "ATest.java",
            JAVA_OLD,
            JAVA_OLD.replace("assertEquals(3, f(1))", "assertNotNull(f(1))"),
            "an assertion says less",
        ),
        ("ATest.java", JAVA_OLD, "@Disabled\n" + JAVA_OLD, "a test is skipped, or others are"),
        ("a/__snapshots__/a.snap", "a\n", "b\n", "a snapshot is rewritten"),
        (".github/workflows/ci.yml", "- run: pytest\n", "- run: pytest || true\n", "a failure does not count"),
        (".github/workflows/ci.yml", "- run: pytest\n", "- run: echo\n", "a check is not run any more"),
        (".github/workflows/ci.yml", "- run: pytest\n", "# - run: pytest\n", "a check is not run any more"),
        ("pyproject.toml", "fail_under = 90\n", "fail_under = 10\n", "a threshold is lower"),
        ("jest.config.js", "  branches: 90,\n", "  branches: 10,\n", "a threshold is lower"),
        ("a.py", "x = f()\n", "x = f()  # noqa: S102\n", "a check is silenced"),
    ],
)
def test_what_is_weaker(path: str, old: str, new: str, reason: str) -> None:
    assert reason in reasons(path, old, new)


@each(
    ("path", "old", "new"),
    [
        (PY, test_(EQUAL), test_(EQUAL, "assert g()")),
        (PY, test_(EQUAL), test_("x = f(1)", "assert x == 3")),
        (PY, test_("assert f(1)"), test_(EQUAL)),
        (PY, test_(EQUAL), test_(EQUAL).replace("test_a", "test_b")),  # renamed
        (PY, test_("assert f() < 50"), test_("assert f() < 5")),
        (
            PY,
            test_(EQUAL),
            test_(
                EQUAL,
            )
            + "@pytest.mark.skip\ndef test_new(): pass\n",
        ),
        (PY, test_(EQUAL), test_("with open('x'):", "    " + EQUAL)),
        ("a.test.js", JS_OLD, JS_OLD.replace("  expect", "    expect")),
        ("a.test.js", JS_OLD, JS_OLD.replace("'adds'", "'adds two'")),
        (".github/workflows/ci.yml", "- run: pytest\n", "- run: pytest -q\n"),
        (".github/workflows/ci.yml", "- run: pytest\n", "- name: a\n  run: pytest\n"),
        ("pyproject.toml", "fail_under = 10\n", "fail_under = 90\n"),
        ("a.py", "x = f()  # noqa\n", "x = g()  # noqa\n"),
    ],
)
def test_what_is_not(path: str, old: str, new: str) -> None:
    assert not reasons(path, old, new)


def test_a_reason_stands_at_its_block() -> None:
    old = test_("a = 1", "b = 2", "c = 3", EQUAL, "assert g()")
    new = test_("a = 2", "b = 2", "c = 3", EQUAL)
    sides = split_lines(old.encode()), split_lines(new.encode())
    assert weakened(PY.encode(), *sides, diff_lines(*sides)) == {1: ("test_a has 1 assertion fewer",)}
