"""The APIs about brokers: versions, configs, log directories, coordinators; nothing here touches records."""
