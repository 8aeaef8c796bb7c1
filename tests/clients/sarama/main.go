// A sarama program for test_foreign_clients.py: produce, transact or consume; lines of JSON on stdout.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func must(problem error) {
	if problem != nil {
		fmt.Fprintln(os.Stderr, problem)
		os.Exit(1)
	}
}

func say(value string, partition int32, offset int64) {
	line, _ := json.Marshal(map[string]any{"value": value, "partition": partition, "offset": offset})
	fmt.Println(string(line))
}

func config() *sarama.Config {
	found := sarama.NewConfig()
	found.ClientID = "sarama"
	found.Version = sarama.V2_8_0_0
	found.Producer.Idempotent = true
	found.Producer.RequiredAcks = sarama.WaitForAll
	found.Producer.Return.Successes = true
	found.Producer.Partitioner = sarama.NewManualPartitioner
	found.Producer.Retry.Max = 120
	found.Producer.Retry.Backoff = 250 * time.Millisecond
	found.Producer.Transaction.Retry.Max = 240
	found.Net.MaxOpenRequests = 1
	found.Metadata.Retry.Max = 120
	found.Consumer.Offsets.Initial = sarama.OffsetOldest
	found.Consumer.IsolationLevel = sarama.ReadCommitted
	return found
}

type handler struct {
	missing int
	done    context.CancelFunc
}

func (*handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

var turn = make(chan struct{}, 1)

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		turn <- struct{}{}
		say(string(message.Value), message.Partition, message.Offset)
		session.MarkMessage(message, "")
		h.missing--
		if h.missing == 0 {
			session.Commit()
			h.done()
		}
		<-turn
	}
	return nil
}

func main() {
	brokers, topic := strings.Split(os.Args[2], ","), os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	switch os.Args[1] {
	case "produce":
		producer, problem := sarama.NewSyncProducer(brokers, config())
		must(problem)
		for i := 0; i < count; i++ {
			value := fmt.Sprintf("sarama-%d", i)
			message := &sarama.ProducerMessage{Topic: topic, Partition: int32(i % 3), Value: sarama.StringEncoder(value)}
			partition, offset, problem := producer.SendMessage(message)
			must(problem)
			say(value, partition, offset)
		}
		must(producer.Close())
	case "transact":
		chosen := config()
		chosen.Producer.Transaction.ID = "sarama"
		producer, problem := sarama.NewSyncProducer(brokers, chosen)
		must(problem)
		for i := 0; i < count; i++ {
			must(producer.BeginTxn())
			for partition := int32(0); partition < 3; partition++ {
				value := sarama.StringEncoder(fmt.Sprintf("sarama-%d-%d", i, partition))
				_, _, problem := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition, Value: value})
				must(problem)
			}
			if i%2 == 0 {
				must(producer.CommitTxn())
			} else {
				must(producer.AbortTxn())
			}
		}
		must(producer.Close())
	case "consume":
		group, problem := sarama.NewConsumerGroup(brokers, os.Args[5], config())
		must(problem)
		ctx, cancel := context.WithCancel(context.Background())
		reader := &handler{missing: count, done: cancel}
		for ctx.Err() == nil {
			if problem := group.Consume(ctx, []string{topic}, reader); problem != nil && ctx.Err() == nil {
				time.Sleep(200 * time.Millisecond)
			}
		}
		must(group.Close())
	}
}
