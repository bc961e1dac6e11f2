"""`nightmill up` whose provider gateway answers by itself: the product's own start, with one other command in it.

    python tests/bench/instant_up.py [--detach] KAFKA CONFIG

The home and all else come from `NIGHTMILL_*` variables, and `nightmill down` stops it.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nightmill.kernel.runtime.kafka.admin import create_topics
from nightmill.kernel.runtime.settings import read_settings
from nightmill.local.options import UpOptions, service_command
from nightmill.local.up import up

_GATEWAY = Path(__file__).resolve().with_name("instant_gateway.py")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/bench/instant_up.py", description="Up, without a provider.")
    parser.add_argument("--detach", action="store_true", help="return when everything is ready")
    parser.add_argument("kafka", metavar="KAFKA", help="local, docker or HOST:PORT")
    parser.add_argument("config", metavar="CONFIG", type=Path, help="folder with pools, prices, retry and tenants")
    given = parser.parse_args()
    options = UpOptions(
        create_topics=_create_topics,
        kafka=given.kafka,
        config=given.config.absolute(),
        detach=given.detach,
        environment={name: value for name, value in os.environ.items() if name.startswith("NIGHTMILL_")},
        command=_command,
        foreground=_foreground,
    )
    return up(options)


def _command(service: str) -> Sequence[str]:
    return [sys.executable, str(_GATEWAY)] if service == "provider_gateway" else service_command(service)


def _foreground(options: UpOptions) -> Sequence[str]:
    return [sys.executable, str(Path(__file__).resolve()), options.kafka, str(options.config)]


def _create_topics(bootstrap: str, environment: Mapping[str, str]) -> None:
    settings = read_settings(environment)
    create_topics(bootstrap, settings.namespace, settings.partitions)


if __name__ == "__main__":
    sys.exit(main())
