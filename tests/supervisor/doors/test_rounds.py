"""One send per client and round of the loop."""

from __future__ import annotations

import trio

from supervisor.doors.rounds import EndOfRound


class Told:
    """A connection that remembers what it was asked to send, and how often it sent."""

    def __init__(self, end: EndOfRound) -> None:
        self.end, self.said, self.sends = end, [], []

    def say(self, word: str) -> None:
        if not self.said:
            self.end.ask(self)
        self.said.append(word)

    def flush(self) -> None:
        self.sends.append("".join(self.said))
        self.said.clear()


class Broken(Told):
    def flush(self) -> None:
        raise RuntimeError("a bug")


async def test_what_is_said_in_one_round_leaves_together_and_at_its_end():
    end = EndOfRound()
    trio.lowlevel.add_instrument(end)
    told = Told(end)
    told.say("a")
    told.say("b")
    assert told.sends == []
    await trio.sleep(0)
    told.say("c")
    await trio.sleep(0)
    trio.lowlevel.remove_instrument(end)
    assert told.sends == ["ab", "c"]


async def test_one_that_breaks_costs_the_others_nothing():
    end = EndOfRound()
    trio.lowlevel.add_instrument(end)
    broken, told = Broken(end), Told(end)
    broken.say("x")
    told.say("a")
    await trio.sleep(0)
    told.say("b")
    await trio.sleep(0)
    trio.lowlevel.remove_instrument(end)
    assert told.sends == ["a", "b"]
