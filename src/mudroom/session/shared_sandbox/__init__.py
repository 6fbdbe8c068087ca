"""A sandbox that several commands of a fork share: opened, tended, joined from this process and from others."""
