"""The documents as tests: every block of code in them is run, and compared with what is printed beside it."""
