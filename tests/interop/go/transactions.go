package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func transactionScenarios() []scenario {
	return []scenario{
		{"commit-and-abort", commitAndAbort},
		{"fencing", fencing},
		{"transact-session", transactSession},
		{"transact-sessions-rebalance", transactSessionsRebalance},
	}
}

func transactional(id string, options ...kgo.Opt) *kgo.Client {
	return client(append([]kgo.Opt{
		kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, options...)...)
}

func commitAndAbort(name string) {
	createTopic(name, 2)
	producer := transactional(name)
	defer producer.Close()
	ctx, done := soon()
	defer done()
	kept := []string{}
	for number := 0; number < 9; number++ {
		ok(producer.BeginTransaction(), "begin")
		value := fmt.Sprint("v", number)
		for partition := 0; partition < 2; partition++ {
			ok(producer.ProduceSync(ctx, record(name, partition, value)).FirstErr(), "produce")
		}
		if number%3 == 1 {
			ok(producer.EndTransaction(ctx, kgo.TryAbort), "abort")
		} else {
			ok(producer.EndTransaction(ctx, kgo.TryCommit), "commit")
			kept = append(kept, value)
		}
	}
	for partition := int32(0); partition < 2; partition++ {
		same(kept, committed(name, partition, len(kept)), "committed")
	}
}

func fencing(name string) {
	createTopic(name, 1)
	ctx, done := soon()
	defer done()
	old := transactional(name)
	defer old.Close()
	ok(old.BeginTransaction(), "begin")
	ok(old.ProduceSync(ctx, record(name, 0, "lost")).FirstErr(), "produce")
	young := transactional(name)
	defer young.Close()
	ok(young.BeginTransaction(), "begin")
	ok(young.ProduceSync(ctx, record(name, 0, "kept")).FirstErr(), "produce")
	err := old.EndTransaction(ctx, kgo.TryCommit)
	check(errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch), "the zombie's commit: %v", err)
	ok(young.EndTransaction(ctx, kgo.TryCommit), "commit")
	same([]string{"kept"}, committed(name, 0, 1), "values")
}

// transform moves records from one topic to the other until `enough` says so; every nth attempt is taken back.
func transform(name string, session *kgo.GroupTransactSession, abortEvery int, moved *atomic.Int64, enough func() bool) error {
	attempt := 0
	for !enough() {
		ctx, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := session.PollRecords(ctx, 10)
		done()
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		var failed kgo.FirstErrPromise
		fetches.EachRecord(func(each *kgo.Record) {
			out := record(name+"-out", int(each.Partition), "out "+string(each.Value))
			session.Produce(context.Background(), out, failed.Promise())
		})
		attempt++
		commit := failed.Err() == nil && (abortEvery == 0 || attempt%abortEvery != 0)
		ctx, done = soon()
		did, err := session.End(ctx, kgo.TransactionEndTry(commit))
		done()
		if err != nil {
			return err
		}
		if did {
			moved.Add(int64(fetches.NumRecords()))
		}
	}
	return nil
}

func session(name string, number int) *kgo.GroupTransactSession {
	made, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(fmt.Sprint(name, "-", number)), kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(name), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	ok(err, "session")
	return made
}

func expected(count int) []string {
	values := []string{}
	for number := 0; number < count; number++ {
		values = append(values, fmt.Sprint("out ", number))
	}
	return values
}

func transactSession(name string) {
	createTopic(name, 2)
	createTopic(name+"-out", 2)
	fill(name, 2, 60)
	var moved atomic.Int64
	only := session(name, 0)
	defer only.Close()
	ok(transform(name, only, 3, &moved, func() bool { return moved.Load() >= 120 }), "loop")
	for partition := int32(0); partition < 2; partition++ {
		same(expected(60), committed(name+"-out", partition, 60), "output")
	}
}

// transactSessionsRebalance lets sessions come and go while they work; the output is still the input, once.
func transactSessionsRebalance(name string) {
	const partitions, count = 6, 80
	createTopic(name, partitions)
	createTopic(name+"-out", partitions)
	fill(name, partitions, count)
	var moved atomic.Int64
	var working sync.WaitGroup
	failures := make(chan error, 4)
	all := func() bool { return moved.Load() >= partitions*count }
	start := func(number int, enough func() bool) {
		working.Add(1)
		go func() {
			defer working.Done()
			own := session(name, number)
			defer own.Close()
			failures <- transform(name, own, 0, &moved, enough)
		}()
	}
	start(0, all)
	start(1, func() bool { return moved.Load() >= partitions*count/3 })
	eventually("some work is done", func() bool { return moved.Load() > 40 })
	start(2, all)
	working.Wait()
	close(failures)
	for err := range failures {
		ok(err, "loop")
	}
	for partition := int32(0); partition < partitions; partition++ {
		same(sorted(expected(count)), sorted(committed(name+"-out", partition, count)), fmt.Sprint("output of ", partition))
	}
}
