"""The state of a fork as a value: what each command makes of it, and its text, which must survive and must not lie."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree import stack
from mudroom.core.tree.stack import LIVE, Checkpoint, ForkState, PrivateRepository, from_text, to_text
from tiers import each

IDS = st.text("0123456789abcdef", min_size=1, max_size=12)
NAMES = st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=64)
TIMES = st.integers(0, 1 << 62)
LAYERS = st.lists(IDS, max_size=5).map(tuple)
POINTS = st.lists(st.builds(Checkpoint, NAMES, TIMES, LAYERS, st.booleans()), max_size=5).map(tuple)
REPOSITORIES = st.none() | st.builds(PrivateRepository, IDS, IDS)
STATES = st.builds(
    ForkState, IDS, LAYERS, st.just(LIVE) | IDS, TIMES, st.just("") | NAMES, st.booleans(), POINTS, REPOSITORIES
)

GOOD = """\
mudroom-fork 2
upper b0
layers a0 a1
base live
created 17
parent one
named
checkpoint green 12 a0
automatic rollback-1 13 a0 a1
checkpoint empty 14
end
"""
STATE = ForkState(
    "b0",
    ("a0", "a1"),
    LIVE,
    17,
    "one",
    True,
    (
        Checkpoint("green", 12, ("a0",)),
        Checkpoint("rollback-1", 13, ("a0", "a1"), automatic=True),
        Checkpoint("empty", 14, ()),
    ),
)


@given(STATES)
def test_text_gives_back_the_state(state: ForkState) -> None:
    text = to_text(state)
    assert from_text(text) == state
    assert to_text(from_text(text)) == text


@given(STATES, st.data())
def test_no_part_of_a_text_passes_for_the_whole(state: ForkState, data: st.DataObject) -> None:
    text = to_text(state)
    cut = data.draw(st.integers(0, len(text) - 2))  # without the last newline it is whole
    with pytest.raises(ValueError, match=r"cut off|begin|invalid line|invalid layer name|lacks"):
        from_text(text[:cut])


@given(st.binary(max_size=200))
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        from_text(data.decode("latin-1"))


@given(st.lists(st.sampled_from([*GOOD.splitlines(), "", " ", "named x", "upper", "layers", "parent", "end end"])))
def test_any_heap_of_lines_is_a_state_or_a_value_error(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in ("mudroom-fork 2", *lines, "end"))
    try:
        state = from_text(text)
    except ValueError:
        return
    assert from_text(to_text(state)) == state


def test_the_form_that_is_documented() -> None:
    assert to_text(STATE) == GOOD
    assert from_text(GOOD) == STATE
    assert to_text(ForkState("u")) == "mudroom-fork 2\nupper u\nlayers\nbase live\ncreated 0\nend\n"


@each(
    ("text", "said"),
    [
        ("", "does not begin"),
        ("\n", "does not begin"),
        ("mudroom-fork\nend\n", "does not begin"),
        ("mudroom-fork two\nend\n", "does not begin"),
        ("mudroom-fork 2 2\nend\n", "does not begin"),
        ("mudroom-fork -2\nend\n", "does not begin"),
        ("something else\nend\n", "does not begin"),
        (GOOD.replace("fork 2", "fork 3"), "has format 3, this mudroom knows 2"),
        (GOOD.replace("fork 2", "fork 3").replace("end\n", "of tomorrow\n"), "has format 3"),
        ("mudroom-fork 2\n", "is cut off"),
        (GOOD[:-4], "is cut off"),
        (GOOD + "more\n", "is cut off"),
        (GOOD.replace("\nend", "\nend "), "is cut off"),
        (GOOD.replace("upper b0\n", ""), "lacks upper, layers, base or created"),
        (GOOD.replace("layers a0 a1\n", ""), "lacks"),
        (GOOD.replace("base live\n", ""), "lacks"),
        (GOOD.replace("created 17\n", ""), "lacks"),
        (GOOD.replace("created 17", "created soon"), "lacks"),
        (GOOD.replace("created 17", "created"), "lacks"),
        (GOOD.replace("upper b0", "upper b0 b1"), "lacks"),
        (GOOD.replace("parent one", "parent one two"), "lacks"),
        (GOOD.replace("named", "upper b0"), "invalid line: 'upper b0'"),
        (GOOD.replace("named", "nicknamed"), "invalid line: 'nicknamed'"),
        (GOOD.replace("named", ""), "invalid line: ''"),
        (GOOD.replace("named", " named"), "invalid line"),
        (GOOD.replace("green 12", "green"), "invalid line"),
        (GOOD.replace("green 12", "green soon"), "invalid line"),
        (GOOD.replace("green 12", "green -12"), "invalid line"),
        (GOOD.replace("green 12 a0", "green 12 .."), "invalid layer name: '..'"),
        (GOOD.replace("green 12 a0", "green 12  a0"), "invalid layer name: ''"),
        (GOOD.replace("green 12 a0", "green 12 a/0"), "invalid layer name: 'a/0'"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        from_text(text)


@pytest.mark.parametrize("word", ["..", "../../other", "a/b", "", "é", "-", "."])
@pytest.mark.parametrize("line", ["upper b0", "layers a0 a1", "base live", "checkpoint green 12 a0"])
def test_an_id_that_would_lead_elsewhere_is_refused(line: str, word: str) -> None:
    """Ids become names of directories that are read, and at the end removed."""
    bad = line.rpartition(" ")[0] + " " + word
    with pytest.raises(ValueError):
        from_text(GOOD.replace(line, bad))


def test_seal_checkpoint_roll_back() -> None:
    state = ForkState("u1", created=1, named=True)
    sealed = stack.seal(state, "u2")
    assert (sealed.upper, sealed.layers, sealed.created, sealed.named) == ("u2", ("u1",), 1, True)
    green = stack.with_checkpoint(sealed, "green", 5)
    assert green.checkpoint("green") == Checkpoint("green", 5, ("u1",))
    assert green.checkpoint("red") is None
    later = stack.with_checkpoint(stack.seal(green, "u3"), "rollback-1", 6, automatic=True)
    assert later.layers == ("u1", "u2")
    point = later.checkpoint("green")
    assert point is not None
    back = stack.rolled_back(later, point, "u4")
    assert (back.upper, back.layers, back.checkpoints) == ("u4", ("u1",), later.checkpoints)
    assert back.references == {"u1", "u2", "u4"}, "what only a checkpoint needs is needed; the dropped upper is not"
    assert stack.without_checkpoint(back, "rollback-1").references == {"u1", "u4"}


def test_a_fork_of_a_fork_shares_layers_and_no_history() -> None:
    child = stack.forked(STATE, "parent", "c0", 99)
    assert child == ForkState("c0", ("a0", "a1"), LIVE, 99, "parent", named=True)
    assert stack.forked(STATE, "parent", "c0", 99, ("a0",)).layers == ("a0",)
    assert stack.forked(STATE._replace(base="ba5e"), "parent", "c0", 99, ()).base == "ba5e"


def test_flattened_moves_only_the_checkpoints_on_all_of_the_merged_layers() -> None:
    flat = stack.flattened(STATE, 2, "m")
    assert flat.layers == ("m",)
    green, left, empty = STATE.checkpoints
    assert flat.checkpoints == (green, left._replace(layers=("m",)), empty)
    assert flat.references == {"b0", "m", "a0"}
    one = stack.flattened(STATE, 1, "m")
    assert one.layers == ("m", "a1")
    assert [point.layers for point in one.checkpoints] == [("m",), ("m", "a1"), ()]


@given(st.lists(st.integers(1, 9), unique=True))
def test_free_name_is_the_first_that_is_free(taken: list[int]) -> None:
    points = tuple(Checkpoint(f"rollback-{number}", 0, ()) for number in taken)
    number = int(stack.free_name(ForkState("u", checkpoints=points), "rollback").rpartition("-")[2])
    assert number not in taken
    assert set(range(1, number)) <= set(taken)
