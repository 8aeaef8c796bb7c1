// A KafkaJS program for test_foreign_clients.py: `produce`, `transact` or `consume`; lines of JSON on stdout.
// With TEST_USER, TEST_PASSWORD and TEST_TRUST (a PEM file) it logs in by SCRAM-SHA-512 over TLS.
const { Kafka, logLevel } = require('kafkajs')
const [mode, bootstrap, topic, count, group] = process.argv.slice(2)
const { TEST_USER: username, TEST_PASSWORD: password, TEST_TRUST: trust } = process.env
const login = username ? {
  ssl: { ca: [require('fs').readFileSync(trust, 'utf8')] }, sasl: { mechanism: 'scram-sha-512', username, password },
} : {}
const kafka = new Kafka({
  ...login,
  clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 60 },
})
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  process.stderr.write('connected\n')
  for (let i = 0; i < count; i++) {
    const [{ partition, baseOffset }] = await producer.send({ topic, acks: -1, messages: [{ value: `js-${i}`, partition: i % 3 }] })
    say({ value: `js-${i}`, partition, offset: Number(baseOffset) })
  }
  await producer.disconnect()
}

async function transact() {
  const producer = kafka.producer({ transactionalId: 'kafkajs', idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let i = 0; i < count; i++) {
    const transaction = await producer.transaction()
    if (i === 0) process.stderr.write('connected\n')
    // One partition a send: KafkaJS (2.2, sendMessages.js) forgets the messages of a partition whose leader dies in the middle of
    // a send if its next leader has already answered for another partition of the same send.
    for (const partition of [0, 1, 2]) {
      await transaction.send({ topic, messages: [{ value: `js-${i}-${partition}`, partition }] })
    }
    if (i % 2) await transaction.abort()
    else await transaction.commit()
  }
  await producer.disconnect()
}

async function consume() {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000, readUncommitted: false })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let seen = 0
  await new Promise((resolve) => consumer.run({
    eachMessage: async ({ message, partition }) => {
      say({ value: message.value.toString(), partition, offset: Number(message.offset) })
      if (++seen >= Number(count)) resolve()
    },
  }))
  await consumer.disconnect()
}

({ produce, transact, consume })[mode]().then(() => process.exit(0), (problem) => { console.error(problem); process.exit(1) })
