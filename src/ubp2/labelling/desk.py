"""Who gets which pair, and what becomes of the answer: the label server without its web page.

Every method may be called by any thread. An answer is in the store, on the disk, when `answer` returns.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ubp2.labelling import choices
from ubp2.labelling.choices import Choice
from ubp2.labelling.gallery import ClipSource, Gallery
from ubp2.labelling.leases import Leases
from ubp2.labelling.security import Refused
from ubp2.labelling.tickets import Ticket, Tickets
from ubp2.labelling.view import View
from ubp2.preference.store import Given, LabelStore
from ubp2.storage import locks

__all__ = ["Desk", "Hand", "Rules"]

MOST_KEYS = 10_000
GAP = 6  # answers that lie between a pair and the same pair asked again


@dataclass(frozen=True)
class Rules:
    """How pairs are handed out."""

    overlap: int = 1
    """Annotators who answer each question."""
    again: float = 0.05
    """Share of the pairs that are asked again of the same annotator, sides exchanged."""
    show_agreement: bool = True
    """Say after an answer what the reward model thinks."""
    budget: int | None = None
    """Labels in all, where the trainer has not said."""
    steps: int | None = None
    """Decisions of the run."""


class Hand(NamedTuple):
    """What an annotator is handed: the pair to judge, the one behind it, or why there is none."""

    pair: dict[str, Any] | None
    ahead: dict[str, Any] | None
    why: str | None


class Desk:
    """Hands out the questions in a store, with clips, and stores the answers."""

    def __init__(
        self,
        folder: Path,
        store: LabelStore,
        clips: ClipSource,
        tickets: Tickets,
        leases: Leases,
        rules: Rules,
        alive: Callable[[], bool] | None = None,
    ) -> None:
        """`alive`: whether there is a trainer; None: whether one on this machine has the lock of the folder."""
        self.folder, self.rules, self.clips, self.store = folder, rules, clips, store
        self._tickets, self._leases = tickets, leases
        self._alive = (lambda: locks.held(folder)) if alive is None else alive
        self._lock = threading.RLock()
        self._view = View(store, rules.overlap, self._alive)
        self._gallery = Gallery(clips)
        self._undone: dict[str, Ticket] = {}  # by annotator: an asked-again pair that was taken back
        self._undo_keys: OrderedDict[tuple[str, str], Ticket] = OrderedDict()  # so that a retry undoes nothing more

    def next(self, annotator: str) -> Hand:
        """The pair that this annotator judges next; the same one until it is answered or somebody else's."""
        with self._lock:
            self._view.look()
            self._gallery.prepare(self._view.open.values())
            return self._hand(annotator)

    def answer(
        self, annotator: str, pair: str, choice: Choice, key: str, seconds: float | None
    ) -> dict[str, Any] | None:
        """Store what was chosen of the sides as shown; returns what the reward model thinks, if that is shown."""
        ticket = self._read(annotator, pair)
        swapped = self._tickets.swapped(annotator, ticket)
        label, weight = choices.label(choice, swapped)
        with self._lock:
            self._store(annotator, ticket, label, weight, seconds, key, swapped, None)
            if not self.rules.show_agreement or weight == 0 or ticket.again:
                return None
            judged = self.store.notes(name := f"judged:{ticket.question}").get(name)
        return None if judged is None else choices.opinion(float(judged), swapped, choice)

    def broken(self, annotator: str, pair: str, reason: str, key: str | None = None) -> None:
        """Skip a pair whose clip cannot be seen, with the reason; it is not counted."""
        ticket = self._read(annotator, pair)
        swapped = self._tickets.swapped(annotator, ticket)
        with self._lock:
            self._store(annotator, ticket, 0.5, 0.0, None, key or f"broken-{pair}", swapped, reason)

    def leave(self, annotator: str) -> None:
        """A page of this annotator was closed: what it showed may soon go to somebody else."""
        with self._lock:
            self._leases.leave(annotator)

    def undo(self, annotator: str, key: str) -> dict[str, Any] | None:
        """Take the newest answer back and hand its pair out again; None: there is nothing to take back."""
        with self._lock:
            ticket = self._undo_keys.get((annotator, key)) or self._take_back(annotator, key)
            if ticket is None:
                return None
            self._undo_keys[annotator, key] = ticket
            if len(self._undo_keys) > MOST_KEYS:
                self._undo_keys.popitem(last=False)
            self._leases.hold(annotator, [ticket, *(t for t in self._leases.of(annotator) if t != ticket)][:2])
            return self._pair(annotator, ticket)

    def progress(self, annotator: str | None = None) -> dict[str, Any]:
        """Where labelling and training stand."""
        with self._lock:
            self._view.look()
            notes, view = self._view.notes, self._view
            return {
                "answered": view.labelled(),
                "asked": view.asked,
                "budget": notes.get("budget", self.rules.budget),
                "mine": len(view.given.get(annotator, ())) if annotator else 0,
                "phase": notes.get("phase"),
                "decision": notes.get("decision"),
                "steps": notes.get("steps", self.rules.steps),
                "waiting": notes.get("waiting", "answers"),
                "trainer": self._trainer(),
            }

    def _trainer(self) -> str:
        if not self._alive():
            return "gone"
        return "waiting for answers" if self._view.notes.get("trainer") == "waiting for answers" else "running"

    def _read(self, annotator: str, pair: str) -> Ticket:
        ticket = self._tickets.read(annotator, pair)
        if ticket is None:
            raise Refused(409, "this pair was not handed to you by this run; load the next one")
        return ticket

    def _store(
        self,
        annotator: str,
        ticket: Ticket,
        label: float,
        weight: float,
        seconds: float | None,
        key: str,
        swapped: bool,
        reason: str | None,
    ) -> None:
        """Write to the disk, then to what we remember. A key is the annotator's and the pair's: none can be used up."""
        if self._view.question(ticket.question) is None:
            raise Refused(409, "this run does not know the pair any more; load the next one")
        key = f"{annotator}/{'again' if ticket.again else 'first'}/{ticket.question}/{key}"
        if ticket.again:
            self.store.check(ticket.question, label, weight, annotator, seconds, key=key, swapped=swapped)
            self._view.checked.setdefault(annotator, {})[ticket.question] = time.time()
            self._undone.pop(annotator, None)
        else:
            id = self.store.answer(
                ticket.question, label, weight, annotator, seconds, key=key, swapped=swapped, reason=reason
            )
            given = Given(id, ticket.question, 0, annotator, label, weight, seconds, swapped, time.time(), reason)
            self._view.answered(given)
        if ticket.again or ticket.question in self._view.given.get(annotator, {}):  # else a repetition after an undo
            self._leases.release(annotator, ticket)

    def _hand(self, annotator: str) -> Hand:
        held = [ticket for ticket in self._leases.of(annotator) if self._mine(annotator, ticket)]
        candidates = (ticket for ticket in self._candidates(annotator) if ticket not in held)
        while len(held) < 2 and (ticket := next(candidates, None)) is not None:
            held.append(ticket)
        if not held and (taken := self._from_others(annotator)):
            held.append(taken)
        self._leases.hold(annotator, held)
        pair, ahead = ([self._pair(annotator, ticket) for ticket in held] + [None, None])[:2]
        return Hand(pair, ahead, self._why(annotator, pair))

    def _mine(self, annotator: str, ticket: Ticket) -> bool:
        """Whether what was handed out earlier is still this annotator's to answer."""
        if ticket.again:
            undone = self._undone.get(annotator) == ticket
            return undone or ticket.question not in self._view.checked.get(annotator, {})
        if ticket.question not in self._view.open or ticket.question in self._view.given.get(annotator, {}):
            return False
        return self._room(annotator, ticket.question)

    def _candidates(self, annotator: str) -> Iterator[Ticket]:
        """What this annotator could be handed: pairs due again, then new ones, those that cannot be shown last."""
        yield from self._due_again(annotator)
        own, failed = self._view.given.get(annotator, {}), []
        for question in self._view.open.values():
            if question.id in own or not self._room(annotator, question.id):
                continue
            if self._gallery.failed(question):
                failed.append(Ticket(question.id))
            else:
                yield Ticket(question.id)
        yield from failed

    def _due_again(self, annotator: str) -> Iterator[Ticket]:
        own, done = self._view.given.get(annotator, {}), self._view.checked.get(annotator, {})
        if not self.rules.again:
            return
        for question, given in list(own.items())[: max(0, len(own) - GAP)]:
            chosen = self._tickets.draw("again", annotator, question) < self.rules.again
            if chosen and given.weight > 0 and question not in done:
                yield Ticket(question, again=True)

    def _room(self, annotator: str, question: int, *, shown_only: bool = False) -> bool:
        """Whether one more may answer, counting those who have it before them."""
        others = self._leases.others(question, annotator, shown_only=shown_only)
        return self._view.answers[question] + others < self.rules.overlap

    def _from_others(self, annotator: str) -> Ticket | None:
        """A pair that somebody else has behind the one he judges."""
        own = self._view.given.get(annotator, {})
        free = (id for id in self._view.open if id not in own and self._room(annotator, id, shown_only=True))
        return next((Ticket(id) for id in free), None)

    def _take_back(self, annotator: str, key: str) -> Ticket | None:
        """Undo what was said last. A pair that was asked again is no label: it is only shown once more."""
        self._view.look(now=True)
        name = f"{annotator}/undo/{key}"
        ticket = self._last_check(annotator)
        if ticket is not None and not self.store.knows(name):  # a server before this one may have done it
            self._undone[annotator] = ticket
            return ticket
        question = self.store.withdraw(annotator, key=name)
        self._view.look(now=True)
        return None if question is None else Ticket(question)

    def _last_check(self, annotator: str) -> Ticket | None:
        """The pair asked again that was answered last, if nothing was answered after it or taken back."""
        checked = self._view.checked.get(annotator)
        if not checked:
            return None
        question, when = max(checked.items(), key=lambda item: item[1])
        own = self._view.given.get(annotator, {})
        newest = max((given.answered_at for given in own.values()), default=0.0)
        ticket = Ticket(question, again=True)
        return ticket if when > newest and self._undone.get(annotator) != ticket else None

    def _why(self, annotator: str, pair: dict[str, Any] | None) -> str | None:
        if pair is not None:
            sides = (pair["left"], pair["right"])
            return None if any(s["failed"] for s in sides) or all(s["ready"] for s in sides) else "rendering"
        budget = self._view.notes.get("budget", self.rules.budget)
        if budget is not None and self._view.labelled() >= budget:
            return "the budget is spent"
        if self._view.open.keys() - self._view.given.get(annotator, {}).keys():  # else there would be a pair
            return "the last pairs are with others"
        return "everything is answered" if self._trainer() == "gone" else "waiting for the trainer"

    def _pair(self, annotator: str, ticket: Ticket) -> dict[str, Any] | None:
        question = self._view.question(ticket.question)
        if question is None:
            return None
        sides = self._gallery.pair(question, self._tickets.swapped(annotator, ticket))
        return {"id": self._tickets.write(annotator, ticket), **sides}
