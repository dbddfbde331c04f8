"""A workload in Prometheus: answers, the metrics that count requests, and the queries that read them."""
