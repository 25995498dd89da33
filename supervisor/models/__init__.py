"""Gateways to models: each turns a `Request` of `supervisor.core.model_events` into the events of one attempt.

What is spoken is pure (`chat_completions`, `responses`, `anthropic_messages`, over `server_sent`); `http` is the only
one with a connection, and loads its library when it is used. `scripted` plays a file. `choosing` finds the one that a
name means. Nobody here tries again, counts tokens against a budget, or reads arguments.
"""
