"""braidlog's Spark source and sink next to Spark's own Kafka connector, on one broker and one Spark session."""
