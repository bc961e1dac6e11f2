"""Properties are searched without a clock: a busy machine is no counterexample. CI has a profile of its own."""

import os

from hypothesis import HealthCheck, settings

if "CI" not in os.environ:
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
