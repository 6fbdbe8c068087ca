"""The part of a home that is a fork's own, for the commands of an agent: stores, logins, settings of git and shells."""
