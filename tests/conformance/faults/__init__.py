"""Assertions outside test modules tell as much as those inside."""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("answers", "batches", "calls", "connection", "manners", "notices", "results"))
)
