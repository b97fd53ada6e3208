import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer whose broker says whether it pulls or pops (clientRebalance=false). It prints what it consumes, and leaves when
 * its standard input ends. The first attempt of each body that ends with 7 fails.
 *
 * Popper TOPIC GROUP INSTANCE
 */
public class Popper {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(System.getProperty("rocketmq.namesrv.addr"));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName(args[2]);
        consumer.setMqClientApiTimeout(60000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopBatchNums(8);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(args[0], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            ConsumeConcurrentlyStatus status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            for (MessageExt message : messages) {
                String body = new String(message.getBody());
                if (body.endsWith("7") && message.getReconsumeTimes() == 0) {
                    say("failed " + body + " " + message.getReconsumeTimes());
                    status = ConsumeConcurrentlyStatus.RECONSUME_LATER;
                } else {
                    say("got " + body + " " + message.getReconsumeTimes());
                }
            }
            return status;
        });
        consumer.start();
        say("running");
        while (System.in.read() >= 0) {
            Thread.sleep(10);
        }
        consumer.shutdown();
        say("left");
        System.exit(0);
    }

    static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
