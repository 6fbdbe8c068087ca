"""The terminal review: look at the changes of a fork, choose, decide conflicts and apply, with the keyboard. It is
drawn by Textual, which is an optional dependency; only ``ext/tui/cli/review.py`` imports this room."""
