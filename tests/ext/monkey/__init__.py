"""Monkeys: keys, clicks and requests in any order, while an agent changes the fork and the user the project.

``dev/monkey`` runs one for as long as one likes, ``tests/**/test_monkey_*.py`` a short walk of each.

1. A walk is its seed: a step is drawn from the seed and its own number, so what one step draws moves no other.
2. The model (``model.py``) is pure and knows nothing of how mudroom merges or selects.
3. A driver presses what a person could, and looks after every step at what must always hold.
4. A walk that fails tells its seed and its steps; what it has found becomes a plain test.
"""
