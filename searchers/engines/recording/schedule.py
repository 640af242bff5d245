"""Which records each conversation of a recorded run knew when it began, so that a replay asks the same questions."""

from collections.abc import Collection, Mapping

from automcu_ray.networks.candidate import Candidate
from searchers.engines.base import Begun


class Schedule:
    """Says when a conversation may begin, and which records it then learns.

    A new one begins at once and learns all records so far. A recorded one (in the run that is replayed, or in this run
    before it was killed) waits until the records that it knew then are there, and learns those alone. If they will not
    come, the replay has departed from its recording, and all further conversations count as new.

    Args:
        recorded: how recorded conversations began, by number.
    """

    def __init__(self, recorded: Mapping[int, Begun]) -> None:
        self._recorded = dict(recorded)
        self._learned: set[int] = set()  # numbers of records
        self._free = {-number: begun.free for number, begun in recorded.items() if begun.free is not None}
        self._departed = False  # from the recording

    def holds(self, number: int) -> bool:
        """Return whether a conversation is recorded, and is to be repeated."""
        return number in self._recorded and not self._departed

    def free(self, number: int) -> Candidate | None:
        """Return the candidate of that number, where it was proposed without asking; once."""
        return None if self._departed else self._free.pop(number, None)

    def begin(
        self, number: int, news: Collection[int], fresh: Begun, *, active: Collection[int] = (), waits: bool
    ) -> Begun | None:
        """Return how a conversation begins; None while a record is missing that it knew when it was recorded.

        Args:
            number: of the conversation, from 1.
            news: numbers of the records that no conversation has learned yet.
            fresh: how a new conversation begins, but for what it learns.
            active: numbers of the candidates under way.
            waits: whether more records can be expected.
        """
        if not self.holds(number):
            begun = fresh.replace(known=tuple(news))
        else:
            earlier = [self._recorded[n].known for n in range(1, number + 1) if n in self._recorded]
            known = [record for numbers in earlier for record in numbers if record not in self._learned]
            pending = self._recorded[number].pending
            if any(record not in news for record in known) or any(n not in active and n not in news for n in pending):
                self._departed = not waits
                return None
            begun = self._recorded[number].replace(known=tuple(known))
        self._learned.update(begun.known)
        return begun
