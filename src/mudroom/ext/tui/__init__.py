"""The terminal review: look at a fork's changes, choose, decide conflicts and apply, by keyboard. It is drawn with
Textual, an optional dependency; only ``ext/tui/cli/review.py`` imports this room."""
