"""Connections that this process opens: transports, TLS, frames, pipelining; not what requests mean."""
