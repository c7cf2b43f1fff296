"""SASL exchanges as pure machines, bytes in and bytes out; who may do what to which resource is not decided here."""
