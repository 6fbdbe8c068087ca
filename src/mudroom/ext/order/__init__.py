"""The order of a review: rows and hunks by the cost of a mistake in them, each with its reasons."""
