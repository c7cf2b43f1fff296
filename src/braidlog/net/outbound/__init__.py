"""Connections that this process opens: sockets, TLS, SASL, frames, pipelining; no request but ApiVersions and SASL."""
