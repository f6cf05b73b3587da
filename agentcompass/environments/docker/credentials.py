"""Docker's own configuration file: which daemon is meant, and what ``docker login`` left."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

_HUB = "https://index.docker.io/v1/"
_HELPER_SECONDS = 20.0


def read_config() -> dict[str, Any]:
    """Return ``config.json`` of DOCKER_CONFIG or ``~/.docker``, empty where there is none; blocks."""
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def registry_auth(image: str) -> dict[str, str] | None:
    """Return the credentials for an image's registry, None if there are none; asks a helper, so it blocks."""
    registry, config = _registry(image), read_config()
    helper = config.get("credHelpers", {}).get(registry) or config.get("credsStore")
    return _from_helper(helper, registry) if helper else _from_file(config, registry)


def _registry(image: str) -> str:
    """Return the registry of an image's name, as the configuration file calls it."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return _HUB if not is_host or first == "docker.io" else first


def _from_file(config: dict[str, Any], registry: str) -> dict[str, str] | None:
    entry = config.get("auths", {}).get(registry, {})
    if not entry.get("auth"):
        return None
    user, _, password = b64decode(entry["auth"]).decode().partition(":")
    return {"username": user, "password": password, "serveraddress": registry}


def _from_helper(helper: str, registry: str) -> dict[str, str] | None:
    command = [f"docker-credential-{helper}", "get"]
    try:
        answer = subprocess.run(
            command, input=registry.encode(), capture_output=True, check=True, timeout=_HELPER_SECONDS
        )
        found = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return {"username": found["Username"], "password": found["Secret"], "serveraddress": registry}
