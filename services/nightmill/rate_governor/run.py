"""Assembles the rate governor from settings."""

from nightmill.kernel.runtime.service import Service
from nightmill.kernel.runtime.settings import Settings, load_config
from nightmill.rate_governor.service import RateGovernor


def build(settings: Settings) -> Service:
    """The service over the pools of the config folder. Raises `SettingsError`."""
    return RateGovernor(load_config(settings.config_dir).pools)
