"""A sandbox that several commands in a fork share: opened, tended, joined from this process and from others."""
