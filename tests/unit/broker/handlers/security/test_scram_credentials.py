"""SCRAM users over the wire, on a whole server."""

from __future__ import annotations

from pathlib import Path

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import (
    NONE,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
)
from braidlog.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from braidlog.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from support.in_process_server import answer, on_server


def test_users_are_made_described_and_deleted(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        async def alter(**changes: object) -> dict[str, int]:
            request = AlterUserScramCredentialsRequest(**changes)  # type: ignore[arg-type]
            answered = await answer(server, "AlterUserScramCredentials", 0, request)
            return {each.user: each.error_code for each in answered.results}

        async def describe(*names: str) -> dict[str, object]:
            users = [UserName(name=name) for name in names] if names else None
            answered = await answer(
                server, "DescribeUserScramCredentials", 0, DescribeUserScramCredentialsRequest(users=users)
            )
            assert answered.error_code == NONE
            return {
                each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
                for each in answered.results
            }

        new = [
            ScramCredentialUpsertion(name=name, mechanism=2, iterations=iterations, salt=b"salt", salted_password=b"x")
            for name, iterations in (("alice", 8192), ("bob", 100), ("carol", 4096))
        ]
        codes = await alter(upsertions=new, deletions=[ScramCredentialDeletion(name="dan", mechanism=1)])
        assert codes == {
            "dan": ResourceNotFoundError.code,
            "alice": NONE,
            "bob": UnacceptableCredentialError.code,
            "carol": NONE,
        }
        assert await describe() == {"alice": [(2, 8192)], "carol": [(2, 4096)]}
        assert await describe("alice", "bob", "carol", "carol") == {
            "alice": [(2, 8192)],
            "bob": ResourceNotFoundError.code,
            "carol": DuplicateResourceError.code,
        }
        assert await alter(deletions=[ScramCredentialDeletion(name="alice", mechanism=2)]) == {"alice": NONE}
        assert await describe() == {"carol": [(2, 4096)]}

    on_server(tmp_path, check)
