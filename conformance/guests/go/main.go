// The Go client of RocketMQ as a guest: it sends, consumes and runs transactions as it is told, and prints what happens as JSON, line by line.
//
//	guest NAMESRV send TOPIC
//	guest NAMESRV transactions TOPIC
//	guest NAMESRV consume TOPIC GROUP FILTER MODE    until standard input ends; MODE: plain, sql, orderly, broadcast, retry or dead
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var printing sync.Mutex

func say(what string, value interface{}) {
	printing.Lock()
	defer printing.Unlock()
	line, _ := json.Marshal(map[string]interface{}{what: value})
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		say("failed", err.Error())
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	servers, topic := primitive.NewPassthroughResolver([]string{os.Args[1]}), os.Args[3]
	switch os.Args[2] {
	case "send":
		send(servers, topic)
	case "transactions":
		transactions(servers, topic)
	case "consume":
		consume(servers, topic, os.Args[4], os.Args[5], os.Args[6])
	}
}

func send(servers primitive.NsResolver, topic string) {
	made, err := rocketmq.NewProducer(
		producer.WithNsResolver(servers), producer.WithGroupName("PG_guest"), producer.WithRetry(2),
		producer.WithSendMsgTimeout(20*time.Second), producer.WithQueueSelector(producer.NewHashQueueSelector()),
	)
	must(err)
	must(made.Start())
	one := func(message *primitive.Message) {
		sent, err := made.SendSync(context.Background(), message)
		must(err)
		say("sent", map[string]interface{}{
			"status": int(sent.Status), "id": sent.MsgID, "offset": sent.QueueOffset, "queue": sent.MessageQueue.QueueId,
		})
	}
	one(primitive.NewMessage(topic, []byte("plain")))
	rich := primitive.NewMessage(topic, []byte("rich"))
	rich.WithTag("TagA")
	rich.WithKeys([]string{"k1", "k2"})
	rich.WithProperty("colour", "red")
	one(rich)
	delayed := primitive.NewMessage(topic, []byte("delayed"))
	delayed.WithDelayTimeLevel(1)
	one(delayed)
	for number := 0; number < 5; number++ {
		ordered := primitive.NewMessage(topic, []byte(fmt.Sprintf("ordered%d", number)))
		ordered.WithShardingKey("customer-7")
		one(ordered)
	}
	batch := []*primitive.Message{}
	for number := 0; number < 3; number++ {
		batch = append(batch, primitive.NewMessage(topic, []byte(fmt.Sprintf("batch%d", number))))
	}
	_, err = made.SendSync(context.Background(), batch...)
	must(err)
	big := make([]byte, 8192)
	for at := range big {
		big[at] = 'z'
	}
	one(primitive.NewMessage(topic, big))
	must(made.SendOneWay(context.Background(), primitive.NewMessage(topic, []byte("one-way"))))
	time.Sleep(time.Second)
	must(made.Shutdown())
	say("done", true)
}

type notary struct{}

func (notary) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (notary) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	say("asked", string(message.Body))
	if string(message.Body) == "later-commit" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func transactions(servers primitive.NsResolver, topic string) {
	made, err := rocketmq.NewTransactionProducer(
		notary{}, producer.WithNsResolver(servers), producer.WithGroupName("PG_guest_tx"), producer.WithSendMsgTimeout(20*time.Second),
	)
	must(err)
	must(made.Start())
	for _, body := range []string{"commit", "rollback", "later-commit", "later-rollback"} {
		sent, err := made.SendMessageInTransaction(context.Background(), primitive.NewMessage(topic, []byte(body)))
		must(err)
		say("sent", map[string]interface{}{"status": int(sent.Status), "id": sent.MsgID})
	}
	say("running", true)
	io.Copy(io.Discard, os.Stdin)
	must(made.Shutdown())
}

func consume(servers primitive.NsResolver, topic, group, filter, mode string) {
	options := []consumer.Option{
		consumer.WithNsResolver(servers), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithInstance(fmt.Sprint(os.Getpid())),
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: filter}
	switch mode {
	case "sql":
		selector.Type = consumer.SQL92
	case "orderly":
		options = append(options, consumer.WithConsumerOrder(true))
	case "broadcast":
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	case "dead":
		options = append(options, consumer.WithMaxReconsumeTimes(1))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	must(err)
	must(made.Subscribe(topic, selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			say("got", map[string]interface{}{
				"body": string(message.Body), "tags": message.GetTags(), "keys": message.GetKeys(), "colour": message.GetProperty("colour"),
				"id": message.MsgId, "queue": message.Queue.QueueId, "offset": message.QueueOffset, "tries": message.ReconsumeTimes,
			})
			if mode == "dead" || mode == "retry" && message.ReconsumeTimes == 0 {
				if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					concurrent.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(made.Start())
	say("running", true)
	io.Copy(io.Discard, os.Stdin)
	must(made.Shutdown())
}
