"""What a model is told when a detector fires: which attempt this is, what came of the ones before, that another is
useless, and what to do instead. Owns the sentences; the numbers come in.

They are read by models, so they are plain and short. A warning stands beside the call's own result; a block stands in
the place of a result; a stop is the run's last word.
"""

from __future__ import annotations

_ENDS = {
    "warn": "",
    "block": " This call was not executed.",
    "stop": " The run ends here.",
}


def repeat_call(level: str, tool: str, attempt: int, call_id: str) -> str:
    """The same call with the same outcome."""
    return (
        f"Attempt {attempt} of the same call of {tool}: it gave the same result each time{_last(call_id)}, and"
        f" repeating it is useless. Use that result, call something else, or finish with what you know.{_ENDS[level]}"
    )


def repeat_error(level: str, tool: str, attempt: int, call_id: str) -> str:
    """The same call, and all it does is fail."""
    return (
        f"Attempt {attempt} of the same call of {tool}: it failed each time{_last(call_id)}, and repeating it is"
        f" useless. Change the arguments or the strategy, or stop and say what is in the way.{_ENDS[level]}"
    )


def poll(level: str, tool: str, attempt: int, call_id: str) -> str:
    """What is asked again and again has not changed."""
    return (
        f"Poll {attempt} of the same thing with {tool}: it gave the same answer each time{_last(call_id)}."
        " Asking more often changes nothing: do something else meanwhile, or say that it is still pending and stop"
        f" waiting.{_ENDS[level]}"
    )


def too_early(tool: str, wait_ms: int, call_id: str) -> str:
    """A poll before its time."""
    return (
        f"Too early: {tool} may be asked again in {wait_ms} ms, and the answer until then is the one you have"
        f"{_last(call_id)}. Do something else meanwhile.{_ENDS['block']}"
    )


def cycle(level: str, tools: list[str], laps: int) -> str:
    """The same few calls in turn."""
    around = ", ".join(tools)
    return (
        f"The last {laps * len(tools)} calls are the same {len(tools)} calls in turn ({around}), {laps} times"
        " round with the same results, and this call would begin another round. Going round again is useless: use what"
        f" you have, take another way, or finish.{_ENDS[level]}"
    )


def same_error(level: str, tool: str, count: int, code: str, call_id: str) -> str:
    """Other arguments, the same error."""
    return (
        f"{count} calls of {tool} with different arguments have failed with the same error ({code}){_last(call_id)}."
        " Other arguments of the same kind will fail too: read the error, remove its cause or do without this"
        f" tool.{_ENDS[level]}"
    )


def near_duplicate(tool: str, count: int, call_id: str) -> str:
    """Reworded, and the same result."""
    return (
        f"{count} calls of {tool} with nearly the same arguments gave the same result{_last(call_id)}."
        " Wording it differently is useless: use that result, ask for something really different, or finish."
    )


def breaker(count: int, window: int) -> str:
    """Too many warnings and blocks, whatever of."""
    return (
        f"{count} of the last {window} calls were repetitions that you were warned of or that were blocked, and this is"
        f" one more.{_ENDS['stop']}"
    )


def refused(kind: str, count: int) -> str:
    """Nothing but calls that cannot be made."""
    what = "named a tool that does not exist" if kind == "unknown_tool" else "had arguments that are not valid"
    return f"The last {count} calls {what}, and so has this one, although each was told what is allowed.{_ENDS['stop']}"


def no_progress(steps: int, action: str) -> str:
    """Steps that brought nothing."""
    end = " A person is asked how to go on." if action == "ask" else _ENDS["stop"]
    return (
        f"{steps} steps in a row brought nothing new: no result, file, error or evidence that this run had not seen"
        f" before.{end}"
    )


def _last(call_id: str) -> str:
    return f" (last: {call_id})" if call_id else ""
