from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from braidlog.broker import policies
from braidlog.broker.policies import (
    ALTER_CONFIG,
    CREATE_TOPIC,
    CreateTopicPolicy,
    Policies,
    check_policies,
    load_policies,
)
from braidlog.config.broker import BrokerSettings
from braidlog.controller.requests import (
    ConfigChange,
    ConfigChanges,
    ConfigOperation,
    ConfigResource,
    ConfigResult,
    FullConfig,
    NewTopic,
    NewTopicResult,
    ResourceType,
)
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    PolicyViolationError,
    RequestTimedOutError,
    UnknownServerError,
)
from braidlog.policies import AlterConfigMetadata, CreateTopicMetadata
from support import example_policies

EXAMPLES = "support.example_policies"


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    example_policies.ASKED_TO_CREATE.clear()
    example_policies.ASKED_TO_ALTER.clear()
    with ThreadPoolExecutor(2) as threads:
        yield threads


def load(executor: ThreadPoolExecutor, **names: str) -> Policies:
    keys = {"create": CREATE_TOPIC, "alter": ALTER_CONFIG}
    settings = BrokerSettings({keys[key]: f"{EXAMPLES}:{name}" for key, name in names.items()})
    return load_policies(settings, lambda _: executor)


def create_policy(executor: ThreadPoolExecutor, name: str = "create") -> CreateTopicPolicy:
    policy = load(executor, create=name).create_topic
    assert policy is not None
    return policy


