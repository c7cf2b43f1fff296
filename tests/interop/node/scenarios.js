// Scenarios by kafkajs: one line of outcome each, "name PASS" or "name FAIL why".
'use strict'
const assert = require('node:assert')
const { setTimeout: pause } = require('node:timers/promises')
const { Kafka, logLevel, CompressionTypes, PartitionAssigners } = require('kafkajs')

const PATIENCE_MS = 60_000
const kafka = new Kafka({ brokers: [process.argv[2]], clientId: 'node', logLevel: logLevel.NOTHING, retry: { retries: 8 } })
const wanted = process.argv.slice(3)

async function eventually(what, condition) {
  const deadline = Date.now() + PATIENCE_MS
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `never came true: ${what}`)
    await pause(20)
  }
}

async function fails(pattern, action) {
  try {
    await action()
  } catch (error) {
    assert.match(`${error.type ?? ''} ${error.name} ${error.message}`, pattern)
    return
  }
  assert.fail(`expected a failure like ${pattern}`)
}

async function withAdmin(action) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await action(admin)
  } finally {
    await admin.disconnect()
  }
}

async function createTopic(topic, numPartitions = 1) {
  await withAdmin(async (admin) => {
    await admin.createTopics({ waitForLeaders: false, topics: [{ topic, numPartitions }] })
    // A broker of KRaft learns of the topic a moment after its controller, and kafkajs does not ask again.
    await eventually(`metadata of ${topic}`, () =>
      admin.fetchTopicMetadata({ topics: [topic] }).then(
        ({ topics }) => topics[0].partitions.length === numPartitions,
        () => false,
      ),
    )
  })
}

async function withProducer(options, action) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await action(producer)
  } finally {
    await producer.disconnect()
  }
}

// Writes "0", "1", … to every partition.
async function fill(topic, partitions, count) {
  const messages = []
  for (let number = 0; number < count; number++) {
    for (let partition = 0; partition < partitions; partition++) {
      messages.push({ partition, key: 'k', value: String(number) })
    }
  }
  await withProducer({}, (producer) => producer.send({ topic, messages }))
}

class Member {
  constructor(name, groupId, topic, options = {}) {
    this.name = name
    this.topic = topic
    this.read = []
    this.owned = []
    this.generation = -1
    this.consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, rebalanceTimeout: 10000, ...options })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.owned = payload.memberAssignment[topic] ?? []
      this.memberId = payload.memberId
    })
    this.consumer.on(this.consumer.events.REBALANCING, () => {
      this.owned = []
    })
  }

  async start(options = {}) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topic: this.topic, fromBeginning: true })
    await this.consumer.run({
      eachMessage: async ({ partition, message }) => {
        this.read.push(`${partition}@${message.offset}=${message.value}`)
      },
      ...options,
    })
    return this
  }

  leave() {
    return this.consumer.disconnect()
  }
}

async function settled(partitions, ...members) {
  await eventually(`${members.length} members share ${partitions}`, () => {
    const all = members.flatMap((member) => member.owned)
    return all.length === partitions && new Set(all).size === partitions && members.every((member) => member.owned.length > 0)
  })
}

async function committedValues(topic, count) {
  const reader = await new Member('reader', `${topic}-reader`, topic, { readUncommitted: false }).start()
  await eventually(`${count} committed records`, () => reader.read.length >= count)
  await pause(300) // one too many would come now
  await reader.leave()
  return reader.read.map((line) => line.split('=')[1])
}

