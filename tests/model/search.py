"""A breadth-first search through everything that a few processes, a store and a network can do.

Between any two steps time may pass, a message that was given up may arrive, and any process may
be the one that goes on. So what the search has not found wrong cannot go wrong in the model, and
what it finds is told by one of the shortest ways that lead there.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from model.callers import AtLeastOnce, Message, Process
from model.promises import Promise, StepPromise
from model.protocol import Slot

NAMES = "ABC"


class World(NamedTuple):
    """Everything that there is."""

    slot: Slot
    network: frozenset[Message]  # given up by their senders, and still able to arrive
    processes: tuple[Process, ...]


class Broken(AssertionError):
    """A promise that does not hold, and a shortest way there."""

    def __init__(self, promise: str, trace: list[str]) -> None:
        told = "\n".join(f"{number:3}. {line}" for number, line in enumerate(trace, 1))
        super().__init__(f"{promise}\n{told}")
        self.promise = promise
        self.trace = trace


@dataclass
class Search:
    """Explores what so many owners do by a protocol, from the empty store on.

    At most so many delays are under way at once: messages that were given up. One that finds no
    room is lost, or is carried out at once. `seen` has all worlds, with where each was first come
    to from, and by what; `known` has what the store made of every operation that it was sent.
    """

    protocol: AtLeastOnce
    promises: list[Promise]
    step_promises: list[StepPromise]
    owners: int = 2
    delays: float = 1
    seen: dict[World, tuple[World, str] | None] = field(default_factory=dict)
    known: dict[tuple[Slot, Message], tuple[Slot, Any]] = field(default_factory=dict)

    def run(self) -> "Search":
        """Explore all worlds.

        Raises:
            Broken: one in which a promise does not hold.
        """
        self._moves = {}
        first = World(None, frozenset(), (Process(),) * self.owners)
        self.seen[first] = None
        waiting = deque([first])
        while waiting:
            world = waiting.popleft()
            for line, after in self._steps(world):
                if after in self.seen:
                    continue
                self.seen[after] = (world, line)
                for promise in self.promises:
                    if not promise(self.protocol, after):
                        raise Broken(promise.__doc__ or "", self._trace(after))
                waiting.append(after)
        return self

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        for number, process in enumerate(world.processes):
            if number and world.processes[number - 1].step == "new":
                break  # they are all alike: let them begin in order
            for move in self._moves_of(number, process):
                line = f"{NAMES[number]} {move.name}"
                if move.message is None:
                    yield line, _with(world, number, move.then(None))
                    continue
                slot, answer = self._carry_out(world, move.message, line)
                heard = self.protocol.carried_out(move.then(answer), move.message, answer)
                yield f"{line}: {_told(answer)}", _with(world, number, heard)._replace(slot=slot)
                if move.unanswered is not None:
                    yield from self._unanswered(world, number, move, line)
        for message in world.network:
            line = f"what {NAMES[message.owner]} sent arrives late ({message.operation})"
            yield self._arrives(world, message, line)
        yield "time passes", self._ticked(world)

    def _moves_of(self, number: int, process: Process) -> list:
        if (number, process) not in self._moves:
            self._moves[number, process] = list(self.protocol.moves(number, process))
        return self._moves[number, process]

    def _unanswered(self, world: World, number: int, move: Any, line: str):
        waits = _with(world, number, move.unanswered)
        line = f"{line}: no answer"
        if len(world.network | {move.message}) <= self.delays:
            yield line, waits._replace(network=world.network | {move.message})
        else:
            yield line, waits
            yield self._arrives(waits, move.message, f"{line}, but carried out")

    def _arrives(self, world: World, message: Message, line: str) -> tuple[str, World]:
        slot, answer = self._carry_out(world, message, line)
        sender = world.processes[message.owner]
        after = self.protocol.carried_out(sender, message, answer)
        network = world.network - {message}
        return line, _with(world, message.owner, after)._replace(slot=slot, network=network)

    def _carry_out(self, world: World, message: Message, line: str) -> tuple[Slot, Any]:
        known = self.known.get((world.slot, message))
        if known is not None:
            return known
        operation = getattr(self.protocol.rules, message.operation)
        slot, answer = operation(world.slot, message.owner, *message.arguments)
        for promise in self.step_promises:
            if not promise(world.slot, message, answer, slot):
                told = f"{line}: {_told(answer)}"
                raise Broken(promise.__doc__ or "", [*self._trace(world), told])
        self.known[world.slot, message] = slot, answer
        return slot, answer

    def _ticked(self, world: World) -> World:
        processes = tuple(map(self.protocol.grows_late, world.processes))
        return World(self.protocol.rules.let_pass(world.slot, 1), world.network, processes)

    def _trace(self, world: World) -> list[str]:
        lines = []
        while (came := self.seen[world]) is not None:
            world, line = came
            lines.append(line)
        return lines[::-1]


def _with(world: World, number: int, process: Process) -> World:
    before = world.processes
    return world._replace(processes=(*before[:number], process, *before[number + 1 :]))


def _told(answer: Any) -> str:
    return getattr(answer, "value", type(answer).__name__.lower())
