"""`up` of a laptop with two small services, in the foreground: `laptop_program.py HOME KAFKA TOPIC`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from nightmill.local.options import UpOptions
from nightmill.local.up import up

_HERE = Path(__file__)


def options_for(home: Path, kafka: str, topic: str, *, detach: bool) -> UpOptions:
    """Return the options of a laptop whose services are small ones and which makes one topic."""

    def create_topics(bootstrap: str, environment: Mapping[str, str]) -> None:
        assert environment["NIGHTMILL_KAFKA"] == bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)]).values():
            try:
                made.result()
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise

    def foreground(_: UpOptions) -> Sequence[str]:
        return [sys.executable, str(_HERE), str(home), kafka, topic]

    def command(name: str) -> Sequence[str]:
        return [sys.executable, str(_HERE.with_name("small_service.py")), str(home), name]

    return UpOptions(
        home=home,
        kafka=kafka,
        detach=detach,
        services=("planner", "api"),
        command=command,
        foreground=foreground,
        create_topics=create_topics,
        embedded_ledger=False,
    )


if __name__ == "__main__":
    sys.exit(up(options_for(Path(sys.argv[1]), sys.argv[2], sys.argv[3], detach=False)))
