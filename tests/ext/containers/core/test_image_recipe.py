"""Recipes of images: what is wrong with one, and the command lines that follow from a right one."""

from __future__ import annotations

from mudroom.ext.containers.core.image import LABEL, own_name_error
from mudroom.ext.containers.core.image_recipe import (
    Recipe,
    build_words,
    default_name,
    error_line,
    import_words,
    labels,
    recipe_error,
)
from tiers import each

WRONG = [
    (Recipe("host", "-v"), "the name '-v' is not the name of an image"),
    (Recipe("host", "host"), "the name 'host' means the host's own toolchain"),
    (Recipe("host", network=True), "--network is for --from containerfile"),
    (Recipe("containerfile"), "which Containerfile?"),
]


@each(("recipe", "message"), WRONG)
def test_a_wrong_recipe(recipe: Recipe, message: str) -> None:
    found, hint = recipe_error(recipe)
    assert found == message
    assert hint


def test_a_right_one() -> None:
    assert recipe_error(Recipe("host")) == ("", "")
    assert recipe_error(Recipe("containerfile", file=b"/p/F", context=b"/p", network=True)) == ("", "")


@each(
    ("recipe", "name"),
    [
        (Recipe("host"), "mudroom-host-copy"),
        (Recipe("containerfile", file=b"/home/u/My Project_2/Containerfile"), "mudroom-my-project-2"),
        (Recipe("containerfile", file=b"/Containerfile"), "mudroom-image"),
        (Recipe("containerfile", file="/é/F".encode()), "mudroom-image"),
        (Recipe("containerfile", file=b"/" + b"a" * 300 + b"/F"), "mudroom-" + "a" * 64),
    ],
)
def test_a_name_after_what_it_is_made_from(recipe: Recipe, name: str) -> None:
    assert default_name(recipe) == name
    assert own_name_error(name) == ""


def test_what_an_image_says_about_itself() -> None:
    found = labels(Recipe("host", "x"), "2024-01-02T03:04:05+00:00")
    assert found == {LABEL: "host", f"{LABEL}.made": "2024-01-02T03:04:05+00:00"}


def test_import() -> None:
    words = import_words("x", {LABEL: "host", "a": 'b "c" $d\\'}, {"PATH": "/bin"})
    assert words == (
        b"import",
        *(b"--change", b'LABEL mudroom.image="host"'),
        *(b"--change", b'LABEL a="b \\"c\\" \\$d\\\\"'),
        *(b"--change", b'ENV PATH="/bin"'),
        *(b"-", b"x"),
    )


def test_a_containerfile_has_no_network_unless_somebody_says_so() -> None:
    recipe = Recipe("containerfile", file=b"/p/F", context=b"/p")
    front = (b"build", b"--force-rm", b"--file", b"/p/F", b"--tag", b"x", b"--label", b"a=b")
    assert tuple(build_words(recipe, "x", {"a": "b"}, pulls=False)) == (*front, b"--network=none", b"/p")
    assert tuple(build_words(recipe, "x", {"a": "b"}, pulls=True)) == (
        *front, b"--network=none", b"--pull=never", b"/p",
    )  # fmt: skip
    open_one = recipe._replace(network=True)
    assert tuple(build_words(open_one, "x", {"a": "b"}, pulls=True)) == (*front, b"/p")


def test_last_words() -> None:
    assert error_line("I: fine\nE: no such suite\nI: cleaning\n") == "E: no such suite"
    assert error_line("one\n\n two \n") == "two"
    assert error_line("") == "it failed and said nothing"
