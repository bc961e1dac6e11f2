"""How long the suites wait for what must come. It is never waited out but by a test that fails anyway, so it is long:
a machine that is many times slower, or busy with something else, is no failure."""

PATIENCE_S = 300.0
