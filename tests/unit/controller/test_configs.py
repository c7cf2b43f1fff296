from __future__ import annotations

import pytest

from braidlog.cluster.store import Create
from braidlog.controller.configs import alter, alter_incrementally
from braidlog.controller.plan import Plan, Put, Remove
from braidlog.controller.requests import ConfigChange, ConfigChanges, ConfigOperation, ConfigResource, FullConfig
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import ProtocolError
from support.controller_harness import context, topic

TOPIC = ConfigResource(2, "t")
BROKER = ConfigResource(4, "1")
EVERY_BROKER = ConfigResource(4, "")
GROUP = ConfigResource(32, "a/b")
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def changed(
    changes: list[ConfigChange], now: dict[str, str] | None = None, resource: ConfigResource = TOPIC
) -> tuple[Plan, ProtocolError | None]:
    start = context(topic("t"), configs={"topics/t": now or {}})
    plan, (result,) = alter_incrementally(start, [ConfigChanges(resource, tuple(changes))], False)
    assert result.resource == resource
    return plan, result.error


def test_set_and_delete_keep_the_rest() -> None:
    plan, error = changed(
        [ConfigChange("retention.ms", SET, "7"), ConfigChange("segment.ms", DELETE)],
        {"segment.ms": "5", "flush.ms": "3"},
    )
    assert error is None
    assert plan.delta.configs_changed == {"topics/t": {"flush.ms": "3", "retention.ms": "7"}}
    put, notice = plan.steps
    assert put == Put("/config/topics/t", b'{"version":1,"config":{"flush.ms":"3","retention.ms":"7"}}')
    assert notice == Create(
        "/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}', sequential=True
    )


def test_append_and_subtract_work_on_lists_and_start_from_the_default() -> None:
    plan, error = changed([ConfigChange("cleanup.policy", APPEND, "compact")])
    assert error is None
    assert plan.delta.configs_changed["topics/t"] == {"cleanup.policy": "delete,compact"}
    plan, error = changed([ConfigChange("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "delete,compact"})
    assert error is None
    assert plan.delta.configs_changed["topics/t"] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ([ConfigChange("retention.ms", APPEND, "1")], errors.InvalidConfigError),
        ([ConfigChange("retention.ms", SET, "soon")], errors.InvalidConfigError),
        ([ConfigChange("no.such", SET, "1")], errors.InvalidConfigError),
        ([ConfigChange("retention.ms", SET, None)], errors.InvalidRequestError),
        ([ConfigChange("retention.ms", 9, "1")], errors.InvalidRequestError),
        ([ConfigChange("", SET, "1")], errors.InvalidRequestError),
        ([ConfigChange("retention.ms", SET, "1"), ConfigChange("retention.ms", DELETE)], errors.InvalidRequestError),
    ],
)
def test_refused_changes(change: list[ConfigChange], error: type[ProtocolError]) -> None:
    plan, refused = changed(change)
    assert isinstance(refused, error)
    assert plan.delta.empty


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (ConfigResource(2, "no"), errors.UnknownTopicOrPartitionError),
        (ConfigResource(2, ""), errors.InvalidRequestError),
        (ConfigResource(2, "a/b"), errors.InvalidTopicError),
        (ConfigResource(4, "x"), errors.InvalidRequestError),
        (ConfigResource(4, "9"), errors.InvalidRequestError),
        (ConfigResource(8, "1"), errors.InvalidRequestError),
        (ConfigResource(32, ""), errors.InvalidRequestError),
        (ConfigResource(77, "t"), errors.InvalidRequestError),
    ],
)
def test_refused_resources(resource: ConfigResource, error: type[ProtocolError]) -> None:
    _, refused = changed([ConfigChange("retention.ms", SET, "1")], resource=resource)
    assert isinstance(refused, error)


def test_alter_replaces_everything() -> None:
    start = context(topic("t"), configs={"topics/t": {"flush.ms": "3"}})
    plan, (result,) = alter(start, [FullConfig(TOPIC, (("retention.ms", "7"),))], False)
    assert result.error is None
    assert plan.delta.configs_changed == {"topics/t": {"retention.ms": "7"}}
    assert start.image.apply(alter(start, [FullConfig(TOPIC, ())], False)[0].delta).topic_config("t") == {}
    _, (result,) = alter(start, [FullConfig(TOPIC, (("retention.ms", None),))], False)
    assert isinstance(result.error, errors.InvalidRequestError)