const scenarios = {
  async produce(name) {
    await createTopic(name)
    const values = []
    await withProducer({ idempotent: true }, async (producer) => {
      for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
        for (let number = 0; number < 10; number++) {
          values.push(`${compression} ${number}`)
          const messages = [{ key: 'k', value: values.at(-1), headers: { h: 'x' } }]
          const [sent] = await producer.send({ topic: name, acks: -1, compression, messages })
          assert.strictEqual(sent.errorCode, 0)
        }
      }
    })
    assert.deepStrictEqual(await committedValues(name, 20), values)
  },

  async group(name) {
    await createTopic(name, 6)
    await fill(name, 6, 20)
    const a = await new Member('a', name, name).start()
    await settled(6, a)
    await eventually('a reads all', () => new Set(a.read).size === 120)
    const b = await new Member('b', name, name).start()
    await settled(6, a, b)
    const c = await new Member('c', name, name).start()
    await settled(6, a, b, c)
    await b.leave()
    await settled(6, a, c)
    await a.leave()
    await settled(6, c)
    await c.leave()
  },

  async 'eight-at-once'(name) {
    await createTopic(name, 16)
    const members = await Promise.all(Array.from({ length: 8 }, (_, number) => new Member(`m${number}`, name, name).start()))
    await settled(16, ...members)
    await Promise.all(members.map((member) => member.leave()))
  },

  async 'round-robin'(name) {
    await createTopic(name, 4)
    const options = { partitionAssigners: [PartitionAssigners.roundRobin] }
    const a = await new Member('a', name, name, options).start()
    await settled(4, a)
    await a.leave()
  },

  async resume(name) {
    await createTopic(name)
    await fill(name, 1, 30)
    const first = await new Member('first', name, name).start()
    await eventually('all is read', () => first.read.length === 30)
    await first.leave()
    await fill(name, 1, 5)
    const second = await new Member('second', name, name).start()
    await eventually('the rest is read', () => second.read.length >= 5)
    await second.leave()
    assert.deepStrictEqual(second.read.map((line) => line.split('=')[0]), [30, 31, 32, 33, 34].map((at) => `0@${at}`))
  },

  async 'manual-commit'(name) {
    await createTopic(name)
    await fill(name, 1, 10)
    const member = await new Member('a', name, name).start({ autoCommit: false })
    await eventually('all is read', () => member.read.length === 10)
    await member.consumer.commitOffsets([{ topic: name, partition: 0, offset: '7', metadata: 'seven' }])
    await member.leave()
    await withAdmin(async (admin) => {
      const [found] = await admin.fetchOffsets({ groupId: name, topics: [name] })
      assert.deepStrictEqual(found.partitions.map(({ offset, metadata }) => ({ offset, metadata })), [{ offset: '7', metadata: 'seven' }])
    })
  },

  async transactions(name) {
    await createTopic(name)
    const kept = []
    await withProducer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true }, async (producer) => {
      for (let number = 0; number < 7; number++) {
        const transaction = await producer.transaction()
        await transaction.send({ topic: name, messages: [{ value: `v${number}` }] })
        if (number % 3 === 1) {
          await transaction.abort()
        } else {
          await transaction.commit()
          kept.push(`v${number}`)
        }
      }
    })
    assert.deepStrictEqual(await committedValues(name, kept.length), kept)
  },

  async 'exactly-once'(name) {
    await createTopic(name)
    await createTopic(`${name}-out`)
    await fill(name, 1, 60)
    await withProducer({ transactionalId: name, maxInFlightRequests: 1, idempotent: true }, async (producer) => {
      let done = 0
      let attempt = 0
      const member = new Member('a', name, name, { readUncommitted: false })
      await member.start({
        eachMessage: undefined,
        autoCommit: false,
        eachBatchAutoResolve: false,
        eachBatch: async ({ batch, resolveOffset }) => {
          for (let from = 0; from < batch.messages.length; from += 10) {
            const chunk = batch.messages.slice(from, from + 10)
            const next = String(Number(chunk.at(-1).offset) + 1)
            for (const commits of attempt++ % 3 === 0 ? [false, true] : [true]) {
              const transaction = await producer.transaction()
              await transaction.send({ topic: `${name}-out`, messages: chunk.map(({ value }) => ({ value: `out ${value}` })) })
              const topics = [{ topic: name, partitions: [{ partition: batch.partition, offset: next }] }]
              await transaction.sendOffsets({ consumerGroupId: name, topics })
              await (commits ? transaction.commit() : transaction.abort())
            }
            resolveOffset(chunk.at(-1).offset)
            done += chunk.length
          }
        },
      })
      await eventually('all is moved', () => done >= 60)
      await member.leave()
    })
    const expected = Array.from({ length: 60 }, (_, number) => `out ${number}`)
    assert.deepStrictEqual(await committedValues(`${name}-out`, 60), expected)
    await withAdmin(async (admin) => {
      const [found] = await admin.fetchOffsets({ groupId: name, topics: [name] })
      assert.strictEqual(found.partitions[0].offset, '60')
    })
  },

  async 'zombie-producer'(name) {
    await createTopic(name)
    const options = { transactionalId: name, maxInFlightRequests: 1, idempotent: true, retry: { retries: 1 } }
    await withProducer(options, async (old) => {
      const lost = await old.transaction()
      await lost.send({ topic: name, messages: [{ value: 'lost' }] })
      await withProducer(options, async (young) => {
        const kept = await young.transaction()
        await kept.send({ topic: name, messages: [{ value: 'kept' }] })
        await fails(/PRODUCER_FENCED|INVALID_PRODUCER_EPOCH/, () => lost.commit())
        await kept.commit()
      })
    })
    assert.deepStrictEqual(await committedValues(name, 1), ['kept'])
  },

  async 'admin-groups'(name) {
    await createTopic(name, 2)
    await fill(name, 2, 10)
    const member = await new Member('a', name, name).start()
    await settled(2, member)
    await eventually('all is read', () => member.read.length === 20)
    await withAdmin(async (admin) => {
      const { groups } = await admin.listGroups()
      assert.deepStrictEqual(groups.filter(({ groupId }) => groupId === name), [{ groupId: name, protocolType: 'consumer' }])
      const described = (await admin.describeGroups([name])).groups[0]
      assert.strictEqual(described.state, 'Stable')
      assert.strictEqual(described.protocol, 'RoundRobinAssigner')
      assert.deepStrictEqual(described.members.map(({ clientId, memberId }) => [clientId, memberId]), [['node', member.memberId]])
      await fails(/NON_EMPTY_GROUP/, async () => {
        try {
          await admin.deleteGroups([name])
        } catch (error) {
          throw error.groups?.[0]?.error ?? error
        }
      })
      await member.leave()
      await admin.setOffsets({ groupId: name, topic: name, partitions: [{ partition: 1, offset: '3' }] })
      const [found] = await admin.fetchOffsets({ groupId: name, topics: [name] })
      assert.deepStrictEqual(found.partitions.map(({ offset }) => offset).sort(), ['10', '3'])
      await admin.resetOffsets({ groupId: name, topic: name, earliest: true })
      const [reset] = await admin.fetchOffsets({ groupId: name, topics: [name], resolveOffsets: true })
      assert.deepStrictEqual(reset.partitions.map(({ offset }) => offset), ['0', '0'])
      await admin.deleteGroups([name])
      assert.ok(!(await admin.listGroups()).groups.some(({ groupId }) => groupId === name), 'gone')
    })
  },
}

async function attempt(name) {
  try {
    await scenarios[name](`node-${name}-${Date.now()}`)
    console.log(`${name} PASS`)
  } catch (error) {
    console.log(`${name} FAIL ${error.stack}`.replaceAll('\n', ' '))
  }
}

Promise.all(Object.keys(scenarios).filter((name) => wanted.length === 0 || wanted.includes(name)).map(attempt))
  .then(() => process.exit(0))
