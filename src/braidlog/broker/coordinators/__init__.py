"""The coordinators inside a broker: their logs, internal topics and transaction markers; no request is parsed here."""
