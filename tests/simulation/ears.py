"""What the product logs, heard by the checker and by nobody else."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


class _Ears(logging.Handler):
    def __init__(self, heard: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.DEBUG)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard(record)


@contextmanager
def listening(heard: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Every line the product logs goes to `heard`, and nowhere else."""
    logger, ears = logging.getLogger("nightmill"), _Ears(heard)
    kept = (logger.level, logger.propagate)
    with ExitStack() as stack:
        logger.addHandler(ears)
        stack.callback(logger.removeHandler, ears)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        try:
            yield
        finally:
            logger.setLevel(kept[0])
            logger.propagate = kept[1]
