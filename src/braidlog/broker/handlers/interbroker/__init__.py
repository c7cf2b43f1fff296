"""The APIs that only brokers call: a controller's demands on this broker, and brokers' requests to a controller."""