class Cluster:
    """Creates what has partitions, and alters what has a name."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.altered: list[str] = []

    async def create(self, wanted: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        results = []
        for each in wanted:
            if each.partitions == 0:
                results.append(NewTopicResult(each.name, InvalidPartitionsError()))
                continue
            configs = {key: value for key, value in each.configs.items() if value is not None}
            results.append(NewTopicResult(each.name, partitions=4, replication_factor=1, configs=configs))
            if not validate_only:
                self.created.append(each.name)
        return results

    async def alter(self, wanted: Sequence[FullConfig | ConfigChanges], validate_only: bool) -> list[ConfigResult]:
        if not validate_only:
            self.altered += (each.resource.name for each in wanted)
        return [ConfigResult(each.resource, None if each.resource.name else InvalidRequestError()) for each in wanted]


def test_nothing_is_loaded_where_nothing_is_named(executor: ThreadPoolExecutor) -> None:
    assert load_policies(BrokerSettings({CREATE_TOPIC: ""}), lambda _: executor) == (None, None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module_at_all:policy", "PYTHONPATH"),
        (f"{EXAMPLES}:no_such_policy", "package.module:object"),
        (f"{EXAMPLES}:create.inner", "package.module:object"),
        (f"{EXAMPLES}:NOT_CALLABLE", "cannot be called"),
        (f"{EXAMPLES}:NotCallable", "__call__"),
        (f"{EXAMPLES}:WithArguments", "without arguments"),
        (f"{EXAMPLES}:coroutine", "write def, not async def"),
        (f"{EXAMPLES}:Asynchronous", "write def, not async def"),
    ],
)
@pytest.mark.parametrize("key", [CREATE_TOPIC, ALTER_CONFIG])
def test_what_is_no_policy_refuses_the_start_in_one_line(key: str, name: str, says: str) -> None:
    settings = BrokerSettings({key: name})
    with pytest.raises(UserError) as refused:
        check_policies(settings)
    text = str(refused.value)
    assert text.startswith(f"{key}: ")
    assert says in text
    assert "\n" not in text
    with ThreadPoolExecutor(1) as threads, pytest.raises(UserError):
        load_policies(settings, lambda _: threads)


def test_a_module_that_fails_while_it_is_imported_refuses_the_start(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaving_policy.py").write_text("raise SystemExit('no licence')\n")  # type: ignore[operator]
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match="SystemExit: no licence"):
        check_policies(BrokerSettings({CREATE_TOPIC: "leaving_policy:policy"}))


async def test_only_what_could_be_created_is_asked_about_and_only_what_it_agrees_to_is_created(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    wanted = [
        NewTopic("a", configs={"retention.ms": "5"}),
        NewTopic("refused-b"),
        NewTopic("impossible", partitions=0),
        NewTopic("broken-c"),
        NewTopic("config-d"),
        NewTopic("exit-e"),
        NewTopic("f", assignments={0: (1,)}),
    ]
    with caplog.at_level(logging.INFO, "braidlog.policies"):
        results = await create_policy(executor).create_topics(cluster.create, wanted)
    assert cluster.created == ["a", "f"]
    assert [result.name for result in results] == [each.name for each in wanted]
    assert [type(result.error) for result in results] == [
        type(None),
        PolicyViolationError,
        InvalidPartitionsError,
        UnknownServerError,
        InvalidConfigError,
        UnknownServerError,
        type(None),
    ]
    errors = [result.error for result in results]
    assert errors[1] is not None
    assert errors[1].message == "refused-b is refused: call it otherwise"
    # Nothing of the policy's inside is told to clients.
    assert errors[3] is not None
    assert errors[3].message is None
    assert example_policies.ASKED_TO_CREATE[0] == CreateTopicMetadata("a", 4, 1, None, {"retention.ms": "5"})
    assert example_policies.ASKED_TO_CREATE[-1] == CreateTopicMetadata("f", None, None, {0: (1,)}, {})
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failed) == 2
    assert all("support.example_policies:create" in record.getMessage() for record in failed)
    assert all(record.exc_info is not None for record in failed)


async def test_a_check_asks_the_policy_and_creates_nothing(executor: ThreadPoolExecutor) -> None:
    cluster = Cluster()
    wanted = [NewTopic("a"), NewTopic("refused-b")]
    results = await create_policy(executor).create_topics(cluster.create, wanted, validate_only=True)
    assert [type(result.error) for result in results] == [type(None), PolicyViolationError]
    assert cluster.created == []


@pytest.mark.parametrize("name", ["answers_yes", "hidden_coroutine"])
async def test_a_policy_that_returns_something_agrees_to_nothing(
    executor: ThreadPoolExecutor, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    (result,) = await create_policy(executor, name).create_topics(cluster.create, [NewTopic("a")])
    assert isinstance(result.error, UnknownServerError)
    assert cluster.created == []
    assert "return None to agree" in caplog.text


async def slow_policy(executor: ThreadPoolExecutor, meanwhile: Callable[[], None], within_s: float) -> NewTopicResult:
    example_policies.SLOW_MAY_GO_ON.clear()
    example_policies.SLOW_WAITS.clear()
    policy = create_policy(executor, "slow")
    policy.answer_within_s = within_s
    try:
        asking = asyncio.ensure_future(policy.create_topics(Cluster().create, [NewTopic("a")]))
        assert await asyncio.to_thread(example_policies.SLOW_WAITS.wait, 60)
        # The loop runs while the policy does not answer.
        meanwhile()
        return (await asking)[0]
    finally:
        example_policies.SLOW_MAY_GO_ON.set()


async def test_others_are_served_while_a_policy_thinks(executor: ThreadPoolExecutor) -> None:
    result = await slow_policy(executor, example_policies.SLOW_MAY_GO_ON.set, 600)
    assert result.error is None


async def test_a_policy_that_does_not_answer_is_not_waited_for_for_ever(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    result = await slow_policy(executor, lambda: None, 0.01)
    assert isinstance(result.error, RequestTimedOutError)
    assert "support.example_policies:slow has not answered" in caplog.text


def test_clients_wait_as_long_as_a_policy_may_think() -> None:
    assert policies._ANSWER_WITHIN_S == 30.0


async def test_a_change_is_shown_as_the_client_asks_for_it(executor: ThreadPoolExecutor) -> None:
    policy = load(executor, alter="Alter").alter_config
    assert policy is not None
    cluster = Cluster()
    topic = ConfigResource(ResourceType.TOPIC, "t")
    whole = [FullConfig(topic, (("retention.ms", "5"),)), FullConfig(ConfigResource(ResourceType.TOPIC, ""), ())]
    results = await policy.alter_configs(cluster.alter, whole)
    assert [type(result.error) for result in results] == [type(None), InvalidRequestError]
    changes = [
        ConfigChanges(topic, (ConfigChange("retention.ms", ConfigOperation.DELETE),)),
        ConfigChanges(ConfigResource(ResourceType.BROKER, "1"), (ConfigChange("retention.ms", 0, "1"),)),
    ]
    results = await policy.alter_configs(cluster.alter, changes)
    assert [type(result.error) for result in results] == [type(None), PolicyViolationError]
    assert cluster.altered == ["t", "t"]
    assert [
        AlterConfigMetadata("TOPIC", "t", {"retention.ms": "5"}),
        AlterConfigMetadata("TOPIC", "t", {"retention.ms": None}),
        AlterConfigMetadata("BROKER", "1", {"retention.ms": "1"}),
    ] == example_policies.ASKED_TO_ALTER
    await policy.alter_configs(cluster.alter, changes[:1], validate_only=True)
    assert cluster.altered == ["t", "t"]
