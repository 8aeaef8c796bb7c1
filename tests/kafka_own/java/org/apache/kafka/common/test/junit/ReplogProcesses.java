package org.apache.kafka.common.test.junit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.AbstractMap;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.opentest4j.TestAbortedException;

/** A cluster of replog processes; tests/kafka_own/nodes.py starts and ends them at our word. */
public class ReplogProcesses implements ClusterInstance {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int FIRST_CONTROLLER = 3000;
    private static final int TRIES = 150;
    private static final int REST_MS = 100;
    private static final int SEEN_BY_ALL_MS = 300;
    private static final int END_S = 60;

    private final ClusterConfig config;
    private final boolean isCombined;
    private Process nodes;
    private Writer commands;
    private BufferedReader answers;
    private JsonNode facts;
    private boolean isStopped;

    ReplogProcesses(ClusterConfig config, boolean isCombined) {
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public void start() {
        if (nodes != null) {
            return;
        }
        if (config.brokerSecurityProtocol() != SecurityProtocol.PLAINTEXT
                || config.controllerSecurityProtocol() != SecurityProtocol.PLAINTEXT) {
            throw new TestAbortedException("the fixture's nodes have plain listeners");
        }
        try {
            nodes = new ProcessBuilder(System.getProperty("replog.python"), "-m", "tests.kafka_own.nodes")
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            commands = nodes.outputWriter(StandardCharsets.UTF_8);
            answers = new BufferedReader(new InputStreamReader(nodes.getInputStream(), StandardCharsets.UTF_8));
            facts = asked(JSON.writeValueAsString(Map.of(
                "brokers", config.numBrokers(), "controllers", config.numControllers(), "combined", isCombined,
                "disks", config.numDisksPerBroker(), "elr", level(Feature.ELIGIBLE_LEADER_REPLICAS_VERSION, 1) > 0,
                "settings", config.serverProperties(), "settings_of", config.perServerOverrideProperties())));
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
        setFeatures();
    }

    private int level(Feature feature, int otherwise) {
        Short given = config.features().get(feature);
        return given == null ? otherwise : given;
    }

    private void setFeatures() {
        try (Admin admin = admin()) {
            int groups = level(Feature.GROUP_VERSION, 1);
            set(admin, "group.version", groups);
            int transactions = level(Feature.TRANSACTION_VERSION, 2);
            set(admin, "transaction.version", transactions);
        } catch (ExecutionException | InterruptedException problem) {
            throw new IllegalStateException("features cannot be set", problem);
        }
    }

    private static void set(Admin admin, String feature, int wanted) throws ExecutionException, InterruptedException {
        var known = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get(feature);
        int level = known == null ? 0 : known.maxVersionLevel();
        if (level == wanted) {
            return;
        }
        var kind = wanted > level ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE;
        admin.updateFeatures(Map.of(feature, new FeatureUpdate((short) wanted, kind)), new UpdateFeaturesOptions()).all().get();
    }

    private JsonNode asked(String line) {
        try {
            commands.write(line + "\n");
            commands.flush();
            String answer = answers.readLine();
            if (answer == null) {
                throw new IllegalStateException("the processes of the cluster are gone");
            }
            JsonNode found = JSON.readTree(answer);
            if (!found.path("problem").asText("").isEmpty()) {
                throw new IllegalStateException(found.get("problem").asText());
            }
            return found;
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }

    @Override
    public void stop() {
        if (isStopped || nodes == null) {
            return;
        }
        isStopped = true;
        try {
            commands.close();
            if (!nodes.waitFor(END_S, TimeUnit.SECONDS)) {
                nodes.destroyForcibly();
            }
        } catch (IOException problem) {
            nodes.destroyForcibly();
        } catch (InterruptedException problem) {
            nodes.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public boolean started() {
        return nodes != null;
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    @Override
    public void shutdownBroker(int broker) {
        asked("stop " + broker);
    }

    @Override
    public void startBroker(int broker) {
        asked("start " + broker);
    }

    @Override
    public void waitForReadyBrokers() {
        // `start` returns when all of them serve.
    }

    @Override
    public Type type() {
        return isCombined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String bootstrapServers() {
        return facts.get("bootstrap").asText();
    }

    @Override
    public String bootstrapControllers() {
        return facts.get("controllers").asText();
    }

    @Override
    public String clusterId() {
        return facts.get("cluster").asText();
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return ports(bootstrapServers());
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return ports(bootstrapControllers());
    }

    private static List<Integer> ports(String addresses) {
        return Arrays.stream(addresses.split(",")).map(one -> Integer.parseInt(one.substring(one.lastIndexOf(':') + 1))).toList();
    }

    @Override
    public Set<Integer> brokerIds() {
        return from(0, config.numBrokers());
    }

    @Override
    public Set<Integer> controllerIds() {
        return isCombined ? from(0, config.numBrokers()) : from(FIRST_CONTROLLER, config.numControllers());
    }

    private static Set<Integer> from(int first, int count) {
        return IntStream.range(first, first + count).boxed().collect(Collectors.toCollection(TreeSet::new));
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return new Elsewhere<>(brokerIds());
    }

    @Override
    public Map<Integer, KafkaBroker> aliveBrokers() {
        return brokers();
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new Elsewhere<>(controllerIds());
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            for (int one = 0; one < TRIES; one++) {
                if (isLed(admin, topic, partitions)) {
                    Thread.sleep(SEEN_BY_ALL_MS); // the other brokers, which nobody can look into
                    return;
                }
                Thread.sleep(REST_MS);
            }
        }
        throw new AssertionError("topic " + topic + " has not come");
    }

    private static boolean isLed(Admin admin, String topic, int partitions) throws InterruptedException {
        try {
            TopicDescription seen = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return seen.partitions().size() == partitions
                && seen.partitions().stream().allMatch(one -> one.leader() != null && !one.leader().isEmpty());
        } catch (ExecutionException problem) {
            if (problem.getCause() instanceof UnknownTopicOrPartitionException) {
                return false;
            }
            throw new IllegalStateException(problem.getCause());
        }
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        try (Admin admin = admin()) {
            for (int one = 0; one < TRIES; one++) {
                if (!admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get().contains(topic)) {
                    Thread.sleep(SEEN_BY_ALL_MS);
                    return;
                }
                Thread.sleep(REST_MS);
            }
        } catch (ExecutionException problem) {
            throw new IllegalStateException(problem.getCause());
        }
        throw new AssertionError("topic " + topic + " has not gone");
    }

    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        Thread.sleep(SEEN_BY_ALL_MS);
    }

    /** What a test ends with that wants to look into a broker: an Error, for tests try again after an Exception. */
    public static final class LooksInside extends Error {
        private LooksInside() {
            super("the test looks inside a broker or controller");
        }
    }

    /** Nodes of which only the ids are here. */
    private static final class Elsewhere<Node> extends AbstractMap<Integer, Node> {
        private final Set<Integer> ids;

        private Elsewhere(Set<Integer> ids) {
            this.ids = ids;
        }

        private static LooksInside inside() {
            return new LooksInside();
        }

        @Override
        public Set<Integer> keySet() {
            return ids;
        }

        @Override
        public int size() {
            return ids.size();
        }

        @Override
        public boolean isEmpty() {
            return ids.isEmpty();
        }

        @Override
        public boolean containsKey(Object key) {
            return ids.contains(key);
        }

        @Override
        public Node get(Object key) {
            throw inside();
        }

        @Override
        public java.util.Collection<Node> values() {
            throw inside();
        }

        @Override
        public Set<Map.Entry<Integer, Node>> entrySet() {
            throw inside();
        }
    }
}
