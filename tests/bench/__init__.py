"""Figures of the line beside two plain clients: `python tests/bench --help`."""
