"""`replace(message, field=value)`: a message or row with other values in some of its fields.

As `dataclasses.replace`, and checked as such by mypy; at run time it is msgspec's, which knows the messages' structs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["replace"]
