"""Where clients come in. A door turns bytes into requests and results into bytes; it decides nothing about calls."""
