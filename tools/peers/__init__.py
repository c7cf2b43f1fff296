"""Other people's programs (Apache Kafka, its Java tools, kcat): how they are fetched, started and stopped."""
