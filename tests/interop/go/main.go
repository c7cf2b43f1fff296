// Scenarios by franz-go: one line of outcome each, "name PASS" or "name FAIL why".
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

var bootstrap string

type scenario struct {
	name string
	run  func(name string)
}

func main() {
	bootstrap = os.Args[1]
	wanted := map[string]bool{}
	for _, name := range os.Args[2:] {
		wanted[name] = true
	}
	planned := append(append(groupScenarios(), transactionScenarios()...), adminScenarios()...)
	var running sync.WaitGroup
	slots := make(chan struct{}, 4)
	var speaking sync.Mutex
	for _, each := range planned {
		if len(wanted) > 0 && !wanted[each.name] {
			continue
		}
		running.Add(1)
		go func() {
			defer running.Done()
			slots <- struct{}{}
			outcome := attempt(each)
			<-slots
			speaking.Lock()
			defer speaking.Unlock()
			fmt.Println(each.name, outcome)
		}()
	}
	running.Wait()
}

type failure struct{ why string }

func attempt(each scenario) (outcome string) {
	defer func() {
		switch thrown := recover().(type) {
		case nil:
			outcome = "PASS"
		case failure:
			outcome = "FAIL " + strings.ReplaceAll(thrown.why, "\n", " ")
		default:
			panic(thrown)
		}
	}()
	each.run(fmt.Sprintf("go-%s-%d", each.name, time.Now().UnixNano()))
	return
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(failure{fmt.Sprintf(format, arguments...)})
	}
}

func ok(err error, what string) {
	check(err == nil, "%s: %v", what, err)
}

func same(expected, actual any, what string) {
	check(reflect.DeepEqual(expected, actual), "%s: expected %v but was %v", what, expected, actual)
}

func eventually(what string, condition func() bool) {
	deadline := time.Now().Add(patience)
	for !condition() {
		check(time.Now().Before(deadline), "never came true: %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	ok(err, "client")
	return made
}

func createTopic(name string, partitions int32) {
	connected := client()
	defer connected.Close()
	ctx, done := soon()
	defer done()
	_, err := kadm.NewClient(connected).CreateTopic(ctx, partitions, 1, nil, name)
	ok(err, "create "+name)
}

// fill writes "0", "1", … to every partition.
func fill(topic string, partitions, count int) {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	ctx, done := soon()
	defer done()
	for number := 0; number < count; number++ {
		for partition := 0; partition < partitions; partition++ {
			producer.Produce(ctx, record(topic, partition, fmt.Sprint(number)), func(_ *kgo.Record, err error) {
				if err != nil {
					fmt.Fprintln(os.Stderr, "produce:", err)
				}
			})
		}
	}
	ok(producer.Flush(ctx), "flush")
}

func record(topic string, partition int, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: int32(partition), Key: []byte("k"), Value: []byte(value)}
}

// committed waits until `count` committed values of the partition are there, and a moment for one too many.
func committed(topic string, partition int32, count int) []string {
	reader := client(
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
	)
	defer reader.Close()
	values := []string{}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		wait := time.Second
		if len(values) < count {
			wait = time.Until(deadline)
		}
		ctx, done := context.WithTimeout(context.Background(), wait)
		fetches := reader.PollFetches(ctx)
		done()
		fetches.EachRecord(func(each *kgo.Record) { values = append(values, string(each.Value)) })
		if fetches.NumRecords() == 0 && len(values) >= count {
			break
		}
	}
	return values
}

func sorted(values []string) []string {
	sort.Strings(values)
	return values
}
