package main

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func adminScenarios() []scenario {
	return []scenario{{"admin-groups", adminGroups}, {"admin-transactions", adminTransactions}}
}

func adminGroups(name string) {
	createTopic(name, 2)
	fill(name, 2, 10)
	ctx, done := soon()
	defer done()
	connected := client()
	defer connected.Close()
	admin := kadm.NewClient(connected)
	owned := &ownership{owners: map[int32]string{}}
	one := join("one", name, name, owned)
	eventually("all is read", func() bool { return one.count() == 20 })
	ok(one.client.CommitUncommittedOffsets(ctx), "commit")

	listed, err := admin.ListGroups(ctx)
	ok(err, "list")
	same("consumer", listed[name].ProtocolType, "protocol type")
	listed, err = admin.ListGroups(ctx, "Stable")
	ok(err, "list stable")
	_, found := listed[name]
	check(found, "stable among %v", listed.Groups())
	listed, err = admin.ListGroups(ctx, "Empty")
	ok(err, "list empty")
	_, found = listed[name]
	check(!found, "not empty")

	described, err := admin.DescribeGroups(ctx, name, name+"-unknown")
	ok(err, "describe")
	same("Stable", described[name].State, "state")
	same("cooperative-sticky", described[name].Protocol, "protocol")
	same(1, len(described[name].Members), "members")
	same("one", described[name].Members[0].ClientID, "client id")
	same("Dead", described[name+"-unknown"].State, "unknown")
	lags, err := admin.Lag(ctx, name)
	ok(err, "lag")
	same(int64(0), lags[name].Lag.Total(), "lag")

	_, err = admin.DeleteGroup(ctx, name)
	check(errors.Is(err, kerr.NonEmptyGroup), "delete with members: %v", err)
	one.leave()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: name, Partition: 1, At: 4, LeaderEpoch: -1, Metadata: "set"})
	ok(admin.CommitAllOffsets(ctx, name, offsets), "commit for it")
	fetched, err := admin.FetchOffsets(ctx, name)
	ok(err, "fetch offsets")
	at, _ := fetched.Lookup(name, 1)
	same(int64(4), at.At, "offset")
	same("set", at.Metadata, "metadata")
	at, _ = fetched.Lookup(name, 0)
	same(int64(10), at.At, "offset of the other")
	deleted, err := admin.DeleteOffsets(ctx, name, kadm.TopicsSet{name: {0: {}}})
	ok(err, "delete offsets")
	ok(deleted.Error(), "delete offsets")
	_, err = admin.DeleteGroup(ctx, name)
	ok(err, "delete")
	_, err = admin.DeleteGroup(ctx, name)
	check(errors.Is(err, kerr.GroupIDNotFound), "delete again: %v", err)
}

func adminTransactions(name string) {
	createTopic(name, 1)
	ctx, done := soon()
	defer done()
	connected := client()
	defer connected.Close()
	admin := kadm.NewClient(connected)
	producer := transactional(name)
	defer producer.Close()
	ok(producer.BeginTransaction(), "begin")
	ok(producer.ProduceSync(ctx, record(name, 0, "v")).FirstErr(), "produce")
	listed, err := admin.ListTransactions(ctx, nil, []string{"Ongoing"})
	ok(err, "list")
	check(listed[name].State == "Ongoing", "listed: %v", listed)
	described, err := admin.DescribeTransactions(ctx, name)
	ok(err, "describe")
	same("Ongoing", described[name].State, "state")
	check(described[name].Topics.Lookup(name, 0), "topics: %v", described[name].Topics)
	producers, err := admin.DescribeProducers(ctx, kadm.TopicsSet{name: {0: {}}})
	ok(err, "producers")
	same(1, len(producers[name].Partitions[0].ActiveProducers), "active producers")
	ok(producer.EndTransaction(ctx, kgo.TryCommit), "commit")
	eventually("it is over", func() bool {
		described, err = admin.DescribeTransactions(ctx, name)
		ok(err, "describe")
		return described[name].State == "CompleteCommit"
	})
	described, _ = admin.DescribeTransactions(ctx, name+"-unknown")
	check(errors.Is(described[name+"-unknown"].Err, kerr.TransactionalIDNotFound), "unknown: %v", described)
}
