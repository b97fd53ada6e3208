'use strict';

// The Node client of RocketMQ as a guest: it sends and consumes as it is told, and prints what happens as JSON, line by line.
//
//     guest.js NAMESRV send TOPIC
//     guest.js NAMESRV consume TOPIC GROUP FILTER MODE    until standard input ends; MODE: plain, broadcast, retry or dead

const { Consumer, Producer, Message } = require('ali-ons');

const [ nameSrv, command, topic, group, filter, mode ] = process.argv.slice(2);
const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const common = { httpclient: {}, nameSrv, logger: quiet, instanceName: String(process.pid) };

function say(what, value) {
  console.log(JSON.stringify({ [what]: value }));
}

async function send() {
  const producer = new Producer({ ...common, producerGroup: 'PG_guest', sendMsgTimeout: 20000 });
  await producer.ready();
  const one = async message => {
    const sent = await producer.send(message);
    say('sent', { status: sent.sendStatus === 'SEND_OK' ? 0 : 1, id: sent.msgId, offset: sent.queueOffset, queue: sent.messageQueue.queueId });
  };
  await one(new Message(topic, 'plain'));
  const rich = new Message(topic, 'TagA', 'rich');
  rich.keys = [ 'k1', 'k2' ];
  rich.properties.colour = 'red';
  await one(rich);
  const delayed = new Message(topic, 'delayed');
  delayed.delayTimeLevel = 1;
  await one(delayed);
  await one(new Message(topic, 'z'.repeat(8192)));
  await producer.close();
  say('done', true);
}

async function consume() {
  const consumer = new Consumer({
    ...common,
    consumerGroup: group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    isBroadcast: mode === 'broadcast',
    maxReconsumeTimes: mode === 'dead' ? 1 : 16,
  });
  consumer.subscribe(topic, filter, async message => {
    say('got', {
      body: String(message.body), tags: message.tags, keys: message.keys, colour: message.properties.colour || '',
      id: message.msgId, queue: message.queueId, offset: Number(message.queueOffset), tries: message.reconsumeTimes,
    });
    if (mode === 'dead' || (mode === 'retry' && message.reconsumeTimes === 0)) {
      throw new Error('not now');
    }
  });
  consumer.on('error', () => {});
  await consumer.ready();
  say('running', true);
  process.stdin.on('end', async () => {
    await consumer.close();
    process.exit(0);
  });
  process.stdin.resume();
}

(command === 'send' ? send() : consume()).then(
  () => command === 'send' && process.exit(0),
  error => {
    say('failed', error.stack);
    process.exit(1);
  });
