def count(text):
    """Return the number of words."""
    return len(text.split(" "))