def test_broker_settings_that_may_change_and_those_that_may_not() -> None:
    plan, error = changed([ConfigChange("log.retention.ms", SET, "99")], resource=BROKER)
    assert error is None
    assert plan.delta.configs_changed == {"brokers/1": {"log.retention.ms": "99"}}
    plan, error = changed([ConfigChange("log.retention.ms", SET, "99")], resource=EVERY_BROKER)
    assert error is None
    assert plan.delta.configs_changed == {"brokers/<default>": {"log.retention.ms": "99"}}
    _, error = changed([ConfigChange("log.dirs", SET, "/x")], resource=BROKER)
    assert isinstance(error, errors.InvalidRequestError)


def test_a_protecting_setting_without_effect_is_refused_with_the_reason() -> None:
    change = ("principal.builder.class", "com.example.Principals")
    plan, error = changed([ConfigChange(change[0], SET, change[1])], resource=BROKER)
    assert isinstance(error, errors.InvalidConfigError)
    assert str(error.message).startswith("principal.builder.class has no effect (")
    assert plan.delta.empty
    _, (result,) = alter(context(topic("t")), [FullConfig(BROKER, (change,))], False)
    assert isinstance(result.error, errors.InvalidConfigError)


@pytest.mark.parametrize("resource", [BROKER, EVERY_BROKER])
def test_a_topics_setting_is_refused_for_brokers(resource: ConfigResource) -> None:
    _, error = changed([ConfigChange("retention.ms", SET, "5000")], resource=resource)
    assert isinstance(error, errors.InvalidRequestError)
    whole = FullConfig(resource, (("retention.ms", "5000"),))
    _, (result,) = alter(context(topic("t")), [whole], False)
    assert isinstance(result.error, errors.InvalidRequestError)


def test_validate_only_and_a_resource_named_twice() -> None:
    start = context(topic("t"))
    change = ConfigChanges(TOPIC, (ConfigChange("retention.ms", SET, "7"),))
    plan, (result,) = alter_incrementally(start, [change], True)
    assert (result.error, list(plan.steps)) == (None, [])
    _, results = alter_incrementally(start, [change, change], False)
    assert all(isinstance(each.error, errors.InvalidRequestError) for each in results)


def test_a_group_sets_its_own_whether_it_exists_or_not() -> None:
    plan, error = changed([ConfigChange(SESSION, SET, "50000")], resource=GROUP)
    assert error is None
    assert plan.delta.configs_changed == {"groups/a%2Fb": {SESSION: "50000"}}
    put, notice = plan.steps
    assert put == Put("/config/groups/a%2Fb", b'{"version":1,"config":{"consumer.session.timeout.ms":"50000"}}')
    assert notice == Create(
        "/config/changes/config_change_", b'{"version":2,"entity_path":"groups/a%2Fb"}', sequential=True
    )


def test_a_group_without_overrides_leaves_nothing_in_the_store() -> None:
    start = context(configs={"groups/a%2Fb": {SESSION: "50000"}})
    plan, (result,) = alter_incrementally(start, [ConfigChanges(GROUP, (ConfigChange(SESSION, DELETE),))], False)
    assert result.error is None
    assert plan.steps[0] == Remove("/config/groups/a%2Fb")
    assert start.image.apply(plan.delta).group_config("a/b") == {}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (ConfigChange(SESSION, SET, "44999"), errors.InvalidConfigError),
        (ConfigChange(SESSION, APPEND, "50000"), errors.InvalidConfigError),
        (ConfigChange("share.session.timeout.ms", SET, "50000"), errors.InvalidConfigError),
        (ConfigChange(SESSION, SET, None), errors.InvalidRequestError),
    ],
)
def test_refused_changes_of_groups(change: ConfigChange, error: type[ProtocolError]) -> None:
    plan, refused = changed([change], resource=GROUP)
    assert isinstance(refused, error)
    assert plan.delta.empty


def test_a_groups_bounds_are_those_of_the_broker() -> None:
    start = context(settings={"group.consumer.min.session.timeout.ms": "1000"})
    wanted = FullConfig(GROUP, ((SESSION, "5001"), (HEARTBEAT, "5000")))
    plan, (result,) = alter(start, [wanted], False)
    assert result.error is None
    assert plan.delta.configs_changed == {"groups/a%2Fb": {SESSION: "5001", HEARTBEAT: "5000"}}
