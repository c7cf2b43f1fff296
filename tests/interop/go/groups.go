package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func groupScenarios() []scenario {
	return []scenario{
		{"cooperative", func(name string) { joinAndLeave(name, kgo.Balancers(kgo.CooperativeStickyBalancer())) }},
		{"sticky", func(name string) { joinAndLeave(name, kgo.Balancers(kgo.StickyBalancer())) }},
		{"range", func(name string) { joinAndLeave(name, kgo.Balancers(kgo.RangeBalancer())) }},
		{"round-robin", func(name string) { joinAndLeave(name, kgo.Balancers(kgo.RoundRobinBalancer())) }},
		{"server-side", serverSide},
		{"static", staticMember},
		{"resume", resume},
		{"regex", regex},
		{"ten-at-once", tenAtOnce},
	}
}

// ownership notes who holds which partition; two holders at once are a violation.
type ownership struct {
	mutex      sync.Mutex
	owners     map[int32]string
	violations []string
}

func (o *ownership) options(member string) []kgo.Opt {
	give := func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		for _, partitions := range given {
			for _, partition := range partitions {
				if o.owners[partition] == member {
					delete(o.owners, partition)
				}
			}
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			o.mutex.Lock()
			defer o.mutex.Unlock()
			for _, partitions := range taken {
				for _, partition := range partitions {
					if before, held := o.owners[partition]; held && before != member {
						o.violations = append(o.violations, fmt.Sprint(partition, " of ", before, " given to ", member))
					}
					o.owners[partition] = member
				}
			}
		}),
		kgo.OnPartitionsRevoked(give),
		kgo.OnPartitionsLost(give),
	}
}

func (o *ownership) shares() map[string]int {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	shares := map[string]int{}
	for _, member := range o.owners {
		shares[member]++
	}
	return shares
}

type member struct {
	client *kgo.Client
	ended  chan struct{}
	stop   context.CancelFunc
	mutex  sync.Mutex
	read   map[string]int
}

func join(name, group, topic string, owned *ownership, options ...kgo.Opt) *member {
	ctx, stop := context.WithCancel(context.Background())
	all := append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.DisableAutoCommit(), kgo.ClientID(name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, owned.options(name)...)
	joined := &member{client(append(all, options...)...), make(chan struct{}), stop, sync.Mutex{}, map[string]int{}}
	go func() {
		defer close(joined.ended)
		for ctx.Err() == nil {
			joined.client.PollFetches(ctx).EachRecord(func(each *kgo.Record) {
				joined.mutex.Lock()
				defer joined.mutex.Unlock()
				joined.read[fmt.Sprint(each.Partition, "@", each.Offset)]++
			})
		}
	}()
	return joined
}

func (m *member) count() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return len(m.read)
}

func (m *member) leave() {
	m.stop()
	<-m.ended
	m.client.Close()
}

func settled(owned *ownership, partitions int, members ...string) {
	eventually(fmt.Sprint(members, " share ", partitions, ": ", owned.shares()), func() bool {
		shares := owned.shares()
		held := 0
		for _, each := range members {
			if shares[each] < partitions/len(members) {
				return false
			}
			held += shares[each]
		}
		return held == partitions && len(shares) == len(members)
	})
	check(len(owned.violations) == 0, "held twice: %v", owned.violations)
}

func joinAndLeave(name string, options ...kgo.Opt) {
	createTopic(name, 6)
	fill(name, 6, 20)
	owned := &ownership{owners: map[int32]string{}}
	a := join("a", name, name, owned, options...)
	settled(owned, 6, "a")
	eventually("a reads all", func() bool { return a.count() == 120 })
	b := join("b", name, name, owned, options...)
	settled(owned, 6, "a", "b")
	c := join("c", name, name, owned, options...)
	settled(owned, 6, "a", "b", "c")
	b.leave()
	settled(owned, 6, "a", "c")
	a.leave()
	settled(owned, 6, "c")
	c.leave()
}

// serverSide joins by the newer protocol where the broker serves the version that franz-go wants of it.
func serverSide(name string) {
	options := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	joinAndLeave(name, options...)
	ctx, done := soon()
	defer done()
	connected := client()
	defer connected.Close()
	admin := kadm.NewClient(connected)
	versions, err := admin.ApiVersions(ctx)
	ok(err, "versions")
	_, newest, _ := versions.Sorted()[0].KeyVersions(kmsg.ConsumerGroupHeartbeat.Int16())
	owned := &ownership{owners: map[int32]string{}}
	again := join("again", name, name, owned, options...)
	settled(owned, 6, "again")
	listed, err := admin.ListGroupsByType(ctx, []string{"consumer"})
	ok(err, "list")
	_, found := listed[name]
	same(newest >= 1, found, "a group of the newer protocol")
	again.leave()
}

func staticMember(name string) {
	createTopic(name, 4)
	owned := &ownership{owners: map[int32]string{}}
	one := join("one", name, name, owned, kgo.InstanceID("one"))
	two := join("two", name, name, owned, kgo.InstanceID("two"))
	settled(owned, 4, "one", "two")
	_, generation := two.client.GroupMetadata()
	one.leave()
	back := join("one", name, name, owned, kgo.InstanceID("one"))
	settled(owned, 4, "one", "two")
	_, now := two.client.GroupMetadata()
	same(generation, now, "no rebalance when a static member returns")
	back.leave()
	two.leave()
}

func resume(name string) {
	createTopic(name, 2)
	fill(name, 2, 30)
	ctx, done := soon()
	defer done()
	owned := &ownership{owners: map[int32]string{}}
	first := join("first", name, name, owned)
	eventually("all is read", func() bool { return first.count() == 60 })
	ok(first.client.CommitUncommittedOffsets(ctx), "commit")
	first.leave()
	fill(name, 2, 5)
	second := join("second", name, name, owned)
	eventually("the rest is read", func() bool { return second.count() >= 10 })
	second.leave()
	same(10, second.count(), "what was committed is not read again")
}

func regex(name string) {
	createTopic(name+"-a", 2)
	createTopic(name+"-b", 2)
	owned := &ownership{owners: map[int32]string{}}
	one := join("one", name, name+"-[ax]", owned, kgo.ConsumeRegex(), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	settled(owned, 2, "one")
	createTopic(name+"-x", 5)
	settled(owned, 5, "one") // the numbers of both topics, 0 to 4
	one.leave()
}

func tenAtOnce(name string) {
	createTopic(name, 20)
	owned := &ownership{owners: map[int32]string{}}
	members := []*member{}
	names := []string{}
	for number := 0; number < 10; number++ {
		names = append(names, fmt.Sprint("m", number))
		members = append(members, join(names[number], name, name, owned))
	}
	settled(owned, 20, names...)
	var leaving sync.WaitGroup
	for _, each := range members {
		leaving.Add(1)
		go func() {
			defer leaving.Done()
			each.leave()
		}()
	}
	leaving.Wait()
	ctx, done := soon()
	defer done()
	admin := client()
	defer admin.Close()
	described, err := kadm.NewClient(admin).DescribeGroups(ctx, name)
	ok(err, "describe")
	same("Empty", described[name].State, "all left")
}
