"""How a server is asked, written once for both faces: what is encoded, sent, redirected, and decoded.

Callers hand in items: requests to decide, adjustments, keys to forget. Items that travel together become as
few commands as can be: one script call for all requests of one instant (on a cluster: of one slot), in one
round trip. Each is answered by itself, with an error in its place where it failed.

Nothing that may have been carried out is sent again. What is sent a second time has surely not been: the
server did not have the script (then the whole text goes), or it sent us to another node, or an instant lay
outside the calendar windows that went along, or a slot is moving and has its keys on two nodes (then each
request goes by itself, and is put off a little).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable, TidegateError
from tidegate.stores.health import KEPT
from tidegate.stores.redis.address import Options
from tidegate.stores.redis.calls import BY_NAME, Ask, Change, Item, ScriptCall, is_strict, key_of
from tidegate.stores.redis.causes import Redirection, classified, is_no_script, is_try_again, redirection
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.link import PROBE_WITHIN_S, Line, Link
from tidegate.stores.redis.names import Names
from tidegate.stores.redis.scripts import ADJUST, DECIDE, FORGET
from tidegate.stores.redis.wire import Missed, decode_decide, encode_decide

REQUESTS_MOST = 128
"""Requests in one script call: while it runs, the server answers nobody else."""
HOPS_MOST = 10
PUT_OFF_S = (0.001, 0.003)
"""How long we wait, the first and the second time, for the keys of one request to be on one node again."""
ROUNDS_MOST = 3
_DECIDE = BY_NAME[DECIDE]


class Places(Protocol):
    """Where keys live, as far as asking needs to know."""

    @property
    def is_cluster(self) -> bool:
        """Whether only keys of one slot may meet in a call."""

    def slot(self, rule: str, key: Key) -> int | None:
        """What is equal of keys that one call may touch together; None where all may meet."""

    def moved(self, elsewhere: Redirection) -> Link:
        """The link to the node to which a server has sent us."""


class Asking:
    """Asks on behalf of one face, by its line. It may be shared by all callers of that face."""

    def __init__(self, names: Names, options: Options, places: Places, line: Line) -> None:
        self._names = names
        self._options = options
        self._places = places
        self._line = line
        self._server_is_ahead_us = 0
        self._tags = count()

    async def one(
        self, link: Link, request: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome] | StoreError:
        """The outcomes of one request, or its StoreError: `answer` for the commonest case, a shorter way."""
        reply: object = None
        if not is_strict(request):
            clustered = self._places.is_cluster
            guess_us = time.time_ns() // 1_000 + self._server_is_ahead_us
            try:
                keys, args = encode_decide(
                    (request,),
                    self._names,
                    now_us=now_us,
                    take=take,
                    windows_at_us=guess_us,
                    clustered=clustered,
                    tag=b"%d " % next(self._tags),
                )
                command = (*_DECIDE, b"%d" % len(keys), *keys, *args)
                (reply,) = await self._line.run(link, (command,), until_s)
            except TidegateError as error:
                return error if isinstance(error, StoreError) else StoreError(str(error))
            if isinstance(reply, bytes | str):
                try:
                    (answer,) = decode_decide(reply, (request,), args[1])
                except StoreUnavailable as error:
                    answer = error
                if isinstance(answer, StoreUnavailable):
                    link.failed(answer)
                else:
                    link.answered((answer,))
                if not isinstance(answer, Missed):
                    return answer
            elif not (is_no_script(reply) or redirection(reply) or is_try_again(reply)):
                return self._judged(link, reply, 1)
        items = (Ask((request,), now_us, take),)
        ((found,),) = await self.answer(link, items, until_s, whole=is_no_script(reply))
        outcomes: list[Outcome] | StoreError = found
        return outcomes

    async def answer(
        self, link: Link, items: Sequence[Item], until_s: float, *, whole: bool = False
    ) -> list[list[Any]]:
        """For each item a list: of outcomes for its requests, of units for its adjustments.

        Where one failed, its StoreError stands in its place. `whole` sends the text of the script at once.
        """
        answers: list[list[Any]] = [[None] * len(item[0]) for item in items]
        parts = self._parts(items, answers)
        for part in parts[:1]:
            part.whole = whole
        for _ in range(ROUNDS_MOST):
            self._encode(parts, answers)
            await self._exchange(link, parts, until_s)
            parts = [missed for part in parts if (missed := self._placed(part, answers)) is not None]
            if not parts:
                break
        for part in parts:
            for item, place in part.places:
                answers[item][place] = StoreError("the calendar windows sent were missed again and again")
        return answers

    def _parts(self, items: Sequence[Item], answers: list[list[Any]]) -> list[ScriptCall]:
        """The script calls that the items need: one for each kind, slot and instant, unless it gets large."""
        places, is_cluster = self._places, self._places.is_cluster
        filling: dict[tuple[Any, ...], ScriptCall] = {}
        parts: list[ScriptCall] = []
        for number, item in enumerate(items):
            script, take = DECIDE, True
            if isinstance(item, Ask):
                take = item.take
            else:
                script = ADJUST if isinstance(item, Change) else FORGET
            group: tuple[Any, ...] = script, None, item.now_us, take
            part = filling.get(group)  # nearly always the one that all the others go into
            wanted: Sequence[Any] = item[0]
            for place, one in enumerate(wanted):
                if script is DECIDE and not one:
                    answers[number][place] = []
                    continue
                if is_cluster:
                    group = script, places.slot(*key_of(one, script)), item.now_us, take
                    part = filling.get(group)
                if part is None or len(part.asked) >= REQUESTS_MOST:
                    part = filling[group] = ScriptCall(*group)
                    parts.append(part)
                part.asked.append(one)
                part.places.append((number, place))
        return parts

    def _encode(self, parts: list[ScriptCall], answers: list[list[Any]]) -> None:
        """Write down what is sent. What cannot be is answered at once, and is no hindrance to the others."""
        at_us = time.time_ns() // 1_000 + self._server_is_ahead_us
        for part in parts:
            try:
                part.encode(self._names, at_us, b"%d " % next(self._tags))
            except TidegateError:
                for (item, place), error in part.without_impossible(self._names, at_us):
                    answers[item][place] = error
                part.encode(self._names, at_us, b"%d " % next(self._tags))
        parts[:] = [part for part in parts if part.asked]

    async def _exchange(self, link: Link, parts: list[ScriptCall], until_s: float) -> None:
        """Give each part its reply, be it an error; what was surely not carried out is sent once more.

        A part whose keys are on two nodes falls into one for each thing asked.
        """
        going: dict[Link, list[ScriptCall]] = {link: list(parts)}
        for _ in range(HOPS_MOST):
            again: dict[Link, list[ScriptCall]] = defaultdict(list)
            put_off: list[ScriptCall] = []
            for there, wanted in going.items():
                sent = await self._trusted(there, wanted, parts, until_s)
                if sent:
                    await self._send(there, sent, until_s)
                has_text: set[str] = set()
                for part in sent:
                    if is_no_script(part.reply):
                        # One brings the text and the others find it there; if not, each brings its own.
                        part.whole = part.was_missing or part.script.name not in has_text
                        part.was_missing = True
                        has_text.add(part.script.name)
                        again[there].append(part)
                    elif (elsewhere := redirection(part.reply)) is not None:
                        part.is_asking = not elsewhere.for_good
                        again[self._places.moved(elsewhere)].append(part)
                    elif is_try_again(part.reply):
                        part.is_asking = False  # where the slot came from they know where each key is
                        put_off.append(part)
            if put_off:
                again[link] += await self._put_off(put_off, parts, until_s)
            if not any(again.values()):
                return
            going = again
        for sent in going.values():
            for part in sent:
                part.reply = StoreUnavailable("sent from server to server", "cluster_down")

    async def _put_off(
        self, sent: list[ScriptCall], parts: list[ScriptCall], until_s: float
    ) -> list[ScriptCall]:
        """What is to be sent once more of these, whose keys are on two nodes; the others keep that reply.

        What went together goes each by itself at once: the keys of one request are enough trouble.
        """
        again: list[ScriptCall] = []
        waiting: list[ScriptCall] = []
        for part in sent:
            if len(part.asked) > 1:
                alone = part.each_alone()
                self._encode(alone, [])
                parts.remove(part)
                parts += alone
                again += alone
            elif part.times_put_off < len(PUT_OFF_S):
                waiting.append(part)
        if waiting:
            for_s = PUT_OFF_S[max(part.times_put_off for part in waiting)]
            if self._line.now_s() + for_s < until_s:
                await self._line.pause(for_s)
                for part in waiting:
                    part.times_put_off += 1
                again += waiting
        return again

    async def _send(self, link: Link, parts: Sequence[ScriptCall], until_s: float) -> None:
        commands: list[Command] = []
        positions = []
        for part in parts:
            own = part.commands(self._options.replicas, until_s - self._line.now_s())
            positions.append(len(commands) + part.is_asking)
            commands += own
            part.link = link
        try:
            replies = await self._line.run(link, commands, until_s, sum(len(part.places) for part in parts))
        except StoreError as error:
            for part in parts:
                part.reply = error
            return
        for part, position in zip(parts, positions, strict=True):
            part.reply = replies[position]
            is_waiting = position + 1 < len(replies) and commands[position + 1][0] == b"WAIT"
            part.acknowledged = replies[position + 1] if is_waiting else None

    def _placed(self, part: ScriptCall, answers: list[list[Any]]) -> ScriptCall | None:
        """Put the part's answers where they belong; what missed its calendar windows is to be asked again."""
        link, reply = part.link, part.reply
        assert link is not None
        if isinstance(reply, StoreError):
            decoded: list[Any] = [reply] * len(part.asked)  # counted already
        elif isinstance(reply, Exception):
            decoded = [self._judged(link, reply, len(part.asked))] * len(part.asked)
        else:
            try:
                decoded = part.decode()
            except StoreUnavailable as error:
                decoded = [error] * len(part.asked)
            self._heard(link, part, decoded)
        missed: ScriptCall | None = None
        for one, place, answer in zip(part.asked, part.places, decoded, strict=True):
            if isinstance(answer, Missed):
                missed = missed or ScriptCall(part.script, part.slot, part.now_us, part.take)
                missed.asked.append(one)
                missed.places.append(place)
                self._server_is_ahead_us = answer.now_us - time.time_ns() // 1_000
            else:
                answers[place[0]][place[1]] = answer
        return missed

    def _heard(self, link: Link, part: ScriptCall, decoded: list[Any]) -> None:
        """Tell the breaker, and take back what the server or its replicas may lose."""
        failures = [error for error in decoded if isinstance(error, StoreUnavailable)]
        is_kept = part.acknowledged is not None and _is_enough(part.acknowledged, self._options.replicas)
        if failures:
            link.failed(failures[0], len(failures))
        else:
            link.answered(decoded, is_kept=is_kept)
        if link.trust.against is not None and part.is_strict() and not self._options.may_forget:
            doubt = StoreError(link.trust.against)  # found when the connection for this call was made
            _take_back(part, decoded, doubt)
        elif part.acknowledged is not None and not is_kept:
            said = f"{part.acknowledged} of {self._options.replicas} replicas acknowledged in time"
            late = StoreUnavailable(said, "deadline")
            link.failed(late, _take_back(part, decoded, late), KEPT)

    def _judged(self, link: Link, reply: object, calls: int) -> StoreError:
        """What a reply that is an error, or no text, means; an outage is told to the breaker."""
        if not isinstance(reply, Exception):
            shown = repr(reply)[:60]
            reply = StoreUnavailable(f"the server answered {shown}, which is no answer", "broken_reply")
        error = classified(reply)
        if isinstance(error, StoreUnavailable):
            link.failed(error, calls)
        else:
            link.answered()
        return error

    async def _trusted(
        self, link: Link, wanted: list[ScriptCall], parts: list[ScriptCall], until_s: float
    ) -> list[ScriptCall]:
        """What may be sent to this server, be it the first one or one that we were sent to.

        Where it may forget, a part with strict requests falls into one for each, and those are answered so.
        """
        strict = [part for part in wanted if part.is_strict()]
        mistrust = await self._mistrust(link, until_s) if strict and not self._options.may_forget else None
        if mistrust is None:
            return wanted
        sent = [part for part in wanted if part not in strict]
        for part in strict:
            alone = part.each_alone()
            self._encode(alone, [])
            parts.remove(part)
            parts += alone
            for one in alone:
                if one.is_strict():
                    one.link, one.reply = link, mistrust
                else:
                    sent.append(one)
        return sent

    async def _mistrust(self, link: Link, until_s: float) -> StoreError | None:
        """The reason not to charge strictly on this server; looked for before the first such charge."""
        trust, line = link.trust, self._line
        if trust.is_given:
            if trust.is_due():
                await line.beside(trust, lambda: self._look_again(link), None)
            return None
        try:
            reason = await trust.look(lambda commands: line.run(link, commands, until_s))
        except StoreError as error:
            return error
        return None if reason is None else StoreError(reason)

    async def _look_again(self, link: Link) -> None:
        """See beside the callers whether a server that is trusted still deserves it."""
        until_s = self._line.now_s() + PROBE_WITHIN_S
        with suppress(StoreError):  # it does not answer: then it decides nothing
            await link.trust.look(lambda commands: self._line.run(link, commands, until_s))


def _take_back(part: ScriptCall, decoded: list[Any], error: StoreError) -> int:
    """Put the error in the place of what was decided strictly; how often."""
    count = 0
    for number, (request, answer) in enumerate(zip(part.asked, decoded, strict=True)):
        if is_strict(request) and not isinstance(answer, StoreError | Missed):
            decoded[number] = error
            count += 1
    return count


def _is_enough(acknowledged: object, wanted: int) -> bool:
    return isinstance(acknowledged, int) and acknowledged >= wanted
