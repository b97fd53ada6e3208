import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A member of several groups at once, one for each strategy of sharing queues out. It prints its shares and what it consumes,
 * and leaves when its standard input ends.
 *
 * Member TOPIC INSTANCE BROKER QUEUE,QUEUE,... STRATEGY...
 */
public class Member {
    static final Map<String, String> shares = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        String topic = args[0];
        List<MessageQueue> own = new ArrayList<>();
        for (String id : args[3].split(",")) {
            own.add(new MessageQueue(topic, args[2], Integer.parseInt(id)));
        }
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String strategy : Arrays.copyOfRange(args, 4, args.length)) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("CG_mixed_" + strategy);
            consumer.setNamesrvAddr(System.getProperty("rocketmq.namesrv.addr"));
            consumer.setClientIP("127.0.0.1");
            consumer.setInstanceName(args[1]);
            consumer.setMqClientApiTimeout(60000);
            consumer.setPersistConsumerOffsetInterval(500);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
            consumer.setAllocateMessageQueueStrategy(new Told(topic, strategy, named(strategy, own)));
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    say("got " + strategy + " " + new String(message.getBody()));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        say("running");
        while (System.in.read() >= 0) {
            Thread.sleep(10);
        }
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        say("left");
        System.exit(0);
    }

    static AllocateMessageQueueStrategy named(String strategy, List<MessageQueue> own) {
        switch (strategy) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(own);
                return byConfig;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(Collections.singleton("room"));
                return byRoom;
            default:
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new AllocateMachineRoomNearby.MachineRoomResolver() {
                    public String brokerDeployIn(MessageQueue queue) {
                        return queue.getQueueId() % 2 == 0 ? "even" : "odd";
                    }

                    public String consumerDeployIn(String client) {
                        return client.contains("even") ? "even" : "odd";
                    }
                });
        }
    }

    static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    /** Another strategy, whose results are printed when they change. */
    static class Told implements AllocateMessageQueueStrategy {
        private final String topic;
        private final String label;
        private final AllocateMessageQueueStrategy inner;

        Told(String topic, String label, AllocateMessageQueueStrategy inner) {
            this.topic = topic;
            this.label = label;
            this.inner = inner;
        }

        public List<MessageQueue> allocate(String group, String client, List<MessageQueue> queues, List<String> members) {
            List<MessageQueue> mine = inner.allocate(group, client, queues, members);
            if (queues.get(0).getTopic().equals(topic)) {
                String shown = mine.stream().map(queue -> String.valueOf(queue.getQueueId())).sorted().collect(Collectors.joining(","));
                if (!shown.equals(shares.put(label, shown))) {
                    say("share " + label + " " + shown);
                }
            }
            return mine;
        }

        public String getName() {
            return inner.getName();
        }
    }
}
