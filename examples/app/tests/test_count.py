import unittest

from app.count import count


class Count(unittest.TestCase):
    def test_words(self):
        self.assertEqual(count("one two"), 2)
