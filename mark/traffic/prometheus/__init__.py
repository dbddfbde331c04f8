"""What a Prometheus knows of a workload: answers, the metrics that count requests, and the queries that read them."""
