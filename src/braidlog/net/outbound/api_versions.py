"""ApiVersions: what a broker offers, the first request of every connection."""

from __future__ import annotations

from typing import Final

from braidlog.wire.generated.api_versions import ApiVersionsRequest

NEWEST_API_VERSIONS: Final = 3


def api_versions_request(software_version: str) -> ApiVersionsRequest:
    """Brokers count the names and versions of client software (KIP-511)."""
    return ApiVersionsRequest(client_software_name="braidlog", client_software_version=software_version)
