from __future__ import annotations

from braidlog.net.outbound.api_versions import NEWEST_API_VERSIONS, api_versions_request
from braidlog.wire.apis import APIS
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


def test_the_request_says_who_asks() -> None:
    writer = Writer()
    api_versions_request("1.2.3").encode(writer, NEWEST_API_VERSIONS)
    read = ApiVersionsRequest.decode(Reader(writer.getvalue()), NEWEST_API_VERSIONS)
    assert (read.client_software_name, read.client_software_version) == ("braidlog", "1.2.3")


def test_the_version_is_one_that_our_own_broker_speaks() -> None:
    assert APIS[18].speaks(NEWEST_API_VERSIONS)
