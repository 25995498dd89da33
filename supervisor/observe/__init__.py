"""What a daemon can be watched by: metrics and alerts, read from the log of events as its doors show it, and from
nothing else. Nobody who decides anything imports this."""
