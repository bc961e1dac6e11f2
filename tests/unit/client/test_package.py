"""What `import nightmill` gives, and what it does not load."""

import json
import subprocess
import sys

import pytest

import nightmill
from nightmill import client

_LOOKS = """
import json, sys
import nightmill
before = "httpx" in sys.modules
from nightmill import Client
print(json.dumps([before, "httpx" in sys.modules, Client.__module__]))
"""


def test_the_client_is_the_packages_own_name() -> None:
    """P2."""
    assert nightmill.Client is client.Client
    assert "Client" in dir(nightmill)


def test_importing_the_package_loads_no_http_client() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOKS], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, True, "nightmill.client.client"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    name = "Cleint"
    with pytest.raises(AttributeError, match="'nightmill' has no attribute 'Cleint'"):
        getattr(nightmill, name)
