"""Side-by-side benchmarks of braidlog and Apache Kafka on one machine; nothing here is imported by the broker."""
