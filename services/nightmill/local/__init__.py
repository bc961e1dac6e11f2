"""The laptop: a real Kafka, every service and the model server as supervised processes of one machine."""
