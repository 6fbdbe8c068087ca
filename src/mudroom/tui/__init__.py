"""The terminal review: what a fork would change, chosen, decided and applied with the keyboard. Textual draws it; it is
an extra, and only ``cli/change/review.py`` imports this room."""
