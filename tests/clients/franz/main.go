// A franz-go program for test_foreign_clients.py: produce, transact or consume; lines of JSON on stdout.
// With TEST_USER, TEST_PASSWORD and TEST_TRUST (a PEM file) it logs in by SCRAM-SHA-512 over TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func must(problem error) {
	if problem != nil {
		fmt.Fprintln(os.Stderr, problem)
		os.Exit(1)
	}
}

func say(record *kgo.Record) {
	line, _ := json.Marshal(map[string]any{"value": string(record.Value), "partition": record.Partition, "offset": record.Offset})
	fmt.Println(string(line))
}

func client(options ...kgo.Opt) *kgo.Client {
	common := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[2], ",")...), kgo.ClientID("franz"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(60 * time.Second), kgo.MetadataMinAge(200 * time.Millisecond),
	}
	if user := os.Getenv("TEST_USER"); user != "" {
		trusted, problem := os.ReadFile(os.Getenv("TEST_TRUST"))
		must(problem)
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(trusted)
		common = append(common, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}),
			kgo.SASL(scram.Auth{User: user, Pass: os.Getenv("TEST_PASSWORD")}.AsSha512Mechanism()))
	}
	found, problem := kgo.NewClient(append(common, options...)...)
	must(problem)
	return found
}

func main() {
	topic := os.Args[3]
	count, _ := strconv.Atoi(os.Args[4])
	ctx := context.Background()
	switch os.Args[1] {
	case "produce":
		producer := client()
		for i := 0; i < count; i++ {
			record := &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: []byte(fmt.Sprintf("go-%d", i))}
			must(producer.ProduceSync(ctx, record).FirstErr())
			say(record)
		}
		producer.Close()
	case "transact":
		producer := client(kgo.TransactionalID("franz"))
		for i := 0; i < count; i++ {
			must(producer.BeginTransaction())
			for partition := int32(0); partition < 3; partition++ {
				value := fmt.Sprintf("go-%d-%d", i, partition)
				must(producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}).FirstErr())
			}
			must(producer.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)))
		}
		producer.Close()
	case "consume":
		consumer := client(kgo.ConsumerGroup(os.Args[5]), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second))
		for seen := 0; seen < count; {
			fetches := consumer.PollFetches(ctx)
			fetches.EachRecord(func(record *kgo.Record) { say(record); seen++ })
		}
		must(consumer.CommitUncommittedOffsets(ctx))
		consumer.Close()
	}
}
