"""What mudroom costs, beside what people would use instead: ``python -m bench``. See ``bench/__main__.py``."""
