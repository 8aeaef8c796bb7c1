"""Which of Kafka's own test classes are run on processes of replog, and which of their tests do not pass there, with the reason.

A test that looks inside a broker's JVM is not listed: it ends as such by itself. docs/kafka-tests.md has the table for readers.
"""

CLASSES = (
    "clients.ClientRebootstrapTest",
    "clients.CreateTopicsRequestWithPolicyTest",
    "clients.MetricsDuringTopicCreationDeletionTest",
    "clients.TransactionsExpirationTest",
    "clients.admin.AdminClientWithPoliciesIntegrationTest",
    "clients.admin.AdminFenceProducersTest",
    "clients.admin.AutoTopicCreationTest",
    "clients.admin.ConcurrentListOffsetsRequestTest",
    "clients.admin.DeleteTopicTest",
    "clients.admin.DescribeFeaturesTest",
    "clients.admin.DescribeProducersWithBrokerIdTest",
    "clients.admin.DynamicGroupConfigIntegrationTest",
    "clients.admin.ListOffsetsIntegrationTest",
    "clients.admin.RackAwareAutoTopicCreationTest",
    "clients.admin.StaticBrokerConfigTest",
    "clients.producer.ProducerFailureHandlingTest",
    "clients.producer.ProducerIntegrationTest",
    "clients.producer.ProducerSendWhileDeletionTest",
    "clients.producer.SocketServerMemoryPoolTest",
)
POLICY = "a policy is a Java class"
METRICS = "a metric of the JVM's own registry"
LEVEL = "the test expects metadata.version alone to be finalized, of a release of 2022"
SETTINGS_OF_GROUPS = (
    "settings of single groups that replog has not: share.auto.offset.reset, consumer.assignment.interval.ms"
)
OF_PART_TWO = (
    "unclean.recovery.strategy (KIP-966, part 2) is a topic config here, and the test knows those of its release only"
)
INTERNAL = "the test reads internal.segment.bytes, which replog has not"
EXCEPTIONS = {
    ("clients.CreateTopicsRequestWithPolicyTest", "testErrorCreateTopicsRequests"): POLICY,
    ("clients.MetricsDuringTopicCreationDeletionTest", "testMetricsDuringTopicCreateDelete"): METRICS,
    ("clients.admin.AdminClientWithPoliciesIntegrationTest", "testInvalidAlterConfigsDueToPolicy"): POLICY,
    ("clients.admin.DescribeFeaturesTest", "testUnstableApiVersions"): LEVEL,
    ("clients.admin.DynamicGroupConfigIntegrationTest", "testDescribeGroupConfigSynonymsWithBrokerSynonym"): SETTINGS_OF_GROUPS,
    ("clients.admin.DynamicGroupConfigIntegrationTest", "testDescribeGroupConfigSynonymsWithStaticBrokerConfig"): SETTINGS_OF_GROUPS,
    ("clients.admin.DynamicGroupConfigIntegrationTest", "testDescribeGroupConfigSynonymsWithoutBrokerSynonym"): SETTINGS_OF_GROUPS,
    ("clients.admin.StaticBrokerConfigTest", "testInternalConfigsDoNotReturnForCreateTopics"): INTERNAL,
    ("clients.admin.StaticBrokerConfigTest", "testInternalConfigsDoNotReturnForDescribeConfigs"): OF_PART_TWO,
    ("clients.admin.StaticBrokerConfigTest", "testTopicConfigsGetImpactedIfStaticConfigsAddToBroker"): INTERNAL,
    ("clients.admin.StaticBrokerConfigTest", "testTopicConfigsGetImpactedIfStaticConfigsAddToController"): INTERNAL,
}  # fmt: skip
