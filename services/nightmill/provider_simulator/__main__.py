"""`python -m nightmill.provider_simulator`: the simulator without the rest of the house."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nightmill.provider_simulator.run import CannotStart, Options, run_simulator


def main() -> int:
    """Serve until stopped. 0 = stopped by a signal, 2 = bad scenario or port."""
    parser = argparse.ArgumentParser(prog="python -m nightmill.provider_simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--scenario", type=Path, help="YAML or JSON file of faults, answers, latency and limits")
    parser.add_argument("--port-file", type=Path, help="where to write the port once it listens")
    parser.add_argument("--home", type=Path, help="folder for state that survives a restart; default: none does")
    parser.add_argument("--clock-speed", type=float, default=1.0, help="virtual seconds per real one, for batches")
    parser.add_argument("--relaxed", action="store_true", help="read bodies without checking them, for pure speed")
    parser.add_argument("--webhook-url", help="who is told when a batch ends")
    parser.add_argument("--webhook-secret", help="whsec_... to sign those notices with")
    args = parser.parse_args()
    options = Options(
        home=args.home,
        clock_speed=args.clock_speed,
        webhook_url=args.webhook_url,
        webhook_secret=args.webhook_secret,
        relaxed=args.relaxed,
    )
    try:
        run_simulator(
            host=args.host,
            port=args.port,
            scenario=args.scenario,
            port_file=args.port_file,
            options=options,
        )
    except CannotStart as exc:
        print(exc, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
