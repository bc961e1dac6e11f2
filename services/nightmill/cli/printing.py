"""Printing for programs."""

import json
import sys


def print_json(value: object) -> None:
    """One JSON object in one line on standard output."""
    json.dump(value, sys.stdout)
    print()
