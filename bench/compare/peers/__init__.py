"""One module a peer: ``run(setup, kind, script, over)`` has the script's model call the payment under the peer's own
bound, says ``over`` what the caller got, and returns when stdin is closed. Which there are: `catalogue`.
"""
