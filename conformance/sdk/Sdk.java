import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Acts with the official Java client: prints the flaws of each act as a line of JSON. */
public class Sdk {
    static final String NORMAL = "SdkNormal", FIFO = "SdkFifo", DELAY = "SdkDelay", TRANSACTION = "SdkTransaction";
    static final Duration WAIT = Duration.ofSeconds(40);
    static final Duration POLL = Duration.ofSeconds(5);
    static final Duration LEASE = Duration.ofSeconds(20);
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    interface Act {
        List<String> play() throws Exception;
    }

    final ClientConfiguration configuration;

    Sdk(String endpoint) {
        configuration = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
    }

    static String group(String word) {
        return "SdkJava" + word;
    }

    Producer producer(String... topics) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topics)
            .setTransactionChecker(view -> TransactionResolution.COMMIT).build();
    }

    SimpleConsumer simple(String word, String topic, FilterExpression expression) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group(word))
            .setAwaitDuration(POLL).setSubscriptionExpressions(Map.of(topic, expression)).build();
    }

    PushConsumer push(String word, String topic, MessageListener listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group(word))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).setMessageListener(listener).build();
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Receives until all of these bodies are there, or the time is over. */
    static List<MessageView> receive(SimpleConsumer consumer, Set<String> bodies, boolean acks, Duration lease)
        throws Exception {
        List<MessageView> found = new ArrayList<>();
        Set<String> missing = new TreeSet<>(bodies);
        long until = System.nanoTime() + WAIT.toNanos();
        while (!missing.isEmpty() && System.nanoTime() < until) {
            for (MessageView one : consumer.receive(32, lease)) {
                if (acks) {
                    consumer.ack(one);
                }
                if (bodies.contains(body(one))) {
                    found.add(one);
                    missing.remove(body(one));
                }
            }
        }
        return found;
    }

    static List<String> bodies(Collection<MessageView> views) {
        List<String> bodies = new ArrayList<>();
        views.forEach(view -> bodies.add(body(view)));
        bodies.sort(null);
        return bodies;
    }

    static void same(List<String> flaws, String what, Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            flaws.add(what + " is " + found + " instead of " + wanted);
        }
    }

    List<String> properties() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (Producer producer = producer(NORMAL);
            SimpleConsumer consumer = simple("A", NORMAL, FilterExpression.SUB_ALL)) {
            Message sent = message(NORMAL, "properties").setTag("red").setKeys("k1", "k2")
                .addProperty("colour", "blue").build();
            SendReceipt receipt = producer.send(sent);
            List<MessageView> found = receive(consumer, Set.of("properties"), true, LEASE);
            if (found.isEmpty()) {
                return List.of("the message was not received");
            }
            MessageView one = found.get(0);
            same(flaws, "tag", one.getTag().orElse(""), "red");
            same(flaws, "keys", new TreeSet<>(one.getKeys()), new TreeSet<>(Set.of("k1", "k2")));
            same(flaws, "properties", one.getProperties(), Map.of("colour", "blue"));
            same(flaws, "id", one.getMessageId().toString(), receipt.getMessageId().toString());
            same(flaws, "attempt", one.getDeliveryAttempt(), 1);
        }
        return flaws;
    }

    List<String> filters() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (Producer producer = producer(NORMAL);
            SimpleConsumer byTag = simple("B", NORMAL, new FilterExpression("red || blue"));
            SimpleConsumer bySql = simple("C", NORMAL, new FilterExpression("size > 3", FilterExpressionType.SQL92))) {
            for (String[] one : new String[][] {{"red", "1"}, {"green", "5"}, {"blue", "9"}}) {
                producer.send(message(NORMAL, "filter " + one[0]).setTag(one[0]).addProperty("size", one[1]).build());
            }
            same(flaws, "by tag", bodies(receive(byTag, Set.of("filter red", "filter blue"), true, LEASE)),
                List.of("filter blue", "filter red"));
            same(flaws, "by SQL", bodies(receive(bySql, Set.of("filter green", "filter blue"), true, LEASE)),
                List.of("filter blue", "filter green"));
        }
        return flaws;
    }

    List<String> returning() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (Producer producer = producer(NORMAL);
            SimpleConsumer consumer = simple("D", NORMAL, FilterExpression.SUB_ALL)) {
            producer.send(message(NORMAL, "returning").build());
            Duration lease = Duration.ofSeconds(10);
            List<MessageView> first = receive(consumer, Set.of("returning"), false, lease);
            List<MessageView> second = receive(consumer, Set.of("returning"), false, LEASE);
            if (first.isEmpty() || second.isEmpty()) {
                return List.of("the message was not received twice");
            }
            consumer.changeInvisibleDuration(second.get(0), Duration.ofSeconds(30));
            consumer.ack(second.get(0));
            same(flaws, "attempt", second.get(0).getDeliveryAttempt(), 2);
            same(flaws, "id", second.get(0).getMessageId(), first.get(0).getMessageId());
        }
        return flaws;
    }

    List<String> failingPush() throws Exception {
        List<String> flaws = new ArrayList<>();
        BlockingQueue<Integer> attempts = new LinkedBlockingQueue<>();
        MessageListener listener = view -> {
            if (!body(view).equals("failing")) {
                return ConsumeResult.SUCCESS;
            }
            attempts.add(view.getDeliveryAttempt());
            return view.getDeliveryAttempt() > 1 ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
        };
        try (Producer producer = producer(NORMAL); PushConsumer consumer = push("E", NORMAL, listener)) {
            producer.send(message(NORMAL, "failing").build());
            for (int attempt = 1; attempt <= 2; attempt++) {
                same(flaws, "attempt", attempts.poll(WAIT.toSeconds(), TimeUnit.SECONDS), attempt);
            }
        }
        return flaws;
    }

    List<String> fifoPush() throws Exception {
        List<String> flaws = new ArrayList<>();
        BlockingQueue<String> seen = new LinkedBlockingQueue<>();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        MessageListener listener = view -> {
            String body = body(view);
            if (body.equals("fifo 2") && failed.add(body)) {
                return ConsumeResult.FAILURE;
            }
            if (body.startsWith("fifo")) {
                seen.add(body);
            }
            return ConsumeResult.SUCCESS;
        };
        try (Producer producer = producer(FIFO); PushConsumer consumer = push("Fifo", FIFO, listener)) {
            for (int number = 0; number < 6; number++) {
                producer.send(message(FIFO, "fifo " + number).setMessageGroup("order-1").build());
            }
            for (int number = 0; number < 6; number++) {
                same(flaws, "next", seen.poll(WAIT.toSeconds(), TimeUnit.SECONDS), "fifo " + number);
            }
        }
        return flaws;
    }

    List<String> delayed() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (Producer producer = producer(DELAY);
            SimpleConsumer consumer = simple("F", DELAY, FilterExpression.SUB_ALL)) {
            long due = System.currentTimeMillis() + 6_000;
            SendReceipt recalled = producer.send(message(DELAY, "recalled").setDeliveryTimestamp(due).build());
            producer.send(message(DELAY, "delayed").setDeliveryTimestamp(due).build());
            producer.recallMessage(DELAY, recalled.getRecallHandle());
            List<String> found = bodies(receive(consumer, Set.of("delayed"), true, LEASE));
            same(flaws, "early", System.currentTimeMillis() < due - 1_000, false);
            same(flaws, "bodies", found, List.of("delayed"));
            same(flaws, "recalled", bodies(consumer.receive(32, LEASE)), List.of());
        }
        return flaws;
    }

    List<String> transactions() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (Producer producer = producer(TRANSACTION);
            SimpleConsumer consumer = simple("G", TRANSACTION, FilterExpression.SUB_ALL)) {
            Transaction committed = producer.beginTransaction();
            producer.send(message(TRANSACTION, "committed").build(), committed);
            committed.commit();
            Transaction rolledBack = producer.beginTransaction();
            producer.send(message(TRANSACTION, "rolled back").build(), rolledBack);
            rolledBack.rollback();
            producer.send(message(TRANSACTION, "checked").build(), producer.beginTransaction());
            List<MessageView> found = receive(consumer, Set.of("committed", "checked"), true, LEASE);
            // Apache's broker may check a transaction that is just committed, and deliver it twice.
            same(flaws, "bodies", new TreeSet<>(bodies(found)), new TreeSet<>(Set.of("checked", "committed")));
            same(flaws, "rolled back", bodies(consumer.receive(32, LEASE)).contains("rolled back"), false);
        }
        return flaws;
    }

    List<String> refusals() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (Producer producer = producer(NORMAL)) {
            for (String topic : List.of(DELAY, "SdkUnknown")) {
                try {
                    producer.send(message(topic, "wrong").build());
                    flaws.add("topic " + topic + " accepted the message");
                } catch (Exception refused) {
                    continue;
                }
            }
        }
        return flaws;
    }

    List<String> emptyReceive() throws Exception {
        List<String> flaws = new ArrayList<>();
        try (SimpleConsumer consumer = simple("H", DELAY, FilterExpression.SUB_ALL)) {
            consumer.receive(32, LEASE);
            long began = System.nanoTime();
            same(flaws, "messages", bodies(consumer.receive(32, LEASE)), List.of());
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
            if (took < 4_000 || took > 8_000) {
                flaws.add("it took " + took + " ms");
            }
        }
        return flaws;
    }

    static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                quoted.append('\\').append(one);
            } else {
                quoted.append(one < ' ' ? ' ' : one);
            }
        }
        return quoted.append('"').toString();
    }

    public static void main(String[] arguments) {
        Sdk sdk = new Sdk(arguments[0]);
        Map<String, Act> acts = new LinkedHashMap<>();
        acts.put("properties, keys and ids of a message", sdk::properties);
        acts.put("filters by tag and SQL", sdk::filters);
        acts.put("a message returns, its lease is changed, and it is acknowledged", sdk::returning);
        acts.put("a push consumer gets a failed message again", sdk::failingPush);
        acts.put("a push consumer of a FIFO group keeps the order", sdk::fifoPush);
        acts.put("delayed and recalled messages", sdk::delayed);
        acts.put("transactions: commit, rollback, check-back", sdk::transactions);
        acts.put("a wrong type and an unknown topic are refused", sdk::refusals);
        acts.put("a receive without messages waits", sdk::emptyReceive);
        acts.forEach((check, act) -> {
            List<String> flaws;
            try {
                flaws = act.play();
            } catch (Exception failure) {
                flaws = List.of(failure.toString());
            }
            List<String> shown = new ArrayList<>();
            flaws.forEach(flaw -> shown.add(quoted(flaw)));
            System.out.println("{\"check\":" + quoted(check) + ",\"flaws\":[" + String.join(",", shown) + "]}");
            System.out.flush();
        });
        System.exit(0);
    }
}
