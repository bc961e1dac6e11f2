"""The Python client: run pipelines, follow jobs, read results.

    from nightmill.client import Client

    job = Client().run("licence-audit", input="distributions")
    for row in job.results(): ...

It talks HTTP to the api of one installation, found by its home folder. Every error is a `NightmillError` with a
message, a remedy and an exit code.
"""

from nightmill.client.client import Client
from nightmill.client.errors import BadInput, NightmillError, NotRunning, Refused
from nightmill.client.job import Job
from nightmill.client.pipelines import load_pipeline
from nightmill.client.progress import Progress

__all__ = ["BadInput", "Client", "Job", "NightmillError", "NotRunning", "Progress", "Refused", "load_pipeline"]
