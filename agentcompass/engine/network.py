"""What the sessions of a request may reach, and how its agents are told."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..llm.endpoint import Endpoint
from ..spec.network import NetworkPolicy
from ..spec.options import NetworkParams

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseNetworks:
    """
    The policies of a request.

    Args:
        agent: Of the agent's session.
        verifier: Of a session of the verifier's own.
        notice: What the agent's prompt says of it; empty for nothing.
    """

    agent: NetworkPolicy
    verifier: NetworkPolicy
    notice: str


def phase_networks(params: NetworkParams, endpoint: Endpoint | None) -> PhaseNetworks:
    """
    Settle what each phase may reach.

    Args:
        endpoint: Of the model, if the agent calls it from inside its session; it is always allowed.
    """
    agent = params.run
    if endpoint is not None and endpoint.base_url:
        url = urlsplit(endpoint.base_url)
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
        agent = agent.plus(f"{host}:{url.port or _DEFAULT_PORTS[url.scheme]}")
    return PhaseNetworks(
        agent=agent,
        verifier=params.verifier,
        notice=_notice(params.run) if params.network_notice else "",
    )


def _notice(policy: NetworkPolicy) -> str:
    hosts = ", ".join(policy.hosts)
    via = "HTTP and HTTPS work through the proxy that HTTP_PROXY and HTTPS_PROXY name"
    match policy.mode:
        case "public":
            return ""
        case "no-network":
            return "Note: this environment has no network access."
        case "allowlist":
            return f"Note: of the network, this environment can reach only these hosts: {hosts}. {via}."
    return f"Note: this environment cannot reach these hosts: {hosts}. {via}."
