"""Reasons: the commands and turns that were observed at a hunk of a fork."""
