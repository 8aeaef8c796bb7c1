import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints what a release of Apache Kafka says of its settings: scope, name, type, default, limits. */
public class Settings {
    private static void list(String scope, ConfigDef of) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(of.configKeys()).values()) {
            String value = "required";
            if (key.hasDefault()) {
                String text = ConfigDef.convertToString(key.defaultValue, key.type);
                value = text == null ? "null" : "'" + text + "'";
            }
            String limits = key.validator == null ? "" : key.validator.toString().replaceAll("\\s+", " ");
            System.out.println(String.join("\t", scope, key.name, key.type.toString(), value, limits));
        }
    }

    public static void main(String[] none) {
        list("broker", kafka.server.KafkaConfig.configDef());
        list("topic", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy());
    }
}
