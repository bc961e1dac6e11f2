"""Figures of the line beside plain clients and a durable peer: `python tests/bench --help`."""
