import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends the numbers that come by its standard input, each until it was stored, and consumes them. It prints what was stored and what
 * came, and leaves when its standard input ends.
 *
 * Crossing TOPIC GROUP
 */
public class Crossing {
    public static void main(String[] args) throws Exception {
        String nameServer = System.getProperty("rocketmq.namesrv.addr");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[0], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("got " + new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("P" + args[1]);
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(2000);
        producer.start();
        say("running");
        java.io.BufferedReader told = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = told.readLine(); line != null; line = told.readLine()) {
            Message message = new Message(args[0], line.getBytes(StandardCharsets.UTF_8));
            boolean stored = false;
            while (!stored) {
                try {
                    stored = producer.send(message).getSendStatus() == SendStatus.SEND_OK;
                } catch (Exception again) {
                    Thread.sleep(20);
                }
            }
            say("stored " + line);
        }
        producer.shutdown();
        consumer.shutdown();
        say("left");
        System.exit(0);
    }

    static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
