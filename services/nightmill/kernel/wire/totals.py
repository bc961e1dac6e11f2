"""What calls used before any was made: where every account of an item, a batch or a job begins."""

from nightmill.kernel.wire.messages import Totals

NO_TOTALS = Totals(
    attempts=0,
    input_tokens=0,
    cached_tokens=0,
    output_tokens=0,
    cost_nano_usd=0,
    unknown_attempts=0,
    repairs=0,
    retries=0,
    reserved_nano_usd=0,
)
