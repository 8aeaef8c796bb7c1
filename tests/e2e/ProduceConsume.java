import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Java's own producer and consumer, told by arguments what to do; prints what it read. Run from source by `java`. */
public class ProduceConsume {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        TopicPartition partition = new TopicPartition(arguments[2], Integer.parseInt(arguments[3]));
        switch (arguments[0]) {
            case "produce" -> produce(bootstrap, partition, arguments[4], Integer.parseInt(arguments[5]), Long.parseLong(arguments[6]));
            case "consume" -> consume(bootstrap, partition, Integer.parseInt(arguments[4]), Long.parseLong(arguments[5]));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Produce with every codec named, each to the partition after the last one's. */
    private static void produce(String bootstrap, TopicPartition first, String codecs, int count, long base) throws Exception {
        int index = first.partition();
        for (String codec : codecs.split(",")) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("enable.idempotence", "true");
            settings.put("compression.type", codec);
            settings.put("linger.ms", "5");
            settings.put("batch.size", "2000");
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    var record = new ProducerRecord<>(first.topic(), index, base + i * 1000L, "k" + i, String.format("v%06d", i));
                    record.headers().add("h", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
                    sent.add(producer.send(record));
                    if (i % 100 == 99) Thread.sleep(count > 1000 ? 50 : 0);
                }
                for (Future<RecordMetadata> future : sent) future.get();
            }
            index++;
        }
    }

    /** Print the partition from its beginning, from an offset, and from a time. */
    private static void consume(String bootstrap, TopicPartition partition, int offset, long timestamp) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition).offset();
            for (long start : new long[] {0, offset, found}) {
                consumer.seek(partition, start);
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                        String header = new String(record.headers().lastHeader("h").value(), StandardCharsets.UTF_8);
                        System.out.println(String.join(" ", "READ", "" + start, "" + record.offset(), record.key(), record.value(), "" + record.timestamp(), header));
                    }
                }
            }
        }
    }
}
