import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Apache Kafka's own clients, for chaos:
 *   java -cp 'LIB/*' Client.java produce BROKERS TOPIC              lines of standard input, to partition 0
 *   java -cp 'LIB/*' Client.java consume BROKERS TOPIC classic|consumer   values, until it is ended
 */
public class Client {
    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[1]);
        if (args[0].equals("produce")) {
            produce(p, args[2]);
        } else {
            consume(p, args[2], args[3]);
        }
    }

    static void produce(Properties p, String topic) throws Exception {
        p.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        p.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        p.put("enable.idempotence", "true");
        p.put("delivery.timeout.ms", "600000");
        AtomicReference<Exception> failed = new AtomicReference<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p);
             BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                producer.send(new ProducerRecord<>(topic, 0, null, line), (at, e) -> failed.compareAndSet(null, e));
            }
            producer.flush();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
    }

    static void consume(Properties p, String topic, String protocol) {
        p.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        p.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        p.put("group.id", "java-" + protocol);
        p.put("group.protocol", protocol);
        p.put("auto.offset.reset", "earliest");
        p.put("auto.commit.interval.ms", "500");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(p)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                StringBuilder out = new StringBuilder();
                consumer.poll(Duration.ofMillis(200)).forEach(r -> out.append(r.value()).append('\n'));
                System.out.print(out);
                System.out.flush();
            }
        }
    }
}
