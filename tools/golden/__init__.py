"""Makes the codec's golden test data: messages as kafka-clients 3.9 writes them."""
